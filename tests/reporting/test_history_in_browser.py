"""The page about each case over time, in a real browser.

Wants Chromium, and playwright and axe from PyPI: make test-browser.
"""

import pytest

import deepbench
from deepbench.judge import change_points
from tests.help import over_time, samples
from tests.reporting.conftest import CHROMIUM, violations
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
    """Wait until the first chart is drawn."""
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
