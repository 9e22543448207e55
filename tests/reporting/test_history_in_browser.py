"""The page about each case over time, in a real browser.

Wants Chromium, and playwright and axe from PyPI: make test-browser.
"""

import pytest

import deepbench
from deepbench.judge import change_points
from deepbench.reporting import site
from tests.help import over_time, samples
from tests.reporting.conftest import CHROMIUM, ready, violations
from tests.reporting.page_files import HOSTILE

pytestmark = pytest.mark.browser
sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make test-browser")
pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed: make test-browser")
if CHROMIUM is None:
    pytest.skip("no browser is installed: apt install chromium", allow_module_level=True)

CASES = 16


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    """Two machines; the first has 16 cases, of which one changes, and a disturbed file."""
    folder = tmp_path_factory.mktemp("history")
    over_time.write_step(folder / "all", cases=tuple(range(2, 2 + CASES)))
    late = dict.fromkeys(range(2, 2 + CASES), 0.001)
    over_time.write(folder / "all", "late.jsonl", late, 40, HOSTILE, make=samples.disturbed)
    over_time.write(folder / "all", "other.jsonl", {2: 1e-3}, 3, host="there", cpu=HOSTILE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(change_points, "require_proposals", lambda: None)
        patch.setattr(change_points, "propose", lambda logs: [18] if max(logs) - min(logs) > 0.08 else [])
        deepbench.history(folder / "all").write_page(folder / "history.html", HOSTILE)
    return folder / "history.html"


def drawn(page):
    """Wait until the first chart is drawn, which it is when it comes into view."""
    page.locator("#charts .plot").first.scroll_into_view_if_needed()
    sync_api.expect(page.locator("#charts .plot .main-svg").first).to_be_attached()
    return page


def test_the_case_that_changed_has_a_chart_with_its_levels_and_its_change_point(visit, page_file):
    page = drawn(visit(page_file))
    chart = page.locator("#charts .plot").first

    assert 1 == page.locator("#charts figure").count()
    assert "1 of 1 charts" == page.inner_text("#shown")
    assert "gemm 2 × 3 × 4 NN f32, MKL" in page.inner_text("#charts figcaption")
    assert "with it: MKL 3.1 → 3.2." in page.inner_text("#charts figcaption")
    traces, shapes = chart.evaluate("div => [div.data, div.layout.shapes]")
    assert 31 == len(traces[0]["x"])
    assert "circle-open" == traces[0]["marker"]["symbol"][-1]
    levels = [y for y in traces[1]["y"] if y is not None]
    assert 1.1 == pytest.approx(levels[-1] / levels[0], rel=0.01)
    assert "2026-01-30T03:00:00Z" == [x for x in traces[1]["x"] if x is not None][-1]  # not that of the disturbed run
    assert ["2026-01-19T03:00:00Z"] == [shape["x0"] for shape in shapes]


def test_all_charts_come_in_portions_and_the_table_leads_to_each(visit, page_file):
    page = drawn(visit(page_file))
    machines, cases = page.locator("#choices select").all()
    cases.select_option(label="all")
    assert 12 == page.locator("#charts figure").count()
    page.get_by_role("button", name="Show more charts").click()
    assert CASES + 1 == page.locator("#charts figure").count()
    machines.select_option(index=1)
    assert f"12 of {CASES} charts" == page.inner_text("#shown")
    assert 12 == page.locator("#charts figure").count()
    page.locator("#table tbody button", has_text="gemm 9 × 3").first.click()

    assert "gemm 9 × 3" in page.locator("#charts figcaption").first.inner_text()
    assert "No change point." in page.locator("#charts figcaption").first.inner_text()
    assert page.evaluate("document.activeElement.tagName") == "FIGURE"


def test_the_table_has_every_case_and_filters(visit, page_file):
    page = visit(page_file)
    assert f"{CASES + 1} of {CASES + 1} rows" == page.inner_text("#count")
    page.locator("#filters input[type=search]").fill("m=9")
    sync_api.expect(page.locator("#count")).to_have_text(f"1 of {CASES + 1} rows")


def test_the_numbers_of_a_chart_can_be_saved(visit, page_file):
    page = drawn(visit(page_file))
    page.locator(".figure-tools summary").first.click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Save data (CSV)").first.click()
    lines = download.value.path().read_text().splitlines()

    assert 31 + 6 <= len(lines)
    assert "disturbed" in lines[0]
    assert "day018.jsonl" in "".join(lines)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 390])
def test_no_rule_of_accessibility_is_broken_and_nothing_is_wider_than_the_window(visit, page_file, width, scheme):
    page = drawn(visit(page_file, width, 900, scheme))

    assert [] == violations(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("img").count() == 0


def test_without_change_points_all_charts_are_shown(visit, page_file, tmp_path):
    over_time.write(tmp_path / "few", "a.jsonl", {2: 1e-3, 5: 2e-3}, 1)
    over_time.write(tmp_path / "few", "b.jsonl", {2: 1e-3, 5: 2e-3}, 2)
    deepbench.history(tmp_path / "few").write_page(tmp_path / "few.html")
    page = drawn(visit(tmp_path / "few.html"))

    assert 2 == page.locator("#charts figure").count()
    assert 0 == page.locator("#choices select").count()


def test_marks_say_where_the_machine_or_the_library_changed(visit, page_file):
    page = drawn(visit(page_file))
    chart = page.locator("#charts .plot").first
    traces, annotations = chart.evaluate("div => [div.data, div.layout.annotations]")
    marks = [(a["x"], a["hovertext"]) for a in annotations if a["text"] == "◆"]
    (label,) = [a for a in annotations if a["text"] != "◆"]

    assert ["2026-01-19T03:00:00Z", "2026-02-10T03:00:00Z"] == [at for at, _ in marks]
    assert "2026-01-19<br>MKL 3.1 → 3.2" == marks[0][1]
    assert "MKL 3.2 → &lt;/script&gt;" in marks[1][1]
    assert "<img" not in marks[1][1]
    assert label["text"].startswith("▲ ")
    assert "with it: MKL 3.1 → 3.2" in label["hovertext"]
    # The change point says what changed with it, so the sentence about marks has the other one only.
    caption = page.inner_text("#charts figcaption")
    assert "◆ The machine or the library changed (2026-02-10: MKL 3.2 → </script>" in caption
    assert ["MKL 3.1", "MKL 3.2"] == [text.split("<br>")[2] for text in (traces[0]["text"][17], traces[0]["text"][18])]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_saved_figure_has_the_labels_of_change_points_in_light_colors(visit, page_file, scheme):
    page = drawn(visit(page_file, scheme=scheme))
    page.locator(".figure-tools summary").first.click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Save figure").first.click()
    svg = download.value.path().read_text()

    assert "▲" in svg
    assert "◆" in svg
    assert "240, 176, 114" not in svg  # the color of a slower case in the dark theme


def test_a_label_near_an_edge_is_not_cut_off(visit, page_file):
    page = drawn(visit(page_file, 390, 844))
    places = page.evaluate("[0, 18, 30].map(at => anchorOf(content.charts[0], at))")
    box, chart = (page.locator(f"#charts {name}").first.bounding_box() for name in (".annotation-text", ".plot"))

    assert ["left", "center", "right"] == places
    assert chart["x"] <= box["x"]
    assert box["x"] + box["width"] <= chart["x"] + chart["width"]


def test_a_link_of_one_machine_shows_it_alone(visit, page_file):
    identities = visit(page_file).evaluate("content.files.map(file => file.identity)")
    page = drawn(visit(page_file, 390, 844, "dark", query=f"?machine={identities[1]}"))

    assert f"1 of {CASES + 1} rows" == page.inner_text("#count")
    assert "1 of 1 charts" == page.inner_text("#shown")
    assert "there" in page.inner_text("#charts figcaption")
    assert "1 case over 1 day, 0 changed." == page.inner_text(".verdict")
    assert page.inner_text("header .note").startswith("there: ")
    assert 0 == page.locator("[data-changes-of]:visible").count()
    assert [] == violations(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page = visit(page_file, query=f"?machine={identities[0]}")
    assert f"{CASES} of {CASES + 1} rows" == page.inner_text("#count")
    assert f"{CASES} cases over 41 days, 1 changed." == page.inner_text(".verdict")
    assert 1 == page.locator("[data-changes-of]:visible").count()
    page.get_by_role("link", name="All 2 machines").click()
    page.wait_for_url(lambda url: "machine=" not in url)
    ready(page)
    assert f"{CASES + 1} of {CASES + 1} rows" == page.inner_text("#count")
    assert f"{CASES + 1} of {CASES + 1} rows" == visit(page_file, query="?machine=none").inner_text("#count")


def test_the_page_of_a_machine_of_a_site_leads_to_its_history(visit, page_file, tmp_path):
    for name, host in (("mine", "there"), ("other", "nowhere")):
        over_time.write(tmp_path / "results", f"{name}.jsonl", {2: 1e-3}, host=host, cpu=HOSTILE)
    found = deepbench.history(page_file.parent / "all").found
    site.build(tmp_path / "results", tmp_path / "public", with_published=False, history=found)
    machines = tmp_path / "public" / "machines"
    assert not visit(machines / "other.html").locator("#history").is_visible()
    page = visit(machines / "mine.html")
    assert page.inner_text("#history").startswith("History: 1 case over 1 day")
    page.click("#history a")
    page.wait_for_url("**/history.html?machine=*")
    ready(page)

    assert f"1 of {CASES + 1} rows" == page.inner_text("#count")
