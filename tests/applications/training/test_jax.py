"""Applications in JAX compute what they compute in PyTorch, and go on from checkpoints."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jax")
torch = pytest.importorskip("torch")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

from deepbench.applications.judge.trained import runs_of  # noqa: E402
from deepbench.applications.training import checkpoint, worker  # noqa: E402
from deepbench.applications.training.application import Rung, Setup, find_application  # noqa: E402
from deepbench.applications.training.jax_network import JaxNetwork  # noqa: E402
from deepbench.applications.training.jax_optimizers import SGD, Adam, shortened  # noqa: E402
from deepbench.applications.training.jax_task import find_device  # noqa: E402
from deepbench.core.errors import Unavailable, Unsupported  # noqa: E402
from deepbench.results.file import read_results  # noqa: E402
from tests.applications import small_data  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:enable_nested_tensor:UserWarning"),
    pytest.mark.programs,
    pytest.mark.torch,
]

SIZES = {
    "image": {"widths": (4, 8), "blocks": 1, "rate": 0.1},
    "recommendation": {"factors": 4, "layers": (16, 8, 4), "rate": 5e-3},
    "translation": {"model": "transformer", "words": 40, "length": 9, "width": 64, "layers": 1, "rate": 2e-3},
}
BATCH = 16


def rung_of(name):
    return Rung("small", BATCH, BATCH * 8, BATCH * 4, 0.5, SIZES[name])


DATA = {"image": small_data.pictures, "recommendation": small_data.ratings, "translation": small_data.verses}
NAMES = list(DATA)


def tasks_of(name, **setup):
    """The same run in both frameworks, from the initial values of PyTorch."""
    application, data = find_application(name), [DATA[name]()]
    ours = application.jax_task(Setup(name, "small", "jax", **setup), rung_of(name), data)
    theirs = application.torch_task(Setup(name, "small", **setup), rung_of(name), data)
    begin, wanted = ours.state(), theirs.state()
    ours.restore({key: wanted.get(key, value) for key, value in begin.items()}, 0)
    return ours, theirs


@pytest.fixture
def without_chance(monkeypatch):
    """Every picture is mirrored, every film that nobody has rated is the first one, and nothing is dropped."""
    monkeypatch.setattr(torch, "rand", lambda _: torch.tensor(0.0))
    monkeypatch.setattr(torch, "randint", lambda count, shape, device: torch.zeros(shape, dtype=torch.int64))
    monkeypatch.setattr(jax.random, "bernoulli", lambda key: jnp.array(True))
    monkeypatch.setattr(jax.random, "randint", lambda key, shape, low, high: jnp.zeros(shape, int))
    monkeypatch.setattr(JaxNetwork, "dropout", lambda self, x, share: x)
    monkeypatch.setattr("deepbench.applications.tasks.translation.torch_version.DROPOUT", 0.0)


@pytest.mark.parametrize("name", NAMES)
def test_both_frameworks_have_the_same_parameters(name):
    ours, theirs = tasks_of(name)
    shapes = [
        {key: value.shape for key, value in task.state().items() if key.startswith("model/")} for task in (ours, theirs)
    ]
    counters = {key for key in shapes[1] if key.endswith("num_batches_tracked")}

    assert shapes[0] == {key: shape for key, shape in shapes[1].items() if key not in counters}
    assert ours.parameters == theirs.parameters
    assert ours.tests == theirs.tests


@pytest.mark.parametrize("name", NAMES)
def test_initial_values_have_the_same_distribution(name):
    """Of every parameter with many numbers: deviation and largest value."""
    application, data = find_application(name), [DATA[name]()]
    ours = application.jax_task(Setup(name, "small", "jax"), rung_of(name), data).state()
    theirs = application.torch_task(Setup(name, "small"), rung_of(name), data).state()
    large = [key for key, value in ours.items() if key.startswith("model/") and value.size > 100]

    assert len(large) > 2
    for key in large:
        assert ours[key].std() == pytest.approx(theirs[key].std(), rel=0.3), key
        assert abs(ours[key]).max() == pytest.approx(abs(theirs[key]).max(), rel=0.5), key
    for key, value in ours.items():
        if key.startswith("model/") and value.size > 1 and value.std() == 0:
            assert np.array_equal(value, theirs[key]), key


@pytest.mark.parametrize("name", NAMES)
def test_the_same_values_give_the_same_quality_and_answers(name):
    ours, theirs = tasks_of(name)

    assert ours.evaluate() == pytest.approx(theirs.evaluate(), rel=1e-5)
    for tests in (range(3), range(ours.tests)):
        assert theirs.answer(tests) == ours.answer(tests)
        assert theirs.grade(tests, theirs.answer(tests)) == ours.grade(tests, ours.answer(tests))


@pytest.mark.parametrize("name", NAMES)
def test_the_same_steps_give_the_same_losses_and_parameters(name, without_chance):
    ours, theirs = tasks_of(name)
    begin = ours.state()
    for _ in range(4):
        ours.step()
        theirs.step()
        assert ours.loss() == pytest.approx(theirs.loss(), rel=1e-4)

    wanted = theirs.state()
    for key, value in ours.state().items():
        if key.startswith("model/") and not np.array_equal(value, begin[key]):
            change = abs(wanted[key] - begin[key]).mean()
            # Where a gradient is 0 but for rounding, Adam makes a step of its size in either direction.
            exact = name == "image" or not key.endswith("in_proj_bias")
            assert abs(value - wanted[key]).mean() < (0.01 if exact else 0.5) * change, key
    assert ours.evaluate() == pytest.approx(theirs.evaluate(), rel=1e-3)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (SGD(0.1, 0.9, 5e-2), lambda p: torch.optim.SGD(p, 0.1, 0.9, weight_decay=5e-2, nesterov=True)),
        (Adam(0.1), lambda p: torch.optim.Adam(p, 0.1)),
        (Adam(0.1, weight_decay=0.1), lambda p: torch.optim.Adam(p, 0.1, weight_decay=0.1)),
        (
            Adam(0.1, (0.9, 0.98), 0.1, is_decoupled=True),
            lambda p: torch.optim.AdamW(p, 0.1, (0.9, 0.98), weight_decay=0.1),
        ),
    ],
    ids=["SGD", "Adam", "Adam with decay", "AdamW"],
)
@pytest.mark.parametrize("longest", [0.5, 100.0])
def test_an_optimizer_is_that_of_pytorch(ours, theirs, longest):
    chance = np.random.default_rng(0)
    shapes = {"a": (3, 4), "b": (5,)}
    begin = {name: chance.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    parameters = {name: jnp.array(value) for name, value in begin.items()}
    modules = {name: torch.nn.Parameter(torch.tensor(value)) for name, value in begin.items()}
    optimizer, kept = theirs(modules.values()), ours.begin(parameters)
    for steps in range(1, 6):
        gradients = {name: chance.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
        for name, module in modules.items():
            module.grad = torch.tensor(gradients[name])
        torch.nn.utils.clip_grad_norm_(modules.values(), longest)
        optimizer.step()
        clipped = shortened({name: jnp.array(g) for name, g in gradients.items()}, longest)
        parameters, kept = ours.update(parameters, clipped, kept, np.float32(ours.rate), np.int32(steps))

    for name, module in modules.items():
        np.testing.assert_allclose(parameters[name], module.detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("framework", ["torch", "jax"])
@pytest.mark.parametrize(("name", "precision"), [*((name, "f32") for name in NAMES), ("image", "bf16")])
def test_a_run_goes_on_from_its_checkpoint_as_if_it_had_not_stopped(name, precision, framework, tmp_path):
    application, data = find_application(name), [DATA[name]()]
    setup = Setup(name, "small", framework, precision=precision)
    first, second = (getattr(application, f"{framework}_task")(setup, rung_of(name), data) for _ in range(2))
    for _ in range(3):
        first.step()
    quality = first.evaluate()
    checkpoint.write(tmp_path / "0.npz", first.state())
    first.step()
    first.step()
    loss, later = first.loss(), first.evaluate()
    second.restore(checkpoint.read(tmp_path / "0.npz"), 3 * BATCH)

    assert quality == second.evaluate()
    second.step()
    second.step()
    assert (loss, later) == (second.loss(), second.evaluate())
    assert np.isfinite(loss)


def test_products_in_16_bits_change_the_loss_a_little():
    losses = []
    for precision in ("f32", "bf16"):
        task, _ = tasks_of("recommendation", precision=precision)
        task.step()
        losses.append(task.loss())

    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.01)


def test_what_is_not_there_is_a_sentence():
    data = [small_data.verses()]
    with pytest.raises(Unsupported, match="no version in JAX; choose torch, or the rung mini"):
        find_application("translation").jax_task(
            Setup("translation", "small", "jax"), Rung("", 1, 1, 1, 0, {"model": "lstm"}), data
        )
    with pytest.raises(Unsupported, match="choose f32 or bf16"):
        tasks_of("image", precision="f16")
    with pytest.raises(Unavailable, match="JAX finds no device cpu:99; choose cpu"):
        find_device("cpu:99")


def test_a_run_in_jax_leaves_its_versions_and_the_time_of_compilation(deepbench, tmp_path):
    folder = tmp_path / "plugins" / "applications"
    folder.mkdir(parents=True)
    shutil.copy(Path(__file__).parent / "plugin_jax.py", folder / "curve.py")
    words = ("train", "curve", "--framework", "jax", "--seeds", "2", "--threads", "1", "-o", "a.jsonl")
    done = deepbench(*words, DEEPBENCH_PLUGINS=str(folder.parent))
    assert 0 == done.returncode, done.stderr

    file = read_results(tmp_path / "a.jsonl")
    first, second = runs_of(file)
    assert ["ok", "ok"] == [first.status, second.status], first.end
    assert {"jax", "jaxlib"} == set(first.starts[0]["versions"])
    assert jax.__version__ == file.header["libraries"]["jax"]["library"]["version"]
    assert [80, 160, 240, 320] == [p.samples for p in first.points]
    assert first.points[-1].quality < first.points[0].quality
    assert [p.quality for p in first.points] != [p.quality for p in second.points]
    assert first.compile_s > 10 * sum(p.train_s for p in first.points) > 0


def test_a_missing_jax_is_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    monkeypatch.setenv("PJRT_NPROC", "1")  # put back at the end
    found = worker.open_framework("jax")["unavailable"]

    assert found["reason"].startswith("JAX not found")
    assert "pip install jax" == found["remedy"]
