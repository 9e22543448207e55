"""The table of cases in a real browser: at a desk, on a phone and on paper."""

import re
from pathlib import Path

import pytest

from deepbench.reporting.page import content, render
from deepbench.results.file import ResultFile, read_results
from tests.help import samples
from tests.reporting.conftest import CHROMIUM, ready, violations

pytestmark = pytest.mark.browser
sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make test-browser")
pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed: make test-browser")
if CHROMIUM is None:
    pytest.skip("no browser is installed: apt install chromium", allow_module_level=True)

PUBLISHED = Path(__file__).parents[2] / "results" / "xeon-amx-2vcpu.jsonl.gz"
GEMM = "gemm m={} n={} k=4 a_t=0 b_t=0 forward f32 {} threads={}"
LONG = "this library has no kernel for such a problem on this processor, in this precision and with these strides"
PAGES_OF_A_SUITE = 12


def written(path, *files):
    path.write_bytes(render.page({"files": [content.of_file(f, f.path.stem) for f in files], "pairs": []}, "A page"))
    return path


def source(application):
    place = {"suite": "deepbench/server", "row": 1, "application": application, "label": None, "note": None}
    return {**place, "needed": True}


@pytest.fixture(scope="session")
def suite(tmp_path_factory):
    """The page of a whole suite: our published file."""
    return written(tmp_path_factory.mktemp("suite") / "suite.html", read_results(PUBLISHED))


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """Twenty-four products of two libraries, with 1 and 2 threads, for two applications, one of them not served."""
    made = []
    for m in (8, 16, 64):
        for n in (1, 32):
            for backend in ("mkl", "openblas"):
                for threads in (1, 2):
                    text = GEMM.format(m, n, backend, threads)
                    seconds = 1e-6 * m * n * (1.5 if backend == "mkl" else 1)
                    applications = ["Speech", "Vision"] if m == 8 else ["Vision"]
                    record = samples.measured(text=text, seconds=seconds)
                    made.append({**record, "sources": [source(a) for a in applications]})
    made += [samples.failed("unsupported", LONG, "onednn"), samples.disturbed(text=GEMM.format(128, 1, "mkl", 1))]
    found = ResultFile(Path("small.jsonl"), samples.header(), made)
    return written(tmp_path_factory.mktemp("small") / "small.html", found)


@pytest.fixture(scope="session")
def seven_hundred(tmp_path_factory):
    sizes = [(m, n) for m in range(1, 36) for n in range(1, 11)]
    texts = [GEMM.format(m, n, backend, 1) for m, n in sizes for backend in ("mkl", "openblas")]
    found = ResultFile(Path("many.jsonl"), samples.header(), [samples.measured(text=t) for t in texts])
    return written(tmp_path_factory.mktemp("many") / "many.html", found)


def count_is(page, text):
    sync_api.expect(page.locator("#count")).to_have_text(text)


def heads(page):
    return page.locator("#table thead th").all_inner_texts()


# ---- at a desk


@pytest.mark.parametrize("operation", ["", "conv", "gemm", "recurrent", "sparse_gemm"])
def test_the_table_of_a_suite_fits_1400_pixels(visit, suite, operation):
    page = visit(suite, width=1400)
    page.select_option("#filters label:has-text('Operation') select", operation)

    for top in (0, 3000, 100_000):
        page.evaluate(f"table.scroller.scrollTop = {top}")
        page.wait_for_timeout(50)
        assert page.evaluate("table.scroller.scrollWidth <= table.scroller.clientWidth")


def test_the_tables_of_a_site_fit_1400_pixels(visit, public):
    for name in ("index.html", "families/index.html", "compare.html?a=nvidia-tesla-v100&b=nvidia-tesla-p100"):
        path, _, query = name.partition("?")
        page = visit(public / path, width=1400, query=f"?{query}" if query else "")

        assert page.evaluate("document.getElementById('scroller').scrollWidth") <= 1366, name


def boxes(page, columns):
    row = page.locator("#table tbody tr[data-id]").first
    return [row.locator(f"[data-column={name}]").bounding_box() for name in columns]


def test_operation_problem_and_library_stay_visible_when_the_table_is_scrolled_sideways(visit, suite):
    page = visit(suite, width=1000)
    keys = ("op", "title", "library")
    before = boxes(page, keys)
    time = boxes(page, ["time_s"])[0]["x"]
    page.evaluate("table.scroller.scrollLeft = 200")

    assert [box["x"] for box in before] == pytest.approx([box["x"] for box in boxes(page, keys)], abs=1)
    assert [before[0]["x"] + before[0]["width"], before[1]["x"] + before[1]["width"]] == pytest.approx(
        [before[1]["x"], before[2]["x"]], abs=1
    )
    assert time - 200 == pytest.approx(boxes(page, ["time_s"])[0]["x"], abs=1)
    column = page.locator("#table th[data-column=library]").bounding_box()
    assert column["x"] == pytest.approx(before[2]["x"], abs=1)


def test_on_a_narrow_window_only_the_problem_stays_visible(visit, suite):
    page = visit(suite, width=700)
    page.evaluate("table.scroller.scrollLeft = 300")
    op, title, library = boxes(page, ("op", "title", "library"))

    left = page.locator("#scroller").bounding_box()["x"]
    assert left <= title["x"] < left + 3
    assert op["x"] < left
    assert library["x"] < title["x"] + title["width"]


# After a frame, for what is done in an animation frame.
FRAME = "new Promise(resolve => requestAnimationFrame(() => requestAnimationFrame(resolve)))"
PAINTED = "[...document.querySelectorAll('#table tbody tr[data-id]')]"
NEW_ROWS = "table.shown.slice(0, {}).map((row, i) => table.fill(table.emptyRow(), row, i).outerHTML)"


def test_rows_that_show_other_cases_are_as_new_ones(visit, suite):
    page = visit(suite)
    first = page.locator("#table tbody tr[data-id]").first.element_handle()
    for title in ("Status", "Status", "% of limit", "Time"):
        page.click(f"#table th button:has-text('{title}')")
        for top in (4000, 0):
            page.evaluate(f"table.scroller.scrollTop = {top}")
            page.evaluate(FRAME)
        shown = page.evaluate(f"{PAINTED}.map(r => r.outerHTML)")

        assert len(shown) > 20
        assert shown == page.evaluate(NEW_ROWS.format(len(shown)))
    assert first.get_attribute("data-id") == str(page.evaluate("table.shown[0].id"))


def test_the_place_where_people_read_stays_when_rows_show_other_cases(visit, suite):
    page = visit(suite)
    for top in (2000, 3000, 5000, 1000):
        page.evaluate(f"table.scroller.scrollTop = {top}")
        page.evaluate(FRAME)

        assert top == page.evaluate("table.scroller.scrollTop")


def test_another_order_does_not_wait_for_a_layout_of_the_rows(visit, suite):
    page = visit(suite, width=1400)
    asked = page.evaluate(
        "(() => { const asked = [], ask = Element.prototype.getBoundingClientRect;"
        "Element.prototype.getBoundingClientRect = function () { asked.push(this.tagName); return ask.call(this); };"
        "document.querySelector('#table th[data-column=time_s] button').click(); return asked; })()"
    )

    assert [] == asked


def test_rows_fill_a_tall_window(visit, suite):
    page = visit(suite, width=1400, height=3000)
    page.wait_for_timeout(100)
    box, last = (page.locator(f).bounding_box() for f in ("#scroller", "#table tr[data-id] >> nth=-1"))

    assert last["y"] + last["height"] >= box["y"] + box["height"] - 1


# A menu is opened with a key: a click opens nothing if a chart above it is drawn while the button is down.
def test_columns_are_chosen_and_the_choice_lasts(visit, small):
    page = visit(small)
    assert "Notes" in heads(page)
    assert "Applications" not in heads(page)
    page.press(".columns summary", "Enter")
    page.uncheck(".columns label:has-text('Notes') input")
    page.check(".columns label:has-text('Applications') input")

    assert "Notes" not in heads(page)
    assert "Applications" in heads(page)
    assert "Vision" in page.inner_text("#table tbody tr >> nth=0")
    page.reload()
    ready(page)
    assert "Notes" not in heads(page)
    assert "Applications" in heads(page)
    page.press(".columns summary", "Enter")
    page.click("text=Standard columns")
    assert "Notes" in heads(page)
    assert page.is_checked(".columns label:has-text('Notes') input")
    assert page.evaluate("document.activeElement.textContent") == "Standard columns"


def test_columns_are_chosen_where_nothing_can_be_stored(browser, small):
    context = browser.new_context()
    context.add_init_script(
        "Object.defineProperty(window, 'sessionStorage', { get() { throw new DOMException('no', 'SecurityError'); } });"
    )
    page, messages = context.new_page(), []
    page.on("console", lambda m: messages.append(m.text))
    page.on("pageerror", lambda e: messages.append(str(e)))
    page.goto(small.as_uri())
    page.bring_to_front()  # a page behind another one may get no frames, and a click waits for some
    ready(page)
    page.press(".columns summary", "Enter")
    page.uncheck(".columns label:has-text('Notes') input")

    assert "Notes" not in heads(page)
    context.close()
    assert [] == messages


def test_a_status_is_short_and_its_title_has_the_reason(visit, small):
    page = visit(small)
    page.select_option("#filters label:has-text('Status') select", "unsupported")
    cell = page.locator("#table td[data-column=status]")

    assert "unsupported" == cell.inner_text()
    assert f"unsupported: {LONG}" == cell.get_attribute("title")
    page.click("#table tbody button")
    assert LONG in page.inner_text("dialog")
    page.keyboard.press("Escape")
    page.click("text=Clear filters")
    page.fill("#filters input[type=search]", "m=128")
    count_is(page, "1 of 26 rows")
    assert "disturbed" == cell.inner_text()


def test_a_disturbed_time_is_an_upper_bound_without_rates(visit, small):
    page = visit(small)
    page.get_by_label("Search").fill("m=128")
    count_is(page, "1 of 26 rows")
    cells = dict(
        zip(heads(page), page.locator("#table tbody tr th, #table tbody tr td").all_inner_texts(), strict=True)
    )

    assert cells["Time"].startswith("≤ ")
    assert ("–", "–", "–", "–") == tuple(cells[title] for title in ("±", "TFLOP/s", "GB/s", "% of limit"))
    page.locator("#table tbody button").first.click()
    facts = page.locator("dialog dd").all_inner_texts()
    assert any(text.startswith("≤ ") and "disturbed by other programs" in text for text in facts)
    assert not [text for text in facts if "FLOP/s" in text or "of the nearest limit" in text]


def test_rows_are_filtered_by_application_threads_and_size(visit, small):
    page = visit(small)
    page.select_option("#filters label:has-text('Application') select", "Speech")
    count_is(page, "8 of 26 rows")
    page.select_option("#filters label:has-text('Threads') select", "2")
    count_is(page, "4 of 26 rows")
    assert {2} == set(page.evaluate("table.shown.map(r => r.threads)"))
    page.click("text=Clear filters")
    count_is(page, "26 of 26 rows")
    assert "" == page.input_value("#filters label:has-text('Application') select")

    assert ["work (GFLOP)", "data (MiB)", "m", "n"] == page.locator(".range option").all_inner_texts()
    page.select_option(".range select", label="m")
    page.fill(".range label:has-text('from') input", "16")
    count_is(page, "17 of 26 rows")
    page.fill(".range label:has-text('to') input", "64")
    count_is(page, "16 of 26 rows")
    assert {16, 64} == set(page.evaluate("table.shown.map(r => r['m='])"))
    page.select_option(".range select", label="work (GFLOP)")
    count_is(page, "0 of 26 rows")
    page.click("text=Clear filters")
    count_is(page, "26 of 26 rows")
    assert "" == page.input_value(".range label:has-text('from') input")


def test_a_filter_without_a_choice_is_not_offered(visit, suite, small):
    assert 0 == visit(suite).locator("#filters label:has-text('Threads')").count()
    page = visit(small)
    assert 1 == page.locator("#filters label:has-text('Threads')").count()
    assert 0 == page.locator("#filters label:has-text('Device')").count()


def test_the_search_says_that_sizes_are_understood(visit, small):
    page = visit(small)
    search = page.locator("#filters input[type=search]")
    help_text = page.inner_text(f"#{search.get_attribute('aria-describedby')}")

    assert help_text == "words, or sizes: m=64 k>=1024"
    search.fill("m=64 k>=1024")
    count_is(page, "0 of 26 rows")
    search.fill("m=64 k>=4")
    count_is(page, "8 of 26 rows")


# ---- on a phone


def test_on_a_phone_each_row_is_a_card_with_its_time(visit, small):
    page = visit(small, width=390, height=844)
    card = page.locator("#table tbody tr[data-id]").first
    title, time, rate = (card.locator(f"[data-column={c}]") for c in ("title", "time_s", "flop_per_s"))

    assert title.bounding_box()["y"] < time.bounding_box()["y"] < rate.bounding_box()["y"]
    for column in ("time_s", "half", "flop_per_s", "library", "precision", "share_of_limit", "status"):
        box = card.locator(f"[data-column={column}]").bounding_box()
        assert 0 <= box["x"] < box["x"] + box["width"] <= 390
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.evaluate("table.scroller.scrollWidth <= table.scroller.clientWidth")
    heights = page.evaluate(
        "[...document.querySelectorAll('#table tr[data-id]')].map(r => r.getBoundingClientRect().height)"
    )
    assert heights == pytest.approx([page.evaluate("table.rowHeight")] * len(heights), abs=0.5)


def test_on_a_phone_every_card_can_be_reached(visit, suite):
    page = visit(suite, width=390, height=844)
    seen = set()
    step = page.evaluate("table.scroller.clientHeight")
    for top in range(0, page.evaluate("table.scroller.scrollHeight"), step):
        page.evaluate(f"table.scroller.scrollTop = {top}")
        page.evaluate("new Promise(requestAnimationFrame)")
        # The cards in view, and not only in the document.
        seen |= set(
            page.evaluate(
                "(() => { const box = table.scroller.getBoundingClientRect();"
                " return [...document.querySelectorAll('#table tr[data-id]')]"
                ".filter(r => r.getBoundingClientRect().bottom > box.top && r.getBoundingClientRect().top < box.bottom)"
                ".map(r => r.dataset.id); })()"
            )
        )

    assert page.evaluate("table.rows.length") == len(seen)
    assert page.evaluate("document.querySelectorAll('#table tr[data-id]').length") < 100


def test_on_a_phone_filters_fold_and_say_how_many_are_set(visit, small):
    page = visit(small, width=390, height=844)
    assert not page.is_visible("#filters select >> nth=0")
    page.press(".filters > summary", "Enter")
    page.select_option("#filters label:has-text('Threads') select", "2")

    assert "Filters (1 set)" == page.inner_text(".filters > summary")
    page.select_option("label:has-text('Sort by') select", label="Time, descending")
    times = page.evaluate("table.shown.map(r => r.time_s)")
    assert sorted(times, reverse=True) == times
    page.set_viewport_size({"width": 1000, "height": 800})
    assert page.is_visible("#filters select >> nth=0")
    assert not page.is_visible(".filters > summary")


def test_on_a_phone_a_dialog_opens_at_its_title_and_closes(visit, suite):
    page = visit(suite, width=390, height=600)
    page.click("#table tbody tr[data-id] button >> nth=0")
    page.wait_for_selector("dialog[open] .main-svg")
    dialog = page.locator("dialog")

    assert 0 == dialog.evaluate("d => d.scrollTop")
    assert dialog.evaluate("d => d.scrollHeight > d.clientHeight")  # there is something to scroll over
    assert "details-title" == page.evaluate("document.activeElement.id")
    box = dialog.bounding_box()
    assert box["x"] >= 0
    assert box["y"] >= 0
    assert box["x"] + box["width"] <= 390
    assert box["y"] + box["height"] <= 600
    assert dialog.evaluate("d => d.scrollWidth <= d.clientWidth")
    dialog.evaluate("d => { d.scrollTop = d.scrollHeight; }")
    close = page.locator("dialog button", has_text="Close")
    assert 0 <= close.bounding_box()["y"] < 100  # also where the dialog is scrolled
    close.click()
    assert not dialog.evaluate("d => d.open")
    page.click("#table tbody tr[data-id] button >> nth=1")
    page.keyboard.press("Escape")
    assert not dialog.evaluate("d => d.open")


# ---- on paper


def pages_of(page, size="A4"):
    return len(re.findall(rb"/Type\s*/Page\b", page.pdf(format=size)))


@pytest.mark.parametrize("size", ["A4", "Letter"])
def test_the_report_of_a_suite_takes_at_most_twelve_pages(visit, suite, seven_hundred, size):
    for path in (suite, seven_hundred):
        assert pages_of(visit(path), size) <= PAGES_OF_A_SUITE


def test_paper_has_the_fastest_library_of_each_problem_and_says_so(visit, suite):
    page = visit(suite)
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    ids = page.evaluate("[...document.querySelectorAll('#table tr[data-id]')].map(r => Number(r.dataset.id))")
    fastest = page.evaluate("table.rows.filter(r => ['fastest', 'only'].includes(r.position)).map(r => r.id)")

    assert fastest == ids
    assert f"Printed: {len(ids)} of 291 rows, of each problem the fastest library" in page.inner_text("#table tbody")
    assert "CSV" in page.inner_text("#table tbody tr >> nth=0")
    assert {"Problem", "Library", "Time"} < set(heads(page))
    assert "Notes" not in heads(page)
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert "Notes" in heads(page)
    assert "Printed" not in page.inner_text("#table tbody")


def test_a_table_that_is_filtered_is_printed_as_it_is(visit, suite):
    page = visit(suite)
    page.select_option("#filters label:has-text('Library') select", "OpenBLAS")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")

    rows = page.locator("#table tr[data-id]").count()
    assert page.inner_text("#count").startswith(f"{rows} of ")


def test_charts_are_printed_two_in_a_row_and_come_back(visit, suite):
    page = visit(suite, width=1400)
    page.evaluate("document.querySelectorAll('.plot').forEach(draw)")
    widths = "[...document.querySelectorAll('#charts .plot')].map(p => p._fullLayout.width)"
    before = page.evaluate(widths)
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 703, "height": 900})  # A4 without its margins
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    figures = [f.bounding_box() for f in page.locator("#charts figure:not(.wide)").all()]

    assert figures[0]["y"] == figures[1]["y"] < figures[2]["y"]
    for plot in page.locator("#charts .plot").all():
        inner, outer = plot.locator(".main-svg").first.bounding_box(), plot.locator("xpath=..").bounding_box()
        assert inner["x"] + inner["width"] <= outer["x"] + outer["width"]
    page.emulate_media(media="screen")
    page.set_viewport_size({"width": 1400, "height": 900})
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    for _ in range(20):  # Plotly waits a moment before it takes the width of the window again
        if before == page.evaluate(widths):
            break
        page.wait_for_timeout(100)
    assert before == page.evaluate(widths)


# ---- for everyone


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 390])
def test_filters_columns_cards_and_dialogs_have_no_serious_accessibility_problem(visit, suite, scheme, width):
    page = visit(suite, width=width, height=844, scheme=scheme)
    page.evaluate("document.querySelectorAll('.filters, .columns').forEach(d => { d.open = true; })")
    page.select_option("#filters label:has-text('Operation') select", "gemm")

    assert [] == violations(page)
    page.click("#table tbody tr[data-id] button >> nth=0")
    assert [] == violations(page)
