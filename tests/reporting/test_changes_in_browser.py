"""What changed between two files, in a real browser: read as an engineer with a new library build would.

Wants Chromium, and playwright and axe from PyPI: make test-browser.
"""

import pytest

from deepbench.reporting.page import report
from deepbench.results.file import read_results
from tests.help import samples
from tests.reporting.conftest import CHROMIUM, violations

pytestmark = pytest.mark.browser
sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make test-browser")
pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed: make test-browser")
if CHROMIUM is None:
    pytest.skip("no browser is installed: apt install chromium", allow_module_level=True)

HOSTILE = "</script><img src=x onerror=alert(1)>{{7*7}}"
SLOWER, FASTER, SAME = 25, 5, 6


def file_of(path, version, factor, implementation):
    """36 cases; `factor` is the time of the first 30 by their number, from 0."""
    records = []
    for i in range(SLOWER + FASTER + SAME):
        text = f"gemm m={i + 1} n=2 k=4 a_t=0 b_t=0 forward f32 onednn threads=1"
        for number, noise in enumerate((1.0, 1.001, 0.999, 1.002, 0.998), 1):
            record = samples.measured(seconds=1e-3 * factor(i) * noise, round_number=number, text=text)
            record["library"]["version"] = version
            record["notes"]["implementation"] = implementation if i == 7 else "brg:avx512_core"
            records.append(record)
    return read_results(samples.write(path, records))


def factor(i):
    return 1.5 if i == 7 else 1.1 + i / 1000 if i < SLOWER else 0.8 if i < SLOWER + FASTER else 1.0


@pytest.fixture(scope="session")
def two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    old = file_of(folder / "old.jsonl", "3.5", lambda i: 1.0, "brg:avx512_core_amx")
    new = file_of(folder / "new.jsonl", "3.6", factor, HOSTILE)
    report.write_report([old, new], ["NVIDIA Tesla V100"], folder / "two.html", None)
    return folder / "two.html"


def test_did_my_new_library_build_make_anything_slower(visit, two):
    """The answer needs no click, and its evidence one."""
    page = visit(two)
    section = page.locator(".changes")
    headings = page.locator("main h2").all_inner_texts()
    first, *_ = section.locator(".verdict li").all_inner_texts()

    assert ["What changed: old.jsonl → new.jsonl", "old.jsonl"] == headings[:2]
    assert first.startswith("Slower: 25 of 36 cases, most 1.50× (gemm 8 × 2 × 4 NN f32, oneDNN; implementation: brg")
    assert "oneDNN: version 3.5 → 3.6" in section.inner_text()
    assert section.locator("tbody tr").first.bounding_box()["y"] < 900  # on the first screen
    cells = section.locator("tbody tr").first.locator("th, td").all_inner_texts()
    assert "8 × 2 × 4 NN" in cells[0]
    assert cells[1].startswith("1.50× slower")
    assert "999 µs → 1.50 ms" == cells[2]
    assert f"implementation: brg:avx512_core_amx → {HOSTILE}" == cells[3]

    section.locator("tbody tr").first.get_by_role("button").click()
    assert "8 × 2 × 4 NN" in page.inner_text("#details-title")
    change = page.locator("#details .change")
    assert "new.jsonl is 1.50× slower than old.jsonl (95 % confidence interval 1.50× to" in change.inner_text()
    assert f"Verdict: slower. Reason: implementation: brg:avx512_core_amx → {HOSTILE}." in change.inner_text()
    sides = [row.inner_text() for row in change.locator("tbody tr").all()]
    assert all(text in sides[0] for text in ("old.jsonl", "999 µs", "brg:avx512_core_amx", "oneDNN 3.5"))
    assert all(text in sides[1] for text in ("new.jsonl", "1.50 ms", HOSTILE, "oneDNN 3.6"))
    assert "In new.jsonl" == change.locator("h3").inner_text()


def test_every_dialog_names_its_file_and_a_point_of_the_chart_opens_both_sides(visit, two):
    page = visit(two)
    page.locator("#table tbody button").first.click()
    assert "File\nold.jsonl" in page.inner_text("#details dl")
    page.keyboard.press("Escape")

    chart = page.locator("[data-pair='0'] .plot")
    chart.scroll_into_view_if_needed()
    chart.locator(".main-svg").first.wait_for()
    names = chart.evaluate("(div) => div.data.map((trace) => trace.name)")
    chart.evaluate("(div) => div.emit('plotly_click', { points: [{ customdata: div.data[0].customdata.at(-1) }] })")
    assert "8 × 2 × 4 NN" in page.inner_text("#details-title")
    assert "Both sides of this case" in page.locator("#details .change caption").inner_text()
    assert "cannot tell" not in names


def test_the_page_says_why_a_ratio_is_not_the_quotient_of_the_times(visit, two):
    text = visit(two).inner_text(".changes")

    assert "compares the faster halves of the processes of both sides; the times are the lower quartiles" in text
    assert "Probably" not in text  # its cases moved in both directions


def test_other_cases_name_what_all_share_and_a_button_shows_them_all(visit, two):
    page = visit(two)
    section = page.locator(".changes")

    def ratios():
        return [cell.split("\n")[0] for cell in section.locator("tbody td:nth-child(2)").all_inner_texts()]

    assert 20 == len(ratios())
    assert "oneDNN 3.5 → 3.6" == section.locator("tbody tr").nth(1).locator("td").last.inner_text()
    button = section.get_by_role("button", name="Show all 30")
    button.focus()
    page.keyboard.press("Enter")
    assert [25, 5] == [sum(word in ratio for ratio in ratios()) for word in ("slower", "faster")]
    assert "25.0 % faster" == ratios()[-1]
    page.keyboard.press("Enter")  # the button keeps the focus
    assert 20 == len(ratios())


def test_links_lead_to_means_chart_and_all_cases(visit, two):
    page = visit(two)
    links = page.locator(".changes nav a")
    targets = [link.get_attribute("href") for link in links.all()]

    assert ["#pair-1", "#cases"] == targets
    assert all(page.locator(target).count() == 1 for target in targets)
    assert 1 == page.locator(".changes").count()  # not for the published machine
    assert page.locator("[data-pair='0'] figure").count() == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1300, 390])
def test_it_fits_the_window_and_is_accessible(visit, two, scheme, width):
    page = visit(two, width=width, scheme=scheme)

    assert [] == violations(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    is_card = page.evaluate("getComputedStyle(document.querySelector('.changes tbody td')).display") == "flex"
    assert is_card == (width == 390)


def test_two_files_without_a_common_case_say_so_first(visit, tmp_path):
    files = [
        read_results(samples.write(tmp_path / f"{backend}.jsonl", [samples.measured(backend)]))
        for backend in ("mkl", "openblas")
    ]
    report.write_report(files, [], tmp_path / "none.html", None)

    assert "no measured case in common" in visit(tmp_path / "none.html").inner_text(".changes .verdict")
