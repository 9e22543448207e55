"""What readers take from charts, in a real browser: figures, numbers, captions, citations and legends.

Wants Chromium, and playwright and axe from PyPI: make test-browser.
"""

import csv
import io
import re
import struct
import zlib
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from deepbench.core.version import VERSION
from deepbench.reporting import site
from deepbench.reporting.page import content, render
from deepbench.results.file import ResultFile
from tests.help import samples
from tests.reporting.conftest import CHROMIUM, ready, violations

pytestmark = pytest.mark.browser
sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make test-browser")
pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed: make test-browser")
if CHROMIUM is None:
    pytest.skip("no browser is installed: apt install chromium", allow_module_level=True)

HOSTILE = "</text><script>alert(1)</script><img src=x onerror=alert(1)>\"quoted\" 'q' & <b>bold</b>"
FORMULA = "=cmd|' /C calc'!A0"
CHARTS = ("roofline", "family", "fastest", "precision", "sparse", "framework", "applications", "latency")
PRODUCT = "gemm m={m} n={n} k=64 a_t=0 b_t=0 forward {precision} {library} threads=1"
SVG = "{http://www.w3.org/2000/svg}"


def source(row):
    place = {"suite": "deepbench/server", "row": row, "application": "Speech", "label": None, "note": None}
    return {**place, "needed": True}


def records():
    """Records for every chart of a page. One time is disturbed, and one precision has a part of the kernels."""
    made = []
    for n in (1, 2, 4, 8):
        for library, factor in (("mkl", 1.0), ("openblas", 1.3), ("onednn", 0.9), ("torch", 2.0)):
            text = PRODUCT.format(m=64, n=n, precision="f32", library=library)
            of_row = [source(n)] if library == "mkl" else []
            for number in (1, 2, 3):
                seconds = 1e-6 * (4 + n) * factor * (1 + 0.02 * number)
                made.append({**samples.measured(text=text, seconds=seconds, round_number=number), "sources": of_row})
    low = PRODUCT.format(m=64, n=8, precision="i8u8", library="mkl")
    made.append({**samples.measured(text=low, seconds=3e-6), "sources": [source(8)]})
    made.append(samples.disturbed(text=PRODUCT.format(m=64, n=16, precision="f32", library="mkl"), seconds=3e-5))
    for n in (1, 2):
        text = f"sparse_gemm m=64 n={n} k=64 sparsity=95 forward f32 mkl threads=1"
        made.append(samples.measured(text=text, seconds=2e-6 * n))
    for size in (1000, 100_000):
        for library in ("openmpi", "mpich"):
            text = f"all_reduce n={size} ranks=2 forward f32 {library} threads=1"
            made.append(samples.measured(text=text, seconds=1e-9 * size * len(library)))
    return made


def write_page(path, made, cpu="A CPU, 2 cores", name="mine.jsonl"):
    header = samples.header()
    header["machine"]["cpu"] = cpu
    header["libraries"] = {b: {"library": {"name": b, "version": "1.0"}} for b in ("mkl", "openblas")}
    lines = [{"limit": samples.peak(1e12)}, *made]
    file = ResultFile(Path(name), header, [line for line in lines if "case" in line])
    path.write_bytes(render.page({"files": [content.of_file(file, name)], "pairs": []}, "Figures"))
    return path


@pytest.fixture(scope="session")
def figures(tmp_path_factory):
    return write_page(tmp_path_factory.mktemp("figures") / "page.html", records())


def draw_all(page):
    page.evaluate("document.querySelectorAll('.plot').forEach(draw)")
    sync_api.expect(page.locator("#charts .plot:not([data-followed])")).to_have_count(0)


def open_tools(page, chart):
    figure = page.locator(f"#{chart}-0")
    figure.locator(".figure-tools > summary").click()
    return figure


def saved(page, figure, button="Save figure"):
    with page.expect_download() as download:
        figure.get_by_role("button", name=button).click()
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


def words_of(root):
    return [t.text or "".join(t.itertext()) for t in root.iter(f"{SVG}text")]


def squeezed(text):
    """Without the spaces at which lines are wrapped."""
    return re.sub(r"\s+", "", text)


def test_the_page_has_every_chart(visit, figures):
    page = visit(figures)

    assert {f"{chart}-0" for chart in CHARTS} <= set(
        page.evaluate("[...document.querySelectorAll('#charts figure')].map(f => f.id)")
    )


def test_every_chart_is_saved_as_svg_with_title_axes_and_caption(visit, figures):
    page = visit(figures)
    draw_all(page)
    for chart in CHARTS:
        figure = open_tools(page, chart)
        name, svg = saved(page, figure)
        root = ElementTree.fromstring(svg)

        assert re.fullmatch(r"a-cpu-2-cores-[a-z0-9-]+-2026-11-21\.svg", name)
        assert f"{SVG}svg" == root.tag
        assert "7in" == root.get("width")
        assert not [node for node in root.iter() if node.tag.endswith("}script") or node.tag.endswith("}foreignObject")]
        caption = figure.get_by_label("Caption").input_value()
        first, *others = caption.split("\n")
        assert caption == root.findtext(f"{SVG}desc")
        assert first == root.findtext(f"{SVG}title")
        assert squeezed(first) in squeezed("".join(words_of(root)))
        assert f"Drawn by deepbench {VERSION}." == others[-1]
        assert "A CPU, 2 cores; measured on 2026-11-21, default mode." in others
        # Of the libraries with a version, those that are drawn.
        drawn = page.evaluate(
            f"document.querySelector('#{chart}-0 .plot').data.flatMap(t => t.meta?.columns?.library ?? [])"
        )
        versions = [f"{name} 1.0" for name in ("MKL", "OpenBLAS") if not drawn or name in drawn]
        assert [f"Libraries: {', '.join(versions)}."] * bool(versions) == [
            x for x in others if x.startswith("Libraries: ")
        ]
        titles = page.evaluate(
            f"(({{ xaxis, yaxis }}) => [xaxis.title.text, yaxis.title.text])"
            f"(document.querySelector('#{chart}-0 .plot').layout)"
        )
        for title in filter(None, titles):
            assert title in words_of(root)
        # The legend names what is drawn.
        for trace in page.evaluate(f"document.querySelector('#{chart}-0 .plot').data.map(t => t.name)"):
            assert any(text == trace or text.endswith("…") for text in words_of(root)), trace


def test_every_chart_is_saved_as_png(visit, figures):
    page = visit(figures)
    draw_all(page)
    for chart in CHARTS:
        figure = open_tools(page, chart)
        figure.locator("label:has-text('Format') > select").select_option("PNG")
        name, png = saved(page, figure)

        assert name.endswith("-2026-11-21.png")
        assert png.startswith(b"\x89PNG\r\n\x1a\n")
        width, height = struct.unpack(">II", png[16:24])
        assert 2100 == width
        assert height > 500
        # 300 pixels per inch, in a chunk whose checksum is that of zlib.
        assert b"pHYs" == png[37:41]
        assert (11811, 11811, 1) == struct.unpack(">IIB", png[41:50])
        assert zlib.crc32(png[37:50]) == struct.unpack(">I", png[50:54])[0]


@pytest.mark.parametrize(("width", "least_font"), [("one column, 3.3 in", 10.6), ("two columns, 7 in", 12)])
def test_fonts_fit_the_width_of_a_paper(visit, figures, width, least_font):
    page = visit(figures)
    draw_all(page)
    figure = open_tools(page, "family")
    figure.locator("label:has-text('Width') > select").select_option(width)
    _, svg = saved(page, figure)
    root = ElementTree.fromstring(svg)

    inches = float(root.get("width").removesuffix("in"))
    left, top, across, _ = map(float, root.get("viewBox").split())
    assert (0, 0) == (left, top)
    assert across == pytest.approx(96 * inches)  # so that a unit is a pixel of CSS, and 4/3 of them are a point
    sizes = [float(s) for s in re.findall(r"font-size: ?([0-9.]+)px", svg.decode())]
    assert sizes
    assert min(sizes) >= least_font


def test_a_figure_has_the_width_in_pixels_that_was_asked_for(visit, figures):
    page = visit(figures)
    draw_all(page)
    figure = open_tools(page, "family")
    figure.locator("label:has-text('Width') > select").select_option("in pixels")
    figure.get_by_label("Pixels", exact=True).fill("500")
    _, svg = saved(page, figure)
    figure.locator("label:has-text('Format') > select").select_option("PNG")
    _, png = saved(page, figure)

    assert "500" == ElementTree.fromstring(svg).get("width")
    assert 500 == struct.unpack(">I", png[16:20])[0]


def test_figures_are_light_in_a_dark_theme(visit, figures):
    exported = []
    for scheme in ("light", "dark"):
        page = visit(figures, scheme=scheme)
        draw_all(page)
        _, svg = saved(page, open_tools(page, "roofline"))
        exported.append(re.findall(r"#[0-9a-f]{6}|rgba?\([^)]*\)", svg.decode().lower()))
    light, dark = exported

    assert set(light) == set(dark)
    assert "#ffffff" in dark
    assert not {"#0d1117", "#e6edf3", "rgb(13, 17, 23)", "rgb(230, 237, 243)"} & set(dark)


def drawn_points(page, chart):
    """Series, x and y of all visible points, as Plotly has them."""
    return page.evaluate(
        f"""document.querySelector('#{chart}-0 .plot').data
        .filter(t => t.visible !== 'legendonly')
        .flatMap(t => [...t.x].map((x, i) => [t.name, String(x), String(t.y[i])]))"""
    )


def test_the_data_of_every_chart_are_what_is_drawn(visit, figures):
    page = visit(figures)
    draw_all(page)
    for chart in CHARTS:
        figure = open_tools(page, chart)
        name, data = saved(page, figure, "Save data (CSV)")
        header, *lines = csv.reader(io.StringIO(data.decode()))

        assert re.fullmatch(r"[a-z0-9-]+\.csv", name)
        points = drawn_points(page, chart)
        ends = [i for i, title in enumerate(header) if title.startswith(("low end of", "high end of"))]
        at = (min(ends) if ends else len(header)) - 2
        assert points == [[line[0], line[at], line[at + 1]] for line in lines]
        assert "series" == header[0]
        units = {"roofline": "rate (GFLOP/s)", "family": "rate (GFLOP/s)", "latency": "time (µs)"}
        units |= {"precision": "time over time in f32 (ratio)"}
        assert chart not in units or units[chart] == header[at + 1]
        if chart == "roofline":
            assert "arithmetic intensity (FLOP/byte)" == header[at]
        if chart == "family":
            assert "N" == header[at]
            for line in lines:
                low, high = (line[i] for i in ends)
                assert not low or float(low) <= float(line[at + 1]) <= float(high)
            assert any(line[ends[0]] for line in lines)
            assert ["yes"] == [line[header.index("disturbed")] for line in lines if line[at] == "16"]


def test_a_series_that_is_hidden_is_neither_drawn_nor_saved(visit, figures):
    page = visit(figures)
    draw_all(page)
    figure = page.locator("#family-0")
    button = figure.get_by_role("button", name="OpenBLAS f32")
    assert "true" == button.get_attribute("aria-pressed")
    button.click()
    sync_api.expect(button).to_have_attribute("aria-pressed", "false")
    open_tools(page, "family")
    _, data = saved(page, figure, "Save data (CSV)")
    _, svg = saved(page, figure)

    assert "OpenBLAS f32" not in data.decode()
    assert "MKL f32" in data.decode()
    assert "OpenBLAS f32" not in words_of(ElementTree.fromstring(svg))
    button.click()
    sync_api.expect(button).to_have_attribute("aria-pressed", "true")


def test_rate_against_n_of_two_libraries_is_three_clicks_away(visit, figures):
    page = visit(figures)
    page.click("#sections a:has-text('Rate by problem size')")  # one; opening a list and choosing from it are two
    figure = page.locator("#family-0")
    figure.locator("label:has-text('Libraries') > select").select_option("MKL and oneDNN")
    sync_api.expect(figure.locator(".legend button")).to_have_text(["MKL f32", "oneDNN f32"])
    plot = "document.querySelector('#family-0 .plot')"

    assert "N" == page.evaluate(f"{plot}.layout.xaxis.title.text")
    assert "rate (GFLOP/s)" == page.evaluate(f"{plot}.layout.yaxis.title.text")
    open_tools(page, "family")
    name, svg = saved(page, figure)
    assert "a-cpu-2-cores-rate-by-problem-size-2026-11-21.svg" == name
    title = ElementTree.fromstring(svg).findtext(f"{SVG}title")
    assert title.startswith("Rate by problem size: gemm 64 × N × 64 NN, MKL and oneDNN, f32 – ")
    assert "MKL and oneDNN" in title


def test_a_caption_is_about_the_figure(visit, figures):
    page = visit(figures)
    draw_all(page)
    figure = open_tools(page, "family")
    figure.locator("label:has-text('Libraries') > select").select_option(label="OpenBLAS")
    caption = figure.get_by_label("Caption")
    sync_api.expect(caption).to_have_value(re.compile("OpenBLAS, f32 – "))
    text = caption.input_value()

    assert "you choose" not in text
    assert "Precision: f32; threads: 1." in text.split("\n")
    assert "Libraries: OpenBLAS 1.0." in text.split("\n")


def test_at_first_a_family_has_the_three_libraries_with_the_highest_rates_in_one_precision(visit, figures):
    page = visit(figures)
    draw_all(page)
    legend = page.locator("#family-0 .legend button")

    sync_api.expect(legend).to_have_text(["MKL f32", "oneDNN f32", "OpenBLAS f32"])
    # Five sizes of one, four of the others.
    modes = page.evaluate("document.querySelector('#family-0 .plot').data.map(t => t.mode)")
    assert ["lines+markers"] * 3 == modes
    assert "not joined" not in page.inner_text("#family-0 figcaption")


def test_points_of_two_sizes_are_not_joined(visit, tmp_path):
    made = [samples.measured(text=PRODUCT.format(m=8, n=n, precision="f32", library="mkl")) for n in (1, 1500)]
    made += [samples.measured(text=PRODUCT.format(m=64, n=n, precision="f32", library="mkl")) for n in (1, 2, 4)]
    sparse = "sparse_gemm m=64 n={} k=64 sparsity=95 forward f32 mkl threads=1"
    made += [samples.measured(text=sparse.format(n)) for n in (1, 2)]
    page = visit(write_page(tmp_path / "page.html", made))
    draw_all(page)
    mode = "document.querySelector('#{}-0 .plot').data[0].mode"
    words = "Points of fewer than three sizes are not joined."

    # The family with the most sizes comes first.
    families = page.locator("#family-0 label:has-text('Family') option").all_inner_texts()
    assert ["gemm 64 × N × 64 NN", "gemm 8 × N × 64 NN"] == families[:2]
    assert "lines+markers" == page.evaluate(mode.format("family"))
    assert words not in page.inner_text("#family-0 figcaption")
    page.locator("#family-0 label:has-text('Family') > select").select_option("gemm 8 × N × 64 NN")
    sync_api.expect(page.locator("#family-0 figcaption")).to_contain_text(words)
    assert "markers" == page.evaluate(mode.format("family"))
    assert "markers" == page.evaluate(mode.format("sparse"))
    assert words in page.inner_text("#sparse-0 figcaption")


def test_a_long_legend_says_how_many_entries_it_has(visit, tmp_path):
    made = []
    for ranks in range(2, 22):
        text = f"all_reduce n=1000 ranks={ranks} forward f32 openmpi threads=1"
        made.append(samples.measured(text=text))
    page = visit(write_page(tmp_path / "page.html", made))
    draw_all(page)
    legend = page.locator("#latency-0 .legend")
    shown = legend.locator("li:visible")

    sync_api.expect(shown).to_have_count(16)
    assert legend.locator("ul").evaluate("e => e.scrollHeight <= e.clientHeight")  # nothing is cut off
    legend.get_by_role("button", name="Show all 20 entries").click()
    sync_api.expect(shown).to_have_count(20)
    assert legend.locator("ul").evaluate("e => e.scrollHeight <= e.clientHeight")


def test_each_application_has_an_axis_of_its_own(visit, tmp_path):
    def kernel(row, application, **others):
        record = samples.measured(text=PRODUCT.format(m=8, n=row, precision="f32", library="mkl"), **others)
        return {**record, "sources": [{**source(row), "application": application}]}

    names = ("Speech Recognition", "Character Language Modelling")
    made = [kernel(1, names[0], seconds=1.5), kernel(2, names[1], seconds=1e-6)]
    for width in (1300, 390):
        page = visit(write_page(tmp_path / "page.html", made), width=width)
        page.locator("#applications-0").scroll_into_view_if_needed()
        draw_all(page)
        bars = page.locator("#applications-0 .plot .bars .point path")
        sync_api.expect(bars).to_have_count(2)
        lengths = [box.bounding_box()["width"] for box in bars.all()]
        assert lengths[0] == pytest.approx(lengths[1], rel=0.05)
        frame = page.locator("#applications-0 .plot").bounding_box()
        for text in page.locator("#applications-0 .plot svg text").all():
            box = text.bounding_box()
            assert frame["x"] <= box["x"]
            assert box["x"] + box["width"] <= frame["x"] + frame["width"] + 1
        titles = page.locator("#applications-0 .annotation-text").all_text_contents()
        assert {f"{name} (a part)" for name in names} == set(titles)
        assert 1 == page.locator("#applications-0 .legend li").count()
        if width == 1300:
            _, svg = saved(page, open_tools(page, "applications"))
            assert set(titles) <= set(words_of(ElementTree.fromstring(svg)))


def test_labels_of_ticks_do_not_overlap_on_a_phone(visit, tmp_path):
    made = [samples.measured(text=PRODUCT.format(m=64, n=n, precision="f32", library="mkl")) for n in (1, 20, 1500)]
    page = visit(write_page(tmp_path / "page.html", made), width=390)
    draw_all(page)
    boxes = [label.bounding_box() for label in page.locator("#family-0 .xtick text").all()]

    assert len(boxes) > 2
    for left, right in pairwise(boxes):
        assert left["x"] + left["width"] < right["x"]


def test_on_a_phone_the_buttons_of_plotly_hide_until_the_chart_is_touched(visit, figures):
    page = visit(figures, width=390)
    draw_all(page)
    plot = page.locator("#family-0 .plot")
    bar = "#family-0 .modebar"
    visibility = f"getComputedStyle(document.querySelector('{bar}')).visibility"

    assert "hidden" == page.evaluate(visibility)
    plot.dispatch_event("pointerdown")
    assert "visible" == page.evaluate(visibility)
    page.locator("#roofline-0 .plot").dispatch_event("pointerdown")
    assert "hidden" == page.evaluate(visibility)


def test_a_button_does_not_move_when_a_figure_is_saved(visit, figures):
    page = visit(figures)
    draw_all(page)
    figure = open_tools(page, "family")
    button = figure.get_by_role("button", name="Copy caption")
    before = button.bounding_box()
    saved(page, figure)
    sync_api.expect(figure.get_by_role("status")).to_contain_text("Saved as")

    assert before == button.bounding_box()


def test_a_choice_without_cases_says_so(visit, figures):
    page = visit(figures)
    draw_all(page)
    figure = page.locator("#family-0")
    figure.locator("label:has-text('Libraries') > select").select_option(label="OpenBLAS")
    figure.locator("label:has-text('Precision') > select").select_option("i8u8")

    sync_api.expect(figure.locator(".plot")).to_contain_text("No case has these properties.")


def test_a_color_is_one_library_on_every_chart(visit, figures):
    page = visit(figures)
    draw_all(page)
    looks = {}
    for chart in CHARTS:
        traces = page.evaluate(
            f"""document.querySelector('#{chart}-0 .plot').data
            .filter(t => t.meta?.columns?.library)
            .map(t => [t.meta.columns.library, t.marker.color, t.line.color, t.marker.symbol[0]])"""
        )
        for libraries, color, line, first_symbol in traces:
            symbol = first_symbol.removesuffix("-open")
            assert line == color
            for library in libraries:
                looks.setdefault(library, {}).setdefault((color, symbol), []).append(chart)

    assert {"MKL", "oneDNN", "OpenBLAS", "PyTorch", "MPICH", "Open MPI"} == set(looks)
    assert {1} == {len(found) for found in looks.values()}
    shared = [charts for found in looks.values() for charts in found.values()]
    assert max(len(set(charts)) for charts in shared) >= 2
    together = [next(iter(looks[library]))[0] for library in ("MKL", "oneDNN", "OpenBLAS", "PyTorch")]
    assert 4 == len(set(together))


def test_an_unknown_library_keeps_its_color_and_variants_have_that_of_their_library(visit, figures):
    style = "JSON.stringify(libraryStyle({!r}))"
    page = visit(figures)
    first = page.evaluate(style.format("A plug-in"))
    assert first == page.evaluate(style.format("A plug-in"))
    page = visit(figures)
    page.evaluate(style.format("Another"))
    assert first == page.evaluate(style.format("A plug-in"))  # where another library came first
    assert page.evaluate(style.format("MPICH")) == page.evaluate(style.format("MPICH ring"))
    every = page.evaluate("[...LIBRARIES.keys()].map(name => JSON.stringify(libraryStyle(name)))")
    assert len(every) == len(set(every))


def test_no_bar_is_on_a_logarithmic_axis(visit, figures):
    page = visit(figures)
    draw_all(page)
    axes = page.evaluate(
        """[...document.querySelectorAll('.plot')].filter(div => div.data.some(t => t.type === 'bar'))
        .flatMap(div => [div.layout.xaxis.type, div.layout.yaxis.type])"""
    )

    assert axes
    assert "log" not in axes
    assert 0 == page.evaluate("document.querySelector('#applications-0 .plot').layout.xaxis.range[0]")


def test_partial_sums_are_hatched_and_disturbed_times_hollow(visit, figures):
    page = visit(figures)
    draw_all(page)
    bars = page.evaluate(
        "document.querySelector('#applications-0 .plot').data.map(t => [t.name, t.marker.pattern.shape])"
    )

    assert ["a part of the kernels", "/"] in bars
    symbols = page.evaluate(
        """document.querySelector('#family-0 .plot').data
        .flatMap(t => t.marker.symbol.filter((_, i) => t.meta.columns.disturbed[i]))"""
    )
    assert ["circle-open"] == symbols
    assert "hollow: disturbed by other programs" in page.inner_text("#family-0 .legend")


@pytest.mark.parametrize("width", [1300, 390])
def test_a_legend_covers_nothing_and_folds_on_a_phone(visit, figures, width):
    page = visit(figures, width=width)
    draw_all(page)
    for chart in CHARTS:
        legend, plot = page.locator(f"#{chart}-0 .legend"), page.locator(f"#{chart}-0 .plot")
        assert (width > 640) == legend.evaluate("e => e.open")
        if width < 640:
            legend.locator("summary").click()
        above, below = legend.bounding_box(), plot.bounding_box()
        assert max(entry.bounding_box()["height"] for entry in legend.locator("li").all()) < 30  # on one line
        assert above["y"] + above["height"] <= below["y"] + 1
        open_tools(page, chart)

    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert not page.evaluate("[...document.querySelectorAll('.plot .legend')].some(e => e.childElementCount)")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1300, 390])
def test_open_tools_have_no_serious_accessibility_problem(visit, figures, scheme, width):
    page = visit(figures, width=width, scheme=scheme)
    draw_all(page)
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    sync_api.expect(page.locator("#family-0 .numbers table")).to_be_attached()

    assert [] == violations(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_table_of_a_chart_has_its_numbers(visit, figures):
    page = visit(figures)
    draw_all(page)
    figure = open_tools(page, "family")
    figure.get_by_text("Numbers of this chart").click()
    rows = figure.locator(".numbers tbody tr")

    sync_api.expect(rows).to_have_count(len(drawn_points(page, "family")))
    # It follows the choices above the chart.
    figure.locator("label:has-text('Libraries') > select").select_option(label="OpenBLAS")
    sync_api.expect(rows).to_have_count(4)


def test_a_citation_is_balanced_and_names_the_program_and_the_machine(visit, tmp_path):
    page = visit(write_page(tmp_path / "page.html", records(), cpu="100 % {CPU} \\input{x} & co_1 #2 $3 ~ ^"))
    draw_all(page)
    citation = open_tools(page, "roofline").get_by_label("Citation")
    sync_api.expect(citation).not_to_have_value("")
    text = citation.input_value()

    assert re.match(r"@misc\{[a-z0-9-]+-2026,\n", text)
    assert "author = {{The DeepBench authors}}," in text
    assert f"deepbench {VERSION}" in text
    assert "100 \\% \\{CPU\\} \\textbackslash{}input\\{x\\} \\& co\\_1 \\#2 \\$3" in text
    depth = 0
    for brace in re.findall(r"(?<!\\)[{}]", text):
        depth += 1 if brace == "{" else -1
        assert depth >= 0
    assert 0 == depth


def test_texts_of_files_are_data_in_figures_too(visit, tmp_path):
    made = []
    for record in records():
        name = {"MKL": FORMULA, "OpenBLAS": HOSTILE}.get(record["library_title"])
        made.append({**record, "library_title": name} if name else record)
    page = visit(write_page(tmp_path / "page.html", made, cpu=HOSTILE, name=FORMULA))
    draw_all(page)
    for chart in CHARTS:
        figure = open_tools(page, chart)
        name, svg = saved(page, figure)
        assert re.fullmatch(r"[a-z0-9-]+\.svg", name)
        root = ElementTree.fromstring(svg)
        assert not {"script", "img", "b", "foreignObject"} & {node.tag.rpartition("}")[2] for node in root.iter()}
        assert not [key for node in root.iter() for key in node.attrib if key.lower().startswith("on")]
        assert HOSTILE in root.findtext(f"{SVG}desc")
        name, data = saved(page, figure, "Save data (CSV)")
        assert re.fullmatch(r"[a-z0-9-]+\.csv", name)
        cells = [cell for line in csv.reader(io.StringIO(data.decode())) for cell in line]
        assert not [cell for cell in cells if re.match(r"[=+@\t\r]|-(?![0-9.])", cell)]
        if chart == "family":
            assert f"'{FORMULA}" in cells
            assert HOSTILE in cells
        page.wait_for_timeout(300)  # Chromium drops a download that is more than the tenth within a second
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    page.wait_for_timeout(200)

    assert 0 == page.evaluate("document.querySelectorAll('img, b').length")


def test_the_samples_of_a_case_are_a_figure_too(visit, figures):
    page = visit(figures)
    page.click("#table tbody tr:first-child button")
    page.wait_for_selector("dialog[open] .main-svg")
    dialog = page.locator("dialog")
    dialog.locator(".figure-tools > summary").click()
    _, svg = saved(page, dialog)

    assert "gemm" in ElementTree.fromstring(svg).findtext(f"{SVG}title")


def test_charts_of_a_site_are_figures_too(visit, tmp_path):
    (tmp_path / "results").mkdir()
    made = [r for r in records() if r["backend"] != "torch"]
    for name in ("mine", "yours"):
        header = samples.header()
        header["machine"]["cpu"] = HOSTILE
        samples.write(tmp_path / "results" / f"{name}.jsonl", made, header)
    public = tmp_path / "public"
    site.build(tmp_path / "results", public, with_published=False)
    page = visit(public / "compare.html", query="?a=mine&b=yours")
    name, svg = saved(page, open_figure(page))
    assert "mine" in name
    assert "yours" in name
    assert "yours compared with mine, case by case" in ElementTree.fromstring(svg).findtext(f"{SVG}title")
    page = visit(public / "families" / "index.html")
    page.click("#table tbody a:has-text('m=64') >> nth=0")
    ready(page)
    name, svg = saved(page, open_figure(page))
    assert "mine" in ElementTree.fromstring(svg).findtext(f"{SVG}desc")


def open_figure(page):
    figure = page.locator("figure")
    figure.locator(".figure-tools > summary").click()
    return figure


def test_a_comparison_of_two_files_is_a_figure_too(visit, tmp_path):
    files = [ResultFile(Path(f"{name}.jsonl"), samples.header(), records()) for name in "ab"]
    found = [content.of_file(file, file.path.stem) for file in files]
    path = tmp_path / "pair.html"
    path.write_bytes(render.page({"files": found, "pairs": [content.of_pair(*files, ("a", "b"))]}, "Two"))
    page = visit(path)
    draw_all(page)
    figure = page.locator("[data-pair] figure")
    figure.locator(".figure-tools > summary").click()
    _, svg = saved(page, figure)
    name, data = saved(page, figure, "Save data (CSV)")

    header, *lines = csv.reader(io.StringIO(data.decode()))
    assert "a-cpu-" in name
    assert "time of b over time of a (ratio)" in header
    assert {"time of a (s)", "time of b (s)"} <= set(header)
    assert lines
    assert ElementTree.fromstring(svg).findtext(f"{SVG}desc").count("A CPU") >= 2
