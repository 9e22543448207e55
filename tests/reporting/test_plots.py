"""Figures for papers: what they draw, what they mark, and what is said where nothing can be drawn."""

import sys
import xml.etree.ElementTree as ET

import pytest

import deepbench
from deepbench.core.errors import BadInput
from tests.help import samples
from tests.help.command import run_here

TEXT = "gemm m={} n=64 k=64 forward f32 {} threads=1"
FOREIGN = "$x^{2$ <b>MKL</b> \\frac"


@pytest.fixture
def need_matplotlib():
    pytest.importorskip("matplotlib", reason="figures need Matplotlib: pip install matplotlib")


def file_of(path, factor=1.0, disturbed=(), title=None, rounds=6):
    """Two libraries on problems of three sizes; those at `disturbed` were disturbed."""
    lines = []
    for i, m in enumerate((64, 512, 1024)):
        for backend in ("mkl", "onednn"):
            for number in range(1, rounds + 1):
                make = samples.disturbed if i in disturbed else samples.measured
                record = make(backend, 1e-5 * m * factor * (1 + 0.002 * number), number, text=TEXT.format(m, backend))
                lines.append(record | ({"library_title": title} if title and backend == "mkl" else {}))
    return samples.write(path, [*lines, {"limit": samples.peak(1e12)}])


def texts_of(figure):
    from matplotlib.text import Text

    return [text.get_text() for text in figure.findobj(Text)]


@pytest.mark.usefixtures("need_matplotlib")
@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".pdf", b"%PDF"), (".svg", b"<?xml")])
def test_the_name_of_the_file_says_its_form(tmp_path, suffix, start):
    results = deepbench.load(file_of(tmp_path / "a.jsonl"))
    results.plot(tmp_path / f"a{suffix}", "rates")
    first = (tmp_path / f"a{suffix}").read_bytes()
    results.plot(tmp_path / f"b{suffix}", "rates")

    assert first.startswith(start)
    assert first == (tmp_path / f"b{suffix}").read_bytes()


@pytest.mark.usefixtures("need_matplotlib")
def test_bars_have_the_rates_of_the_table_and_their_intervals(tmp_path):
    results = deepbench.load(file_of(tmp_path / "a.jsonl"))
    (axes,) = results.plot(kind="rates").axes

    assert sorted(s.flop_per_s / 1e6 for s in results) == pytest.approx(sorted(p.get_width() for p in axes.patches))
    assert "gemm: MFLOP/s" == axes.get_xlabel()
    estimate, line = results.summaries[0].estimate, axes.lines[0].get_xdata()
    flop = results.summaries[0].record["flop"] / 1e6
    assert [flop / estimate.high_s, flop / estimate.low_s] == pytest.approx(list(line))


@pytest.mark.usefixtures("need_matplotlib")
def test_disturbed_rates_are_hollow_and_lower_bounds(tmp_path):
    results = deepbench.load(file_of(tmp_path / "a.jsonl", disturbed=[1]))
    figure = results.plot(kind="rates")
    hollow = [patch.get_facecolor()[3] == 0 for patch in figure.axes[0].patches]

    assert [False, False, True, True, False, False] == hollow
    assert 2 == sum(text.startswith("≥ ") for text in texts_of(figure))
    assert 1 == sum("hollow: disturbed" in text for text in texts_of(figure))
    roofline = results.plot(kind="roofline")
    faces = [len(c.get_facecolors()) for c in roofline.axes[0].collections]
    assert [1, 0] == faces
    assert 1 == sum("hollow: disturbed" in text for text in texts_of(roofline))
    undisturbed = deepbench.load(file_of(tmp_path / "b.jsonl"))
    assert not any("hollow" in text for text in texts_of(undisturbed.plot(kind="rates")))


@pytest.mark.usefixtures("need_matplotlib")
def test_a_roofline_names_its_limits(tmp_path):
    figure = deepbench.load(file_of(tmp_path / "a.jsonl")).plot()

    assert "f32: 1.00 TFLOP/s" in texts_of(figure)
    assert "GFLOP/s" == figure.axes[0].get_ylabel()


@pytest.mark.usefixtures("need_matplotlib")
def test_ratios_leave_disturbed_times_out_and_say_so(tmp_path):
    first = deepbench.load(file_of(tmp_path / "a.jsonl", disturbed=[1]))
    figure = first.plot(tmp_path / "r.svg", "ratios", file_of(tmp_path / "b.jsonl", 1.4, disturbed=[1]))
    points = [x for c in figure.axes[0].collections for x, _ in c.get_offsets()]

    assert [1 / 1.4] * 4 == pytest.approx(points, rel=1e-3)
    assert "left out, as other programs disturbed them: 2 cases" in texts_of(figure)
    assert {"slower: 4", "1.5× slower", "as fast"} <= set(texts_of(figure))


@pytest.mark.usefixtures("need_matplotlib")
@pytest.mark.parametrize("kind", ["rates", "ratios"])
def test_texts_of_others_are_drawn_as_they_are(tmp_path, kind):
    results = deepbench.load(file_of(tmp_path / "a.jsonl", title=FOREIGN))
    other = file_of(tmp_path / "b.jsonl", 1.4) if kind == "ratios" else None
    figure = results.plot(tmp_path / "a.svg", kind, other, title=FOREIGN)

    assert FOREIGN in texts_of(figure)
    ET.parse(tmp_path / "a.svg")
    assert "<b>" not in (tmp_path / "a.svg").read_text()


@pytest.mark.usefixtures("need_matplotlib")
def test_more_problems_than_can_be_read_are_left_out_and_counted(tmp_path):
    lines = [samples.measured(text=TEXT.format(16 * i, "mkl")) for i in range(1, 46)]
    results = deepbench.load(samples.write(tmp_path / "a.jsonl", lines))
    figure = results.plot(kind="rates")

    assert 40 == len(figure.axes[0].patches)
    assert "40 of 45 problems" in texts_of(figure)


def test_without_matplotlib_one_sentence_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    results = deepbench.load(file_of(tmp_path / "a.jsonl"))

    with pytest.raises(BadInput, match=r"^figures need Matplotlib: pip install matplotlib$"):
        results.plot(tmp_path / "a.svg")
    assert not (tmp_path / "a.svg").exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"kind": "pie"}, "a figure is roofline, rates or ratios, found 'pie'"),
        ({"kind": "ratios"}, "ratios need a second file"),
        ({"kind": "rates", "other": "b.jsonl"}, "rates is drawn of one file, not of two"),
        ({"output": "a.gif"}, r"a name that ends in .svg, .pdf or .png, found 'a.gif'"),
        ({"width": float("nan")}, "the width must be from 2 to 40 inches, found nan"),
        ({"op": "gem"}, "gemm"),
        ({"precision": "float32"}, "f32"),
        ({"op": "conv"}, "has no case of conv that has a time and computes"),
        ({"kind": "rates", "precision": "bf16"}, "has no case of bf16 that has a time"),
    ],
)
def test_what_cannot_be_drawn_is_one_sentence(tmp_path, options, sentence):
    results = deepbench.load(file_of(tmp_path / "a.jsonl", rounds=1))
    with pytest.raises(BadInput, match=sentence) as caught:
        results.plot(**options)
    assert "\n" not in str(caught.value)


@pytest.mark.programs  # Matplotlib may ask for the fonts
@pytest.mark.usefixtures("need_matplotlib")
def test_the_command_writes_the_figure_and_no_result_file_is_replaced(tmp_path):
    path = file_of(tmp_path / "a.jsonl").rename(tmp_path / "results.svg")
    done = run_here(["plot", str(path), "--kind", "rates", "-o", str(tmp_path / "rates.svg"), "--width", "3.3"])
    before = path.read_bytes()
    refused = run_here(["plot", str(path), "-o", str(path)])

    assert (0, f"wrote {tmp_path / 'rates.svg'}\n") == (done.code, done.output)
    assert 64 == refused.code
    assert before == path.read_bytes()
