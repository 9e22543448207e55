"""Pages in a real browser: the numbers are those of the records, mouse and keyboard work, and nothing is loaded.

Wants Chromium, and playwright and axe from PyPI: make test-browser.
"""

import csv
import io
from pathlib import Path

import pytest

from deepbench.core import units
from deepbench.networks.reporting import page as steps
from deepbench.reporting import site
from deepbench.reporting.page import content, render
from deepbench.results.file import ResultFile, read_results
from deepbench.results.summary import summarize
from tests.help import predicted, samples
from tests.reporting.conftest import CHROMIUM, ready, violations
from tests.reporting.page_files import HOSTILE, SHAPES, records, result_file

pytestmark = pytest.mark.browser
sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make test-browser")
pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed: make test-browser")
if CHROMIUM is None:
    pytest.skip("no browser is installed: apt install chromium", allow_module_level=True)


@pytest.fixture(scope="session")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    found = result_file(folder / "mine.jsonl", HOSTILE)
    whole = {"files": [content.of_file(found, HOSTILE)], "pairs": []}
    path = folder / "report.html"
    path.write_bytes(render.page(whole, "A report"))
    return path, found


def test_numbers_on_the_page_are_those_of_the_records(visit, report):
    path, found = report
    page = visit(path)
    shown = page.evaluate("table.rows.map(r => table.fixed.map(c => c.show(r)))")
    titles = page.evaluate("table.fixed.map(c => c.title)")
    summaries = summarize(found.records, found.order)

    assert len(summaries) == len(shown)
    for s, row in zip(summaries, shown, strict=True):
        cells = dict(zip(titles, row, strict=True))
        e = s.estimate
        assert (units.seconds(e.time_s) if e else "–") == cells["Time"]
        assert (units.plus_minus(e.half_width) + "*" * s.single_process if e else "–") == cells["±"]
        assert units.flop_per_s(s.flop_per_s) == cells["TFLOP/s"]
        rate = s.bytes_per_s
        assert (units.significant(rate / 1e9) if rate else "–") == cells["GB/s"]
    first = page.inner_text("#table tbody tr:first-child td:nth-child(5)")
    assert shown[0][titles.index("Time")] == first


def test_numbers_and_ratios_are_written_as_python_writes_them(visit, report):
    page = visit(report[0])
    for value in (0.0, 1.0, 9.994, 9.996, 99.96, 0.0123456, 1e-5, 123456.0, 999.5, 1e9):
        assert units.significant(value) == page.evaluate(f"format.significant({value!r})")
        assert units.seconds(value) == page.evaluate(f"format.seconds({value!r})")
        assert not value or units.at_most(value) == page.evaluate(f"format.atMost({value!r})")
    for ratio in (0.027, 37.04, 1.8, 1.034, 1.004, 0.996, 1.0, 1e-6, 12345.0):
        assert units.faster_or_slower(ratio) == page.evaluate(f"format.fasterOrSlower({ratio!r})")
        assert units.speed_sentence("B", ratio, "A") == page.evaluate(f"format.speedSentence('B', {ratio!r}, 'A')")


# ---- the first screen


@pytest.fixture(scope="session")
def glance(tmp_path_factory):
    """A page with a whole application, an incomplete plan, rivals, and limits."""
    folder = tmp_path_factory.mktemp("glance")
    header = samples.header(["gemm m=1 n=1 k=1 a_t=0 b_t=0 forward f32 mkl threads=1"])
    header["machine"] |= {"cpu": HOSTILE, "hypervisor": True}
    f32, *others = samples.ocr("f32")
    disturbed = {**samples.disturbed(text=f32["case"]), "sources": f32["sources"]}
    some = samples.ocr("bf16")[:3]
    lines = [{"limit": samples.peak(1e12)}, *records(), *samples.ocr(), disturbed, *others, *some]
    found = read_results(samples.write(folder / "glance.jsonl", lines, header))
    data = content.of_file(found, "glance")
    path = folder / "glance.html"
    path.write_bytes(render.page({"files": [data], "pairs": []}, "A page"))
    return path, data


def test_the_first_screen_has_machine_banner_tiles_and_a_table_of_contents(visit, glance):
    path, data = glance
    page = visit(path)

    assert "virtual machine" in page.inner_text("dl.machine")
    assert "Incomplete. 1 of 1 planned cases not measured" in page.inner_text(".banners")
    tiles = page.locator(".tiles li").all_inner_texts()
    assert 4 == len(tiles)
    assert "1.00 TFLOP/s" in tiles[0]
    assert "–" in tiles[3]
    links = page.locator("#sections a").all()
    assert {"All cases", "Roofline"} <= {link.inner_text() for link in links}
    for link in links:
        assert page.locator(f"[id='{link.get_attribute('href')[1:]}']").count() == 1
    # All of it is above the details.
    top = page.locator("#details-of-page").bounding_box()["y"]
    assert page.locator(".furthest").bounding_box()["y"] < top < page.locator("#charts").bounding_box()["y"]
    assert str(data["first"]["winners"][0]["undecided"]) in page.inner_text(".glance table.cards tbody")


def test_the_kernels_furthest_from_their_limit_open_their_details(visit, glance):
    path, data = glance
    page = visit(path)
    kernels = data["first"]["furthest"]
    assert 5 == len([li for li in page.locator(".furthest li").all() if li.is_visible()])
    page.click("text=Show 10")
    shown = page.locator(".furthest li:visible").all_inner_texts()

    assert 10 == len(shown)
    by_share = kernels[:10]
    for kernel, text in zip(by_share, shown, strict=True):
        assert kernel["title"] in text
        assert kernel["percent"] in text
    page.select_option("label:has-text('Order') select", label="most time above the limit")
    by_excess = sorted(kernels, key=lambda kernel: -kernel["excess_s"])[:10]
    for kernel, text in zip(by_excess, page.locator(".furthest li:visible").all_inner_texts(), strict=True):
        assert kernel["title"] in text
        assert f"{kernel['excess']} above its limit" in text
    page.select_option("label:has-text('Order') select", label="lowest share of the limit")
    page.click(".furthest li:nth-child(2) button")
    assert data["columns"]["title"][kernels[1]["row"]] in page.inner_text("#details-title")


def test_one_click_says_why_a_file_is_not_good_enough_to_publish(visit, glance):
    path, data = glance
    page = visit(path)
    page.press(".publishable summary", "Enter")

    assert "Not good enough to publish" in page.inner_text(".publishable summary")
    assert data["first"]["publishable"]["texts"] == page.locator(".publishable li:visible").all_inner_texts()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_the_first_screen_is_made_of_cards(visit, glance, scheme):
    page = visit(glance[0], width=390, height=844, scheme=scheme)

    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    boxes = [tile.bounding_box() for tile in page.locator(".tiles li").all()]
    assert boxes[0]["y"] == boxes[1]["y"] < boxes[2]["y"]
    row = page.locator("[data-machines] tbody tr").first
    cells = [cell.bounding_box() for cell in row.locator("th, td").all()]
    assert sorted(c["y"] for c in cells) == [c["y"] for c in cells]
    assert len({c["y"] for c in cells}) == len(cells)  # one below the other
    assert all(c["x"] + c["width"] <= 390 for c in cells)
    assert [] == violations(page)


def source(row):
    place = {"suite": "deepbench/server", "row": row, "application": "Speech", "label": None, "note": None}
    return {**place, "needed": True}


def test_partial_sums_and_disturbed_times_are_marked(visit, tmp_path):
    text = "gemm m={} n=2 k=64 a_t=0 b_t=0 forward {} mkl threads=1"
    made = [
        {**samples.measured(text=text.format(8, "f32")), "sources": [source(1)]},
        {**samples.disturbed(text=text.format(16, "f32")), "sources": [source(2)]},
        {**samples.measured(text=text.format(8, "i8u8"), seconds=1e-6), "sources": [source(1)]},
        {**samples.measured(text=text.format(16, "bf16")), "sources": []},
    ]
    path = tmp_path / "one.html"
    found = content.of_file(ResultFile(Path("one.jsonl"), samples.header(), made), "one")
    path.write_bytes(render.page({"files": [found], "pairs": []}, "One"))
    page = visit(path)
    page.evaluate("document.querySelectorAll('.plot').forEach(draw)")

    bars = page.evaluate("document.querySelector('#applications-0 .plot').data")
    assert [["Speech (server, f32)"], ["Speech (server, i8u8)"]] == [trace["y"] for trace in bars]
    assert [".", "/"] == [trace["marker"]["pattern"]["shape"] for trace in bars]
    assert bars[0]["text"][0].endswith(", 1 disturbed")
    assert bars[1]["text"][0].endswith("1 of 2 kernels")
    assert bars[1]["text"][0].startswith("≥ ")
    caption = page.inner_text("#applications-0 figcaption")
    assert "Dotted bars contain times that other programs disturbed." in caption
    assert "Hatched bars are sums over some of the kernels" in caption
    symbols = page.evaluate("document.querySelector('#roofline-0 .plot').data.flatMap(t => t.marker?.symbol ?? [])")
    assert 1 == sum(symbol.endswith("-open") for symbol in symbols)
    # bf16 has no ratio to the disturbed time in f32; i8u8 has one to the other problem's.
    gains = page.evaluate(
        "document.querySelector('#precision-0 .plot').data.filter(t => t.customdata).flatMap(t => t.y)"
    )
    assert [pytest.approx(1e-3)] == gains
    assert "1 ratio is left out because a time is disturbed." in page.inner_text("#precision-0 figcaption")
    assert "1 of 4 times is an upper bound" in page.inner_text("main")


def test_two_machines_of_a_site_have_no_ratio_of_disturbed_times(visit, tmp_path):
    text = "gemm m={} n=2 k=64 a_t=0 b_t=0 forward f32 mkl threads=1"
    texts = [text.format(m) for m in (8, 16, 32)]
    (tmp_path / "results").mkdir()
    samples.write(tmp_path / "results" / "mine.jsonl", [samples.measured(text=t) for t in texts])
    yours = [samples.measured(text=t, seconds=2e-3) for t in texts[:2]]
    yours.append(samples.disturbed(text=texts[2], seconds=69e-3))
    samples.write(tmp_path / "results" / "yours.jsonl", yours)
    site.build(tmp_path / "results", tmp_path / "public", with_published=False)
    page = visit(tmp_path / "public" / "compare.html", query="?a=mine&b=yours")

    main = page.inner_text("main")
    assert "is 2.00× slower than" in main
    assert "(geometric mean over 2 common problems; 1 with a disturbed time left out)" in main
    row = page.locator("#table tbody tr", has_text="32 × 2 × 64").inner_text().split("\t")
    assert "–" == row[6]
    assert "is disturbed" in row[7]


def test_the_table_filters_searches_and_sorts(visit, report):
    page = visit(report[0])
    page.select_option("#filters label:has-text('Library') select", "OpenBLAS")

    assert f"{len(SHAPES)} of" in page.inner_text("#count")
    page.fill("#filters input[type=search]", "n=32")
    sync_api.expect(page.locator("#count")).to_contain_text("3 of")
    page.fill("#filters input[type=search]", "")
    sync_api.expect(page.locator("#count")).to_contain_text(f"{len(SHAPES)} of")
    page.click("th:has-text('Time') button")
    times = page.evaluate("table.shown.map(r => r.time_s)")
    assert sorted(times) == times
    page.click("th:has-text('Time') button")
    assert sorted(times, reverse=True) == page.evaluate("table.shown.map(r => r.time_s)")
    assert "descending" == page.get_attribute("th:has-text('Time')", "aria-sort")


def test_a_sorted_column_has_an_arrow(visit, report):
    page = visit(report[0])
    arrow = "getComputedStyle(document.querySelector('th[data-column=time_s] button'), '::after').content"

    assert "none" == page.evaluate(arrow)
    page.click("th:has-text('Time') button")
    assert "▲" in page.evaluate(arrow)
    page.click("th:has-text('Time') button")
    assert "▼" in page.evaluate(arrow)


def test_no_library_is_the_fastest_of_one(visit, report):
    page = visit(report[0])
    shown = page.evaluate(
        "table.rows.map(r => [r.op, r.position, table.fixed.find(c => c.name === 'position').show(r)])"
    )

    assert ["sparse_gemm", "only", ""] in shown
    assert ["gemm", "fastest", "fastest"] in shown
    # A chart of the fastest libraries has both.
    page.evaluate("document.querySelectorAll('.plot').forEach(draw)")
    cases = page.evaluate("document.querySelector('#roofline-0 .plot').data.flatMap(t => t.meta?.columns?.case ?? [])")
    assert [case for case in cases if case.startswith("sparse_gemm")]


def test_units_in_the_dialog_suit_the_values(visit, report):
    page = visit(report[0])
    page.click("#table tbody tr:first-child button")
    text = page.inner_text("dialog dl")

    assert "64.0 FLOP, " in text
    assert " MFLOP/s" in text
    assert "TFLOP/s" not in text


def test_contents_at_the_top_lead_to_every_part(visit, report, tmp_path):
    page = visit(report[0])
    assert ["Details", "Charts", "All cases"] == page.locator(".contents a").all_inner_texts()
    files = [result_file(tmp_path / f"{name}.jsonl", name) for name in ("mine", "yours")]
    found = [content.of_file(file, file.path.stem) for file in files]
    pair = content.of_pair(*files, ("mine", "yours"))
    path = tmp_path / "two.html"
    path.write_bytes(render.page({"files": found, "pairs": [pair]}, "Two"))
    page = visit(path)
    links = page.locator(".contents a")

    names = ["What changed", "mine", "yours", "Details", "Charts", "All cases"]
    assert names == links.all_inner_texts()
    assert links.first.bounding_box()["y"] < 200
    for link in links.all():
        assert page.locator(f"[id='{link.get_attribute('href')[1:]}']").count() == 1


def test_inputs_on_a_phone_have_room_for_a_finger(visit, glance):
    page = visit(glance[0], width=390)
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    small = page.evaluate(
        """[...document.querySelectorAll('select, textarea, input:not([type=checkbox], [type=radio])')]
        .filter(e => e.offsetParent && e.getBoundingClientRect().height < 36).map(e => e.outerHTML.slice(0, 80))"""
    )

    assert [] == small


def test_people_sort_and_filter_by_the_fields_of_a_problem(visit, report):
    page = visit(report[0])
    assert "m" not in page.locator("#table thead th").all_inner_texts()  # several operations have other fields
    page.select_option("#filters label:has-text('Operation') select", "gemm")

    heads = page.locator("#table thead th").all_inner_texts()
    assert ["Fastest", "m", "n", "k", "Status"] == heads[-6:-1]  # a_t and b_t do not vary
    assert "Operation" not in heads
    page.click("th:has-text('n') button >> text=/^n$/")
    sizes = page.evaluate("table.shown.map(r => r['n='])")
    assert sorted(sizes) == sizes
    page.select_option("#fields label:has-text('m') select", "16")
    assert {16} == set(page.evaluate("table.shown.map(r => r['m='])"))
    assert "8 of" in page.inner_text("#count")
    page.fill("#filters input[type=search]", "n>=4 n<32")
    sync_api.expect(page.locator("#count")).to_have_text("2 of 28 rows")
    page.fill("#filters input[type=search]", "")
    sync_api.expect(page.locator("#count")).to_have_text("8 of 28 rows")
    page.select_option("#filters label:has-text('Operation') select", "sparse_gemm")
    assert "1 of" in page.inner_text("#count")  # the filter of m went with its operation


def test_comparisons_of_fields_are_numbers_and_not_texts(visit, report):
    page = visit(report[0])
    page.fill("#filters input[type=search]", "m=8")

    sync_api.expect(page.locator("#count")).to_have_text("8 of 28 rows")
    assert {8} == set(page.evaluate("table.shown.map(r => r['m='])"))


def test_fields_are_exported(visit, report):
    page = visit(report[0])
    page.fill("#filters input[type=search]", "sparsity=95")
    sync_api.expect(page.locator("#count")).to_contain_text("1 of")
    with page.expect_download() as download:
        page.click("#export")
    (row,) = csv.DictReader(io.StringIO(Path(download.value.path()).read_text()))

    assert ("64", "2", "95") == (row["m"], row["n"], row["sparsity"])


def test_the_export_has_the_visible_rows_and_no_formula(visit, report):
    page = visit(report[0])
    page.select_option("#filters label:has-text('Status') select", "crashed")
    with page.expect_download() as download:
        page.click("#export")
    (row,) = csv.DictReader(io.StringIO(Path(download.value.path()).read_text()))

    assert "crashed" == row["status"]
    assert "<img" in row["reason"]
    assert not [v for v in row.values() if v.startswith(("=", "+", "-", "@"))]


def test_by_keyboard_the_details_of_a_case_open_and_close(visit, report):
    page = visit(report[0])
    page.focus("#table tbody tr:first-child button")
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open] .main-svg")

    text = page.inner_text("dialog")
    assert "deepbench run gemm m=8 n=1 k=4" in text
    assert "3 processes" in text
    assert 30 == page.evaluate("document.querySelectorAll('dialog .scatterlayer .point').length")
    page.keyboard.press("Escape")
    assert not page.evaluate("document.getElementById('details').open")


def test_charts_have_the_points_of_the_records(visit, report):
    path, found = report
    page = visit(path)
    page.evaluate("document.querySelectorAll('.plot').forEach(draw)")
    ids = page.evaluate("[...document.querySelectorAll('#charts figure')].map(f => f.id)")

    assert {"roofline-0", "family-0", "fastest-0", "precision-0", "sparse-0"} <= set(ids)
    ys = page.evaluate("document.querySelector('#roofline-0 .plot').data.filter(t => t.customdata).flatMap(t => t.y)")
    rates = [s.flop_per_s / 1e9 for s in summarize(found.records, found.order) if s.flop_per_s]
    assert ys
    assert not set(map("{:.6g}".format, ys)) - set(map("{:.6g}".format, rates))
    (gain,) = page.evaluate(
        "document.querySelector('#precision-0 .plot').data.filter(t => t.customdata).flatMap(t => t.y)"
    )
    best = min(
        s.estimate.time_s
        for s in summarize(found.records)
        if "m=64 n=32 k=4" in s.record["case"] and "f32" in s.record["case"]
    )
    low = next(s for s in summarize(found.records) if s.record["precision"] == "i8u8")
    assert gain == pytest.approx(low.estimate.time_s / best, rel=1e-4)


def test_texts_of_files_are_never_markup(visit, report):
    page = visit(report[0])
    page.evaluate("document.querySelectorAll('.plot').forEach(draw)")
    page.wait_for_timeout(300)

    assert 0 == page.evaluate("document.querySelectorAll('img, b').length")
    assert "<img src=x onerror=alert(1)>" in page.inner_text("dl")
    assert "49" not in page.inner_text("dl")
    assert "\u202e" not in page.content()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1300, 390])
def test_pages_have_no_serious_accessibility_problem(visit, report, glance, public, scheme, width):
    pages = [(report[0], ""), (public / "index.html", ""), (public / "families" / "index.html", "")]
    pages += [(public / "compare.html", "?a=mine&b=yours"), (public / "machines" / "nvidia-tesla-v100.html", "")]
    pages += [(glance[0], "")]
    for path, query in pages:
        page = visit(path, width=width, scheme=scheme, query=query)

        assert [] == violations(page), path
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path


def test_a_site_leads_from_the_index_to_a_family_and_compares_two_machines(visit, public):
    page = visit(public / "index.html")
    page.click("a:has-text('NVIDIA Tesla V100') >> nth=0")
    ready(page)

    assert "112 TFLOP/s" in page.inner_text("main")
    page.click("text=Families of problems")
    ready(page)
    page.click("#table tbody a >> nth=0")
    ready(page)
    assert " of " in page.inner_text("#count")
    page = visit(public / "compare.html", query="?a=mine&b=yours")
    ratios = [row.split("\t")[-2] for row in page.inner_text("#table tbody").splitlines() if row]
    assert {"as fast"} == set(ratios)


def test_files_with_the_names_of_properties_can_be_compared(visit, tmp_path):
    (tmp_path / "results").mkdir()
    names = ("constructor", "valueOf", "__proto__")
    for name in names:
        result_file(tmp_path / "results" / f"{name}.jsonl")
    site.build(tmp_path / "results", tmp_path / "public", with_published=False)
    found = {name: next((tmp_path / "public" / "data").glob(f"{name.strip('_').lower()}*.js")).stem for name in names}
    assert "constructor" == found["constructor"]
    for other in names[1:]:
        page = visit(tmp_path / "public" / "compare.html", query=f"?a=constructor&b={found[other]}")
        ratios = [row.split("\t")[-2] for row in page.inner_text("#table tbody").splitlines() if row]
        assert {"as fast"} == set(ratios)


@pytest.mark.parametrize("name", ["constructor", "__proto__"])
def test_an_operation_or_precision_may_have_the_name_of_a_property(visit, tmp_path, name):
    made = []
    for n in (1, 2):
        low = samples.measured(text=f"gemm m=8 n={n} k=4 a_t=0 b_t=0 forward i8u8 mkl threads=1")
        made += [samples.measured(text=f"gemm m=8 n={n} k=4 a_t=0 b_t=0 forward f32 mkl threads=1")]
        made += [{**low, "case": low["case"].replace("i8u8", name), "precision": name}]
    other = [{**r, "op": name, "case": r["case"].replace("gemm", name, 1)} for r in made]
    # Reading such a file would mark its records as inconsistent: there is no such precision.
    header = samples.header()
    files = [ResultFile(Path(f"{i}.jsonl"), header, records) for i, records in enumerate((made, made + other))]
    path = tmp_path / "two.html"
    path.write_bytes(render.page({"files": [content.of_file(f, f.path.stem) for f in files], "pairs": []}, "Two"))
    page = visit(path)
    page.evaluate("document.querySelectorAll('.plot').forEach(draw)")
    gains = "document.querySelector('#precision-0 .plot').data.filter(t => t.customdata).flatMap(t => t.y)"
    assert [1, 1] == page.evaluate(gains)
    page.select_option("label:has-text('Operation') select", name)
    sync_api.expect(page.locator("#table thead")).to_contain_text("n")
    assert "4 of 12 rows" == page.inner_text("#count")


def test_two_published_machines_have_the_ratio_of_their_times(visit, public):
    page = visit(public / "compare.html", query="?a=nvidia-tesla-v100&b=nvidia-tesla-p100")
    row = page.locator("#table tbody tr", has_text="1760 × 128 × 1760 NN").first.inner_text().split("\t")

    assert row[6] == units.faster_or_slower(float(row[5].split()[0]) / float(row[4].split()[0]))


def test_a_page_of_many_cases_scrolls(visit, tmp_path):
    texts = [f"gemm m={m} n={n} k=4 a_t=0 b_t=0 forward f32 mkl threads=1" for m in range(1, 101) for n in range(1, 31)]
    found = ResultFile(tmp_path / "many.jsonl", samples.header(), [samples.measured(text=t) for t in texts])
    path = tmp_path / "many.html"
    path.write_bytes(render.page({"files": [content.of_file(found, "many")], "pairs": []}, "Many"))
    page = visit(path)
    page.evaluate("table.scroller.scrollTop = table.scroller.scrollHeight")
    sync_api.expect(page.locator("#table tbody")).to_contain_text("100 × 30 × 4")

    assert page.evaluate("document.querySelectorAll('#table tbody tr').length") < 200


def test_the_training_step_by_devices_stacks_kernels_and_all_reduce(visit, tmp_path):
    records = [*samples.kernels_of_steps(1, 2, 4), *samples.all_reduce(2, 2e-3)]
    path = tmp_path / "steps.html"
    found = content.of_file(ResultFile(Path("steps.jsonl"), samples.header(), records), "steps")
    path.write_bytes(render.page({"files": [found], "pairs": []}, "Steps"))
    page = visit(path)
    page.evaluate("document.querySelectorAll('.plot').forEach(draw)")

    kernels, reduced = page.evaluate("document.querySelector('#steps-0 .plot').data")
    one, two, _ = found["steps"][0]["steps"]
    assert ["1 device", "2 devices"] == kernels["x"]
    assert [one["one_device"]["seconds"], two["one_device"]["seconds"]] == pytest.approx(kernels["y"])
    assert ("all-reduce, measured", ["2 devices"]) == (reduced["name"], reduced["x"])
    assert [two["all_reduce"]["time"]["seconds"]] == pytest.approx(reduced["y"])
    assert "stack" == page.evaluate("document.querySelector('#steps-0 .plot').layout.barmode")
    assert "No step on 4 devices: no all-reduce of" in page.inner_text("#steps-0 figcaption")


def test_the_step_of_a_network_is_a_bar_of_its_kernels_next_to_the_measured_one(visit, tmp_path):
    samples.write(tmp_path / "k.jsonl", [*predicted.kernels(), predicted.step(2.1e-3)])
    file = read_results(tmp_path / "k.jsonl")
    found = content.of_file(file, "k", lambda file: steps.of_file(file, [predicted.network()]))
    path = tmp_path / "step.html"
    path.write_bytes(render.page({"files": [found], "pairs": []}, "Step"))
    page = visit(path)
    page.evaluate("document.querySelectorAll('.plot').forEach(draw)")

    *parts, whole = page.evaluate("document.querySelector('#networks-0 .plot').data")
    shown = {trace["name"]: dict(zip(trace["x"], trace["y"], strict=True)) for trace in parts}
    assert {"products", "other kernels", "other operators", "measured"} == set(shown)
    assert sum(values.get("predicted", 0) for values in shown.values()) == pytest.approx(2.02e-3, rel=2e-3)
    assert shown["measured"] == {"measured": 2.1e-3}
    assert whole["y"] == pytest.approx([2.02e-3, 2.1e-3], rel=2e-3)
    assert whole["error_y"]["array"][0] > 0
    assert "Error: -3.8 %" in page.inner_text("#networks-0 figcaption")
