"""The section "Which machine?" in a real browser: of a page of several files, of one file, and of a site.

Wants Chromium, and playwright and axe from PyPI: make test-browser.
"""

import pytest

from deepbench.core import units
from deepbench.judge import totals
from deepbench.judge.ranking import Machine, competing, rankings
from deepbench.plan.suites import read_suite
from deepbench.reporting import ranking as tables
from deepbench.reporting import site
from deepbench.reporting.page import content
from deepbench.reporting.page.preset import Preset
from deepbench.reporting.page.report import write_report
from deepbench.reporting.table import time_text
from deepbench.results import published
from deepbench.results.file import read_results
from tests.help import samples
from tests.reporting.conftest import CHROMIUM, ready, violations

pytestmark = pytest.mark.browser
sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make test-browser")
pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed: make test-browser")
if CHROMIUM is None:
    pytest.skip("no browser is installed: apt install chromium", allow_module_level=True)

T4 = "NVIDIA T4"
TABLE = ".answer + div table"
HOSTILE = "<img src=x onerror=alert(1)>.jsonl"
PRICES = {"fast.jsonl": 5.0, "near.jsonl": 2.0, "slow.jsonl": 1.99}


def ocr(seconds, rounds=3, precision="i8"):
    spread = (1.0, 1.01, 1.02)[:rounds]
    return [{**r, "round": n} for n, f in enumerate(spread, 1) for r in samples.ocr(precision, seconds * f)]


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """Three machines with OCR: a fast one, one that is cheaper, and one that takes nearly as long as that one."""
    folder = tmp_path_factory.mktemp("machines")
    times = {"fast.jsonl": 1e-3, "near.jsonl": 2e-3, "slow.jsonl": 2.01e-3}
    return [read_results(samples.write(folder / name, ocr(time))) for name, time in times.items()]


@pytest.fixture(scope="session")
def three(files, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "three.html"
    write_report(files, ["NVIDIA Tesla V100"], path, None)
    return path


@pytest.fixture(scope="session")
def one(tmp_path_factory):
    """A page of one file: a whole total in 8 bits, a disturbed one in f32, and three of four kernels in bf16."""
    folder = tmp_path_factory.mktemp("one")
    f32, *others = samples.ocr("f32")
    disturbed = {**samples.disturbed(text=f32["case"]), "sources": f32["sources"]}
    records = [*ocr(1e-3), disturbed, *others, *samples.ocr("bf16")[:3], *samples.ocr("f16f16", 1e-6)]
    found = read_results(samples.write(folder / HOSTILE, records))
    write_report([found], [], folder / "one.html", "One")
    return folder / "one.html", content.of_file(found, HOSTILE)


def select(page, label):
    return page.locator(f"[data-machines] label:has-text('{label}') select, #top label:has-text('{label}') select")


def choose(page, label, option):
    select(page, label).select_option(label=option)


def price(page, machine):
    return page.get_by_label(f"Price per hour of {machine}", exact=True)


def cells(page):
    """The rows of the table: cells by the heading of their column."""
    table = page.locator(TABLE)
    titles = table.locator("thead th").all_inner_texts()
    rows = table.locator("tbody tr").all()
    return [dict(zip(titles, r.locator("th, td").all_inner_texts(), strict=True)) for r in rows]


def answer(page):
    return page.inner_text(".answer")


def machines_of(files, prices):
    sums = [totals.of_summaries(content.summarize(f.records, f.order)) for f in files]
    return [
        Machine(f.path.name, "measured", of_file, prices.get(f.path.name))
        for f, of_file in zip(files, sums, strict=True)
    ]


def test_which_of_three_machines_is_the_cheapest_is_one_choice_and_three_prices_away(visit, three, files):
    page = visit(three)
    choose(page, "Application", "OCR (server)")
    (by_time,) = rankings(machines_of(files, {}), competing(()))
    assert tables.answer(by_time) == answer(page)
    assert "fast.jsonl is 2.00× faster than near.jsonl; the intervals do not overlap: certain at 95 %." in answer(page)
    for name, value in PRICES.items():
        price(page, name).press_sequentially(str(value))

    assert "cost" == select(page, "Rank by").input_value()
    (by_cost,) = rankings(machines_of(files, PRICES), competing(()))
    assert tables.answer(by_cost) == answer(page)
    assert "overlap: the order is uncertain" in answer(page)
    expected = [(p.machine.name, units.significant(p.cost)) for p in by_cost.places]
    assert expected == [(row["Machine"], row["Cost of a million passes"]) for row in cells(page)]


@pytest.mark.parametrize(
    "prices",
    [{}, PRICES, {"fast.jsonl": 2.0, "near.jsonl": 2.0}, {"fast.jsonl": 1.0, "near.jsonl": 3.0, "slow.jsonl": 0.7}],
)
def test_the_page_says_what_the_command_says(visit, three, files, prices):
    page = visit(three)
    choose(page, "Application", "OCR (server)")
    for name, value in prices.items():
        price(page, name).fill(str(value))
    if len(prices) < len(files):
        choose(page, "Rank by", "time")
    machines = machines_of(files, prices)
    page.get_by_label("NVIDIA T4 (2019)", exact=True).check()
    machines.append(Machine(T4, "imported", totals.of_summaries(published.summaries(T4)), 0.5 if prices else None))
    if prices:
        price(page, "NVIDIA T4").fill("0.5")
    (ranking,) = [r for r in rankings(machines, competing(())) if r.title == "OCR (server)"]

    assert tables.answer(ranking) == answer(page)
    rows = {row["machine"]: row for row in tables.rows_of(ranking)}
    for shown in cells(page):
        row = rows[shown["Machine"]]
        assert time_text(row["time"]) == shown["Total time"]
        assert units.plus_minus(row["±"]) == shown["±"]
        assert str(row["rank"]) == shown["Rank"]
        assert shown["vs best"].endswith(row["interval"] or "")


@pytest.fixture(scope="session")
def noisy(tmp_path_factory):
    """Two files and a disturbed one that is below both of them, and one that has kernels in another precision only."""
    folder = tmp_path_factory.mktemp("noisy")
    made = {"quiet": ocr(1e-3), "slow": ocr(2e-3), "f16f16": ocr(1e-3, precision="f16f16")}
    made["noisy"] = [
        {**samples.disturbed(text=r["case"], seconds=0.5e-3), "sources": r["sources"]} for r in samples.ocr()
    ]
    made["none"] = [samples.measured()]
    files = [read_results(samples.write(folder / f"{name}.jsonl", records)) for name, records in made.items()]
    write_report(files, [], folder / "noisy.html", None)
    return files, folder / "noisy.html"


@pytest.mark.parametrize("prices", [{}, {"quiet.jsonl": 1.0, "slow.jsonl": 1.0, "noisy.jsonl": 1.0},
                                    {"quiet.jsonl": 1.0, "slow.jsonl": 1.0, "noisy.jsonl": 3.0}])  # fmt: skip
def test_the_page_ranks_an_upper_bound_as_the_command_does(visit, noisy, prices):
    files, path = noisy
    page = visit(path)
    choose(page, "Application", "OCR (server)")
    for name, value in prices.items():
        price(page, name).fill(str(value))
    (ranking,) = rankings(machines_of(files, prices), competing(()))
    rows = {row["machine"]: row for row in tables.rows_of(ranking)}
    shown = cells(page)

    assert tables.answer(ranking) == answer(page)
    assert (prices.get("noisy.jsonl") == 3.0) == ("Not ranked: noisy.jsonl (4 times disturbed)" in answer(page))
    assert [p.machine.name for p in ranking.places if p.total] == [row["Machine"] for row in shown]
    for row in shown:
        wanted = rows[row["Machine"]]
        assert (str(wanted["rank"] or "–"), time_text(wanted["time"])) == (row["Rank"], row["Total time"])
    hint = page.inner_text("[data-machines]")
    assert tables.UNRANKED in hint
    assert "No kernel of the application in a precision that competes: f16f16.jsonl." in hint
    assert "No kernel of the application: none.jsonl." in hint


def test_energy_has_no_upper_bound(visit, noisy):
    page = visit(noisy[1])
    choose(page, "Application", "OCR (server)")
    choose(page, "Rank by", "energy")

    assert "no machine can be ranked" in answer(page)


def test_prices_are_neither_stored_nor_kept(visit, three):
    page = visit(three)
    choose(page, "Application", "OCR (server)")
    assert "Cost of a million passes" not in page.inner_text(TABLE)
    price(page, "fast.jsonl").fill("3")
    assert "near.jsonl (no price)" in answer(page)
    assert "no price" == next(row for row in cells(page) if row["Machine"] == "near.jsonl")["Cost of a million passes"]
    for text in ("-1", "0"):
        price(page, "fast.jsonl").fill(text)
        assert page.get_by_text("A price must be greater than 0. Not used: fast.jsonl.").is_visible()
    assert "true" == price(page, "fast.jsonl").get_attribute("aria-invalid")
    price(page, "fast.jsonl").fill("")
    assert not page.get_by_text("A price must be greater").count()
    assert "Prices are neither stored nor sent." in page.inner_text("[data-machines]")
    assert "time" == select(page, "Rank by").input_value()
    page.reload()
    ready(page)
    assert "" == price(page, "fast.jsonl").input_value()


def test_an_application_and_prices_of_the_command_line_are_chosen_at_first(visit, files, tmp_path):
    preset = Preset([T4], "OCR", {**PRICES, T4: 0.5})
    write_report(files, [], tmp_path / "preset.html", None, preset=preset)
    page = visit(tmp_path / "preset.html")

    assert "OCR (server)" == select(page, "Application").input_value()
    assert "cost" == select(page, "Rank by").input_value()
    assert "5" == price(page, "fast.jsonl").input_value()
    assert page.get_by_label("NVIDIA T4 (2019)", exact=True).is_checked()
    machines = machines_of(files, PRICES)
    machines.append(Machine(T4, "imported", totals.of_summaries(published.summaries(T4)), 0.5))
    (ranking,) = [r for r in rankings(machines, competing(())) if r.title == "OCR (server)"]
    assert tables.answer(ranking) == answer(page)
    assert "Prices that you enter are neither stored nor sent." in page.inner_text("[data-machines]")


def test_a_matrix_by_cost_says_what_its_cells_are_and_where_a_price_is_missing(visit, three):
    page = visit(three)
    assert "Cells: time of one pass, and the precision." in page.inner_text("[data-machines]")
    price(page, "near.jsonl").fill("2")
    price(page, "fast.jsonl").fill("3")
    (row,) = cells(page)

    assert "Cells: cost of a million passes, and the precision; in the currency of the prices." in (
        page.inner_text("[data-machines]")
    )
    assert row["slow.jsonl"].startswith("no price")


def test_best_with_a_question_mark_is_explained_wherever_it_occurs(visit, three):
    page = visit(three)
    explained = "best?: the time is the lowest, but another machine could be the best, too."
    assert explained not in page.inner_text("[data-machines]")
    page.get_by_role("checkbox", name="fast.jsonl").uncheck()
    assert explained in page.inner_text("[data-machines]")
    choose(page, "Application", "OCR (server)")
    assert "best?" == cells(page)[0]["vs best"]
    assert explained in page.inner_text("[data-machines]")


def test_a_machine_without_an_interval_changes_the_certainty_only_of_the_best_two(visit, files, tmp_path):
    wide = [{**r, "round": n} for n, s in enumerate((1.6e-3, 4e-3, 1e-2), 1) for r in samples.ocr(seconds=s)]
    for name, rounds in (("quick.jsonl", ocr(29e-3, rounds=1)), ("wide.jsonl", wide)):
        files = [*files, read_results(samples.write(tmp_path / name, rounds))]
    write_report(files, [], tmp_path / "five.html", None)
    page = visit(tmp_path / "five.html")
    choose(page, "Application", "OCR (server)")
    (ranking,) = rankings(machines_of(files, {}), competing(()))

    assert tables.answer(ranking) == answer(page)
    assert "certain at 95 %. Could also be the best: wide.jsonl (intervals overlap). More rounds" in answer(page)
    page.get_by_role("checkbox", name="wide.jsonl").uncheck()
    assert answer(page).endswith("certain at 95 %.")


def test_below_a_ranking_stands_what_the_best_total_consists_of(visit, three):
    page = visit(three)
    assert "of the time." not in page.inner_text("[data-machines]")
    choose(page, "Application", "OCR (server)")

    assert page.get_by_text("fast.jsonl: conv 100 % of the time.", exact=True).is_visible()


def test_the_matrix_has_a_row_per_application_and_names_the_best(visit, three):
    page = visit(three)
    (row,) = cells(page)

    assert ["Application", "fast.jsonl", "near.jsonl", "slow.jsonl"] == list(row)
    assert "OCR (server)" == row["Application"]
    assert row["fast.jsonl"].endswith("i8 best")
    assert not row["near.jsonl"].endswith("best")
    # Any number of machines, by keyboard.
    page.get_by_role("checkbox", name="fast.jsonl").focus()
    page.keyboard.press("Space")
    assert "best?" in cells(page)[0]["near.jsonl"]
    page.get_by_role("button", name="Tick none").click()
    assert "Choose machines." == answer(page)
    page.get_by_role("button", name="Tick all").click()
    assert "NVIDIA T4" in cells(page)[0]


def test_one_file_stands_next_to_published_machines_in_the_same_table(visit, one):
    path, data = one
    page = visit(path)
    (machine,) = [m for m in data["first"]["machines"] if m["name"] == "NVIDIA TitanXp"]
    choose(page, "Application", "OCR (server)")
    page.get_by_label(f"NVIDIA TitanXp ({machine['year']})", exact=True).check()
    row = next(r for r in cells(page) if r["Machine"] == HOSTILE)
    assert ("i8, 1 thread", "4 of 4") == (row["Precision"], row["Kernels"])

    choose(page, "Precision", "32 bits")
    row = next(r for r in cells(page) if r["Machine"] == HOSTILE)
    assert ("–", "4 of 4, 1 disturbed") == (row["Rank"], row["Kernels"])
    assert f"{HOSTILE} (1 time disturbed)" in answer(page)
    choose(page, "Precision", "16 bits")
    row = next(r for r in cells(page) if r["Machine"] == HOSTILE)
    assert ("–", "–", "3 of 4") == (row["Rank"], row["Total time"], row["Kernels"])
    # A precision below DeepBench's minimum competes only if it is asked for.
    choose(page, "Precision", "f16f16, below the minimum")
    assert "f16f16, 1 thread" == cells(page)[0]["Precision"]


def test_a_page_of_one_file_ticks_a_published_machine_only_if_it_has_a_total(visit, tmp_path):
    whole = read_results(samples.write(tmp_path / "whole.jsonl", ocr(1e-6)))
    write_report([whole], [], tmp_path / "whole.html", None)
    page = visit(tmp_path / "whole.html")
    assert 2 == page.locator("[data-machines] input:checked").count()
    # The published machine is far slower: it leaves no doubt which one is the best.
    assert cells(page)[0]["whole.jsonl"].endswith("i8 best")
    part = read_results(samples.write(tmp_path / "part.jsonl", ocr(1e-3)[:2]))
    write_report([part], [], tmp_path / "part.html", None)
    page = visit(tmp_path / "part.html")
    assert ["part.jsonl"] == page.locator("[data-machines] label.box:has(input:checked)").all_inner_texts()
    assert "best" not in page.inner_text(TABLE)


def test_where_a_machine_lacks_kernels_the_ratio_over_the_common_ones_is_shown(visit, tmp_path):
    entries = [e for e in read_suite("deepbench/device") if e.source["application"] == "Keyword Spotting"]
    entry = next(e for e in entries if e.pattern.op == "gemm")
    text = f"{entry.pattern.op} {entry.pattern.problem.text} forward i8 onednn threads=1"
    record = {**samples.measured(text=text), "sources": [entry.source]}
    found = read_results(samples.write(tmp_path / "mine.jsonl", [record]))
    write_report([found], [], tmp_path / "mine.html", None)
    machines = content.of_file(found, "mine")["first"]["machines"]
    name, (ratio, compared, _) = next((m["name"], m["common"][0]) for m in machines if m["common"][0])
    page = visit(tmp_path / "mine.html")

    expected = (
        f"{units.faster_or_slower(ratio)} than mine.jsonl over {compared} common kernel{'s' * (compared > 1)} (i8)"
    )
    page.get_by_role("checkbox", name=name).check()
    assert expected in cells(page)[0][name]
    choose(page, "Application", "Keyword Spotting (device)")
    row = next(r for r in cells(page) if r["Machine"] == name)
    assert expected == row["vs best"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.parametrize("view", ["all applications", "OCR (server)"])
def test_the_section_fits_and_has_no_accessibility_problem(visit, three, width, scheme, view):
    page = visit(three, width=width, height=844, scheme=scheme)
    choose(page, "Application", view)
    price(page, "near.jsonl").fill("3.5")

    assert page.evaluate("document.documentElement.scrollWidth") <= width
    row = page.locator("[data-machines] tbody tr").first
    tops = [cell.bounding_box()["y"] for cell in row.locator("th, td").all()]
    assert (len(set(tops)) == len(tops)) == (width == 390)  # on a phone one below the other
    assert [] == violations(page)


def test_a_site_ranks_all_machines_and_links_to_them(visit, tmp_path):
    folder = tmp_path / "results"
    samples.write(folder / "slow.jsonl", ocr(2e-3))
    samples.write(folder / "fast.jsonl", ocr(1e-3))
    samples.write(folder / "part.jsonl", samples.ocr(seconds=1e-6)[:3])
    noisy = [{**samples.disturbed(text=r["case"]), "sources": r["sources"]} for r in samples.ocr()]
    samples.write(folder / "noisy.jsonl", noisy)
    site.build(folder, tmp_path / "public", with_published=False)
    page = visit(tmp_path / "public" / "index.html")
    rows = [[row[name] for name in ("Machine", "Rank", "Total time", "Kernels")] for row in cells(page)]

    assert ["all applications", "OCR (server)"] == select(page, "Application").locator("option").all_inner_texts()
    assert ["fast", "1", "4.02 ms", "4 of 4"] == rows[0]
    assert ["slow", "2", "8.04 ms", "4 of 4"] == rows[1]
    assert ["noisy", "–", "≤ 4.0 ms", "4 of 4, 4 disturbed"] == rows[2]
    assert ["part", "–", "–", "3 of 4"] == rows[3]
    expected = "fast is 2.00× faster than slow; the intervals do not overlap: certain at 95 %. Not ranked: noisy"
    assert expected in answer(page)
    page.click(f"{TABLE} tbody a >> nth=0")
    ready(page)
    assert "4.02 ms i8" in cells(page)[0]["fast"]
