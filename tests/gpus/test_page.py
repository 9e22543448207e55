"""The page "Which GPU for my model?": its data, and what is refused. tests/reporting has it in a browser."""

import json

import pytest

import deepbench
from deepbench.core.errors import BadInput
from deepbench.gpus import ranking
from deepbench.gpus.reporting import page
from deepbench.gpus.reporting.ranking import table
from deepbench.gpus.serving.steps import FORMATS

MODEL, GPUS = "llm/llama32_1b", ["h100_sxm", "l40s"]


@pytest.fixture
def few(monkeypatch):
    """Few steps, which take less time."""
    monkeypatch.setattr(page, "PRECISIONS", ("bf16", "nvfp4"))
    monkeypatch.setattr(page, "BATCHES", (1, 64))
    monkeypatch.setattr(page, "CONTEXTS", (1024,))


def asked(batch, phase="decode", precision="bf16"):
    return ranking.AskedStep(MODEL, phase, {"batch": str(batch), "context": "1024"}, FORMATS[precision])


def test_many_steps_have_the_times_that_each_has_alone(gpus):
    steps = [asked(batch, phase) for phase in ("decode", "prefill") for batch in range(1, 28)]
    together = ranking.rank_all(steps, GPUS)
    alone = [ranking.rank(s.suite, GPUS, s.phase, s.settings, s.format) for s in (steps[0], steps[-1])]

    assert len(steps) == len(together)
    assert alone == [together[0], together[-1]]


def test_a_page_has_the_numbers_of_the_ranking_and_no_choice_without_times(gpus, few):
    (model,) = page.content([MODEL], GPUS)["models"]
    expected = ranking.rank(MODEL, GPUS, "decode", {"batch": "64", "context": "1024"}, FORMATS["bf16"])
    (step,) = [s for s in model["steps"] if s["phase"] == "decode" and s["batch"] == 64]
    rows = {name: dict(zip(page.ROW, row, strict=True)) for name, row in zip(GPUS, step["gpus"], strict=True)}

    assert {"bf16"} == {s["precision"] for s in model["steps"]}  # the tables have nothing in NVFP4
    assert {"decode", "prefill"} == {s["phase"] for s in model["steps"]}
    for row in table(expected).rows:
        found = rows[str(row["gpu"])]
        for name in ("devices", "time_s", "low_s", "high_s", "measured", "memory"):
            assert pytest.approx(row[name], rel=1e-5) == found[name]
        assert pytest.approx(row["units_per_s"], rel=1e-5) == found["units"] / found["time_s"]


def test_a_model_that_no_gpu_holds_has_a_note_in_place_of_a_rank(gpus):
    step = ranking.AskedStep("llm/llama31_70b", "decode", {"batch": "256", "context": "16384"}, FORMATS["bf16"])
    (found,) = ranking.rank_all([step], GPUS)
    texts = page._Texts()
    rows = [dict(zip(page.ROW, page._row(c, texts), strict=True)) for c in found.candidates]

    assert [False, False] == [row["fits"] for row in rows]
    assert ["does not fit into the memory"] * 2 == [texts.known[row["note"]] for row in rows]


def test_report_writes_the_page_with_prices(gpus, few, tmp_path):
    shown = []
    path = tmp_path / "gpus.html"
    assert [] == deepbench.report([MODEL, *GPUS], path, title="A <b>", prices={"L40S": 0.8}, progress=shown.append)
    html = path.read_text()
    data = json.loads(html.partition('id="content">')[2].partition("</script>")[0])

    assert GPUS == [activity.text for activity in shown]
    assert [None, 0.8] == [gpu["price"] for gpu in data["gpus"]]
    assert "<h1>A &lt;b&gt;</h1>" in html


@pytest.mark.parametrize(
    ("sources", "sentence"),
    [
        (["h100_sxm"], "name a model first: deepbench report llm/llama31_70b h100_sxm -o gpus.html"),
        ([MODEL], "name GPUs to compare for llm/llama32_1b, such as h100_sxm l40s"),
        ([MODEL, "h100_sxm", "mine.jsonl"], "has no result files, found mine.jsonl; write two pages"),
        (["h100_sxm", "llm/lama"], "'llm/lama' is neither a model nor a GPU with published kernel times"),
        ([MODEL, "h101"], "'h101' is no GPU of the published tables; there are h100_sxm, l40s"),
        ([MODEL, "h100_sxm", "H100_SXM"], "a GPU is named twice: h100_sxm"),
        ([MODEL, MODEL, "h100_sxm"], "a model is named twice: llm/llama32_1b"),
        ([f"{MODEL}:batch=2", "h100_sxm"], "name the model alone"),
        (["mlperf/bert_large", "h100_sxm"], "has no phase decode or prefill"),
    ],
)
def test_what_a_page_cannot_have_is_said_in_a_sentence(gpus, tmp_path, sources, sentence):
    with pytest.raises(BadInput, match=sentence.replace("(", "[(]")):
        deepbench.report(sources, tmp_path / "gpus.html")


@pytest.mark.parametrize("words", [{"application": "speech"}, {"against": ["V100"]}, {"skip_damaged": True}])
def test_options_of_files_are_refused(gpus, tmp_path, words):
    with pytest.raises(BadInput, match="are for result files, not for models and GPUs"):
        deepbench.report([MODEL, "h100_sxm"], tmp_path / "gpus.html", **words)


def test_a_price_of_another_gpu_is_refused(gpus, tmp_path):
    with pytest.raises(BadInput, match="--price names l40s"):
        deepbench.report([MODEL, "h100_sxm"], tmp_path / "gpus.html", prices={"l40s": 1.0})
