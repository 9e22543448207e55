"""The networks of 2018 have their published sizes, and the data of users is trained on."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from deepbench.applications.datasets import Divided, find, find_dataset
from deepbench.applications.datasets.fashion_mnist import Pictures
from deepbench.applications.datasets.librispeech import Utterance
from deepbench.applications.datasets.movielens import Ratings
from deepbench.applications.datasets.prompts import Prompt
from deepbench.applications.datasets.tweets import Tweet
from deepbench.applications.training.application import Setup, find_application
from deepbench.core.errors import BadInput, Unsupported

torch = pytest.importorskip("torch")
torch.set_num_threads(1)


def built(make):
    """The module that a function makes, without memory for its numbers."""
    with torch.device("meta"):
        return make()


def size(module, without=()):
    """How many numbers are trained, except those of parameters with these names."""
    return sum(p.numel() for name, p in module.named_parameters() if name not in without)


def task(name, rung, data, **choices):
    application = find_application(name)
    return application.torch_task(Setup(name, rung, **choices), application.rungs[rung], [data])


def loaded(name):
    return find(find_dataset(name)).load()


# ---- image


def test_resnet50_has_the_published_size_and_stride():
    from deepbench.applications.tasks.image.resnet50 import network

    model = built(network)

    assert 25_557_032 == size(model)
    assert (2, 1000) == model(torch.empty(2, 3, 224, 224, device="meta")).shape
    first_of_second_stage = model[7].body
    assert [(1, 1), (2, 2), (1, 1)] == [first_of_second_stage[i].stride for i in (0, 3, 6)]


def test_small_pictures_are_enlarged():
    chance = np.random.default_rng(0)
    labels = np.array([0, 9], np.uint8)
    pictures = Pictures(*[chance.integers(0, 256, (2, 28, 28), dtype=np.uint8), labels] * 2)
    run = task("image", "full", pictures, batch=2)

    assert [(2, 2), 25_557_032] == [(run.examples, run.tests), run.parameters]
    answers = run.answer([0, 1])
    assert all(0 <= number < 1000 for number in answers)
    assert 1.0 == run.grade([0, 1], [0, 9])


def test_imagenet_is_trained_on(tmp_path, monkeypatch):
    image = pytest.importorskip("PIL.Image")
    monkeypatch.setenv("DEEPBENCH_IMAGENET", str(tmp_path))
    for part in ("train", "val"):
        for name in ("ant", "bee"):
            (tmp_path / part / name).mkdir(parents=True)
            image.fromarray(np.full((40, 60), 90, np.uint8)).save(tmp_path / part / name / "a.JPEG")
    run = task("image", "full-imagenet", loaded("imagenet"), batch=2, samples=4)

    run.step()

    assert np.isfinite(run.loss())
    assert 0.5 == run.grade([0, 1], [0, 0])
    assert 2 == len(run.answer([0, 1]))


@pytest.mark.parametrize("rung", ["full", "full-imagenet"])
def test_resnet50_has_no_version_in_jax(rung):
    pytest.importorskip("jax")
    application = find_application("image")

    with pytest.raises(Unsupported, match=f"the rung {rung} of image has no version in JAX"):
        application.jax_task(Setup("image", rung, "jax"), application.rungs[rung], [None])


# ---- recommendation


def test_neumf_has_the_published_size_on_movielens_20m():
    from deepbench.applications.tasks.recommendation.torch_version import NeuMF

    for rung in ("full", "full-ml-20m"):
        sizes = find_application("recommendation").rungs[rung].settings
        assert 31_832_577 == size(built(lambda s=sizes: NeuMF(138_493, 26_744, s)))


def test_somebody_who_has_rated_nearly_all_films_is_a_sentence():
    from deepbench.applications.tasks.recommendation.common import examples

    films = np.arange(30, dtype=np.int64)
    with pytest.raises(BadInput, match="a user has rated all films but 0, and a test needs 999 others"):
        examples(Ratings(np.zeros(30, np.int64), films, np.ones(30, np.float32), films.astype(float)), 999)


def test_a_film_competes_with_999_others():
    films = np.array([*range(1500), 3, 8, 3, 4], np.int64)
    users = np.array([*np.arange(1500) % 5, 0, 0, 1, 1], np.int64)
    times = np.arange(len(films), dtype=float)
    run = task("recommendation", "full-ml-20m", Ratings(users, films, times.astype(np.float32), times), batch=8)

    run.step()

    assert np.isfinite(run.loss())
    assert (1504 - 5, 5) == (run.examples, run.tests)
    answers = run.answer(range(5))
    assert [10] * 5 == [len(set(row)) for row in answers]
    assert 0.2 == run.grade(range(5), [[8], [], [], [], []])


# ---- translation


@pytest.mark.parametrize(
    ("rungs", "count"),
    [(("full", "full-wmt"), 160_671_297), (("full-transformer", "full-transformer-wmt"), 210_804_736)],
)
def test_networks_of_translation_have_the_published_sizes(rungs, count):
    from deepbench.applications.tasks.translation.torch_version import MODELS

    for rung in rungs:
        sizes = find_application("translation").rungs[rung].settings
        assert count == size(built(lambda s=sizes: MODELS[s["model"]](s)))


SMALL = {"words": 40, "width": 16, "layers": 3, "heads": 2}


@pytest.fixture(params=["gnmt", "big transformer"])
def translator(request):
    """A network of 2018 with few and large numbers, which drops nothing."""
    from deepbench.applications.tasks.translation.torch_version import MODELS

    torch.manual_seed(0)
    model = MODELS[request.param](SMALL).eval()
    for parameter in model.parameters():
        parameter.data.mul_(4.0)
    return model


def test_words_that_follow_change_nothing(translator):
    """Neither later words of the translation nor what fills up the source."""
    x, y = torch.tensor([[2, 9, 8, 3]]), torch.tensor([[2, 5, 6, 7]])
    wanted = translator(x, y)

    assert (1, 4, 40) == wanted.shape
    changed = translator(x, torch.tensor([[2, 5, 11, 12]]))
    assert torch.allclose(wanted[:, :2], changed[:, :2], atol=1e-4)
    assert not torch.allclose(wanted[:, 2], changed[:, 2], atol=1e-3)
    with_others = translator(torch.tensor([[2, 9, 8, 3, 0, 0], [2, 4, 5, 6, 7, 3]]), y.expand(2, -1))
    assert torch.allclose(wanted, with_others[:1], atol=1e-4)
    assert not torch.allclose(wanted, with_others[1:], atol=1e-3)
    assert not torch.allclose(wanted, translator(torch.tensor([[2, 8, 9, 3]]), y), atol=1e-3)


def test_waves_are_those_of_the_formula():
    from deepbench.applications.tasks.translation.published import waves

    found = waves(5, 8)

    assert np.allclose(np.sin([0, 1, 2, 3, 4]), found[:, 0])
    assert np.allclose(np.cos(3 / 10_000), found[3, 7])
    assert np.allclose(np.cos(3 / 10_000 ** (1 / 3)), found[3, 5])


def test_sentences_of_wmt_are_trained_on(tmp_path, monkeypatch):
    monkeypatch.setenv("DEEPBENCH_WMT", str(tmp_path))
    texts = {
        "train.de": "Das Haus ist 12 m hoch .\nJa !\n" + "zu " * 60 + "\n",
        "train.en": "The house is 12 m high .\nYes !\ntoo long\n",
        "test.de": "Das Haus !\n",
        "test.en": "The house 7 !\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    application = find_application("translation")
    rung = application.rungs["full-wmt"]
    rung = replace(rung, settings={**rung.settings, **SMALL})

    run = application.torch_task(Setup("translation", "full-wmt", batch=2, samples=4), rung, [loaded("wmt")])
    run.step()

    assert np.isfinite(run.loss())
    assert (2, 1) == (run.examples, run.tests)
    assert 1 < run.evaluate() < 1000
    assert 1.0 == run.grade([0], [["the", "house", "7", "!"]])
    assert isinstance(run.answer([0])[0], list)


def test_both_languages_share_a_vocabulary():
    from deepbench.applications.tasks.translation.common import UNKNOWN, examples

    rung = find_application("translation").rungs["full-wmt"]
    found = examples(Divided([("a b c", "b c")], [("a d", "c a")]), rung)

    assert found.source[0, 2] == found.target[0, 1]
    assert UNKNOWN == found.test_source[0, 2]
    assert {"a", "b", "c"} == set(found.words.values())
    with pytest.raises(BadInput, match="no sentences of at most 50 words"):
        examples(Divided([("a " * 51, "b")], [("a", "a")]), rung)


# ---- speech


def test_deep_speech_2_has_the_size_of_may_2018():
    """38,109,568 without the batch normalization between the layers: four times two numbers for each of 800 values."""
    from deepbench.applications.tasks.speech.networks import DeepSpeech2

    for rung in ("full", "full-librispeech"):
        sizes = find_application("speech").rungs[rung].settings
        assert 38_109_568 + 4 * 2 * 800 == size(built(lambda s=sizes: DeepSpeech2(s, 161, 29)))


@pytest.fixture
def listener():
    from deepbench.applications.tasks.speech.networks import DeepSpeech2

    torch.manual_seed(0)
    return DeepSpeech2({"channels": 2, "hidden": 8, "layers": 3}, 161, 29).eval()


def test_results_of_deep_speech_2_do_not_depend_on_longer_sounds(listener):
    chance = torch.Generator().manual_seed(0)
    short, long = torch.rand(1, 61, 161, generator=chance), torch.rand(1, 100, 161, generator=chance)
    counts = [listener.frames(61), listener.frames(100)]

    alone = listener(short, torch.tensor([61]))
    both = torch.cat([torch.cat([short, torch.zeros(1, 39, 161)], 1), long])
    together = listener(both, torch.tensor([61, 100]))

    assert [16, 35] == counts
    assert (1, 16, 29) == alone.shape
    assert (2, 35, 29) == together.shape
    assert torch.allclose(alone[0], together[0, :16], atol=1e-5)
    assert torch.allclose(torch.ones(16), alone[0].exp().sum(1), atol=1e-5)
    assert 1 == listener.frames(31) == listener.frames(5)


def test_results_of_the_small_network_do_not_depend_on_longer_sounds():
    from deepbench.applications.tasks.speech.networks import SpeechNetwork

    torch.manual_seed(0)
    listener = SpeechNetwork({"channels": 2, "hidden": 8, "layers": 2}, 40, 29).eval()
    for norm in (listener.norm, listener.second_norm):
        torch.nn.init.constant_(norm.bias, 0.5)
    for count in (61, 62, 63, 64):
        short, long = torch.rand(1, count, 40), torch.rand(1, 100, 40)
        both = torch.cat([torch.cat([short, torch.zeros(1, 100 - count, 40)], 1), long])

        alone, together = listener(short, torch.tensor([count])), listener(both, torch.tensor([count, 100]))

        assert (1, 16, 29) == alone.shape
        assert torch.allclose(alone[0], together[0, :16], atol=1e-6)


def small_speech(rung, data):
    application = find_application("speech")
    chosen = application.rungs[rung]
    chosen = replace(chosen, settings={**chosen.settings, "channels": 2, "hidden": 8, "layers": 2})
    return application.torch_task(Setup("speech", rung, batch=3, samples=6), chosen, [data])


@pytest.fixture
def sounds():
    """Sounds of 0.1 to 0.9 seconds at 8,000 samples per second."""
    chance = np.random.default_rng(0)
    return [chance.standard_normal(800 * (1 + n)).astype(np.float32) for n in range(9)]


def test_prompts_are_trained_on(sounds, monkeypatch):
    monkeypatch.setattr("deepbench.applications.tasks.speech.divided", lambda data, *_: Divided(data[:7], data[7:]))
    run = small_speech("full", [Prompt(str(n), "ab", sound) for n, sound in enumerate(sounds)])

    run.step()

    assert np.isfinite(run.loss())
    assert (7, 2) == (run.examples, run.tests)
    assert 0.5 == run.grade([0, 1], ["ab", ""])
    assert 2 == len(run.answer([0, 1]))


def test_librispeech_is_trained_on(sounds, monkeypatch):
    """Sounds are read when they are needed, and texts without letters are left out."""
    read = []

    def sound(utterance):
        read.append(utterance.name)
        return np.repeat(sounds[int(utterance.name)], 2)

    monkeypatch.setattr(Utterance, "sound", property(sound))
    texts = ["MISTER QUILTER", "IS", "12", "THE"]
    train, test = ([Utterance(str(n), texts[n], Path()) for n in numbers] for numbers in (range(4), (0, 1)))
    run = small_speech("full-librispeech", Divided(train, test))
    assert [] == read

    run.step()

    assert np.isfinite(run.loss())
    assert ["0", "1", "3"] == sorted(read)
    assert (3, 2) == (run.examples, run.tests)
    assert 0.0 == run.grade([0, 1], ["mister quilter", "is"])
    assert 2 == len(run.answer([0, 1]))


# ---- sentiment


@pytest.mark.parametrize(("rung", "count"), [("full", 7_346_176), ("full-imdb", 7_346_176), ("full-lstm", 3_675_648)])
def test_networks_of_sentiment_have_the_sizes_of_2018(rung, count):
    """They are without the words, the two biases of the result, and the biases of recurrent products."""
    from deepbench.applications.tasks.sentiment.networks import NETWORKS

    sizes = find_application("sentiment").rungs[rung].settings
    without = {"words.weight", "out.bias", *(f"layers.{number}.bias_hh_l0" for number in range(3))}

    assert count == size(built(lambda: NETWORKS[sizes["model"]](sizes, 2)), without)


@pytest.fixture(params=["wide conv", "stacked lstm"])
def reader(request):
    from deepbench.applications.tasks.sentiment.networks import NETWORKS

    torch.manual_seed(0)
    return NETWORKS[request.param]({"words": 20, "width": 8, "channels": 8, "layers": 3}, 2).eval()


def test_what_fills_up_a_text_changes_nothing(reader):
    short, long = torch.tensor([[5, 6, 7]]), torch.tensor([[5, 6, 7, 0, 0, 0], [9, 8, 7, 6, 5, 4], [0] * 6])

    found = reader(long)

    assert torch.allclose(reader(short), found[:1], atol=1e-6)
    assert not torch.allclose(reader(torch.tensor([[7, 6, 5]])), found[:1], atol=1e-4)
    assert found.abs().max() < 100


def test_every_second_layer_of_2018_runs_backwards():
    from deepbench.applications.tasks.sentiment.networks import backwards

    assert [[2, 1, 0, 4, 3], [4, 3, 2, 1, 0], [0, 4, 3, 2, 1]] == backwards(
        torch.tensor([[5, 6, 7, 0, 0], [1, 2, 3, 4, 5], [0, 0, 0, 0, 0]])
    ).tolist()


def test_reviews_are_trained_on():
    application = find_application("sentiment")
    rung = application.rungs["full-imdb"]
    rung = replace(rung, settings={**rung.settings, "width": 8, "channels": 8, "words": 30, "together": 2})
    reviews = [Tweet("good " * 600, 1), Tweet("bad film", 0), Tweet("...", 0)]

    run = application.torch_task(Setup("sentiment", "full-imdb", batch=3), rung, [Divided(reviews, reviews)])
    run.step()

    assert np.isfinite(run.loss())
    assert {0, 1} >= set(run.answer([0, 1, 2]))
    assert 30 * 8 + 8 * 8 * 7 + 2 * 8 + 2 * 16 + 2 == run.parameters
    assert 1.0 == run.grade([0, 1, 2], [1, 0, 0])
