"""The page "Which GPU for my model?" in a real browser, with a small package of tables.

Wants Chromium, and playwright and axe from PyPI: make test-browser.
"""

from itertools import pairwise

import pytest

from deepbench.core import units
from deepbench.gpus import ranking
from deepbench.gpus.reporting import page as pages
from deepbench.gpus.reporting import ranking as tables
from deepbench.gpus.serving.steps import FORMATS
from tests.gpus import small_tables
from tests.reporting.conftest import CHROMIUM, violations
from tests.reporting.page_files import HOSTILE

pytestmark = pytest.mark.browser
sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make test-browser")
pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed: make test-browser")
if CHROMIUM is None:
    pytest.skip("no browser is installed: apt install chromium", allow_module_level=True)

GPUS = ["h100_sxm", "l40s"]
SMALL, LARGE = "llm/llama32_1b", "llm/llama31_70b"
STEPS = {"PRECISIONS": ("bf16", "fp8"), "BATCHES": (1, 16, 256), "CONTEXTS": (1024, 16384)}


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The small package is the one that is installed."""
    root = tmp_path_factory.mktemp("gpus")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEEPBENCH_GPU_TABLES", str(small_tables.write_package(root / "systems")))
        patch.setenv("DEEPBENCH_STATE", str(root / "state"))
        for name, values in STEPS.items():
            patch.setattr(pages, name, values)
        small_tables.forget()
        yield root
    small_tables.forget()


@pytest.fixture(scope="module")
def page_file(package):
    path = package / "gpus.html"
    path.write_bytes(pages.page(pages.content([SMALL, LARGE], GPUS), HOSTILE))
    return path


def choose(page, label, option):
    page.locator("#choices label", has_text=label).locator("select").select_option(label=option)


def price(page, gpu, value):
    page.get_by_label(f"Price per hour of one {gpu}", exact=True).fill(value)


def cells(page):
    """The rows of the table: cells by the heading of their column."""
    table = page.locator("#ranking .cards")
    titles = table.locator("thead th").all_inner_texts()
    rows = table.locator("tbody tr").all()
    return [dict(zip(titles, row.locator("th, td").all_inner_texts(), strict=True)) for row in rows]


@pytest.mark.parametrize("prices", [{}, {"h100_sxm": 2.5}, {"h100_sxm": 2.5, "l40s": 0.8}])
@pytest.mark.parametrize(
    ("model", "phase", "precision", "batch", "context"),
    [
        (SMALL, "decode", "bf16", 1, 1024),
        (SMALL, "prefill", "fp8", 16, 16384),
        (LARGE, "decode", "fp8", 16, 1024),
        (LARGE, "decode", "bf16", 256, 16384),  # no GPU holds it
    ],
)
def test_the_page_says_what_the_command_says(visit, page_file, model, phase, precision, batch, context, prices):
    settings = {"batch": str(batch), "context": str(context)}
    found = ranking.rank(model, GPUS, phase, settings, FORMATS[precision], prices=prices)
    page = visit(page_file)
    choose(page, "Model", found.title)
    for label, value in {"Phase": phase, "Precision": precision, "batch": batch, "context": context}.items():
        choose(page, label, str(value))
    for gpu, value in prices.items():
        price(page, gpu, str(value))

    assert " ".join(tables.verdict(found)) == page.inner_text(".answer")
    assert tables.heading(found) == page.inner_text("#ranking > .note")
    shown = cells(page)
    rows = tables.table(found).rows
    assert [str(row["gpu"]) for row in rows] == [row["GPU"] for row in shown]
    for candidate, row, seen in zip(found.candidates, rows, shown, strict=True):
        assert str(row["devices"]) == seen["GPUs"]
        if not candidate.is_ranked:
            assert page.locator(".gpu-bars tr", has_text=candidate.sheet.title).inner_text().endswith(row["note"])
            assert {"–"} == {
                seen[name] for name in ("step", "from", "to", "tokens/s") if name in seen
            } or not found.ranked
            continue
        expected = [units.seconds(row[name]) for name in ("time_s", "low_s", "high_s")]
        assert expected == [seen[name] for name in ("step", "from", "to")]
        assert units.short_count(row["units_per_s"]) == seen["tokens/s"]
        assert units.percent(row["measured"]) == seen["measured"]
        assert (tables.money(row["cost"]) if row["cost"] is not None else "–") == seen.get("cost per M tokens", "–")
        assert f"≤ {units.significant(row['joules'], 2)} J" == seen["energy per token"]


def test_a_gpu_that_does_not_hold_the_model_has_a_sentence_in_place_of_its_bar(visit, page_file):
    page = visit(page_file)
    choose(page, "Model", "Llama 3.1 70B")
    choose(page, "Precision", "fp8")
    assert 2 == page.locator(".track").count()
    choose(page, "batch", "256")
    choose(page, "context", "16384")

    assert 0 == page.locator(".track").count()
    assert 2 == page.locator(".gpu-bars td:has-text('does not fit into the memory')").count()
    assert "No GPU has a time of this step and holds the model." == page.inner_text(".answer")


def test_a_model_without_any_time_is_said_to_have_none(visit, package):
    content = pages.content([SMALL, LARGE], GPUS[:1])
    content["models"][1]["steps"].clear()
    (package / "none.html").write_bytes(pages.page(content, "GPUs"))
    page = visit(package / "none.html")
    choose(page, "Model", "Llama 3.1 70B")

    assert "No GPU of this page has times of this model." == page.inner_text(".answer")
    assert 0 == page.locator(".track").count()
    choose(page, "Model", "Llama 3.2 1B")
    assert 1 == page.locator(".track").count()


def test_a_price_that_is_none_is_not_used(visit, page_file):
    page = visit(page_file)
    price(page, "h100_sxm", "2")
    assert "By time, because there is no price of l40s." in page.inner_text("#ranking")
    price(page, "l40s", "-1")

    assert "A price must be greater than 0. Not used: l40s." == page.inner_text(".machine-list .mark")
    assert "is the fastest" in page.inner_text(".answer")
    price(page, "l40s", "0.5")
    assert "costs least per million tokens" in page.inner_text(".answer")


def test_everything_is_reached_by_keyboard(visit, page_file):
    page = visit(page_file)
    reached = []
    for _ in range(9):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.tagName"))

    assert ["A", *["SELECT"] * 5, *["INPUT"] * 2, "DIV"] == reached


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 390])
def test_no_rule_of_accessibility_is_broken_and_nothing_is_wider_than_the_window(visit, page_file, width, scheme):
    page = visit(page_file, width, 900, scheme)
    for gpu in GPUS:
        price(page, gpu, "1")

    assert [] == violations(page, of_any_impact=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert HOSTILE.replace("\x1b", "").split("<")[0] in page.title()


def test_on_paper_there_are_no_overlaps_and_bars_keep_their_color(visit, page_file):
    page = visit(page_file, 700, 900)
    page.emulate_media(media="print")
    boxes = [box.bounding_box() for box in page.locator(".gpu-bars tbody tr").first.locator("th, td").all()]

    assert "exact" == page.locator(".track .fill").first.evaluate("e => getComputedStyle(e).printColorAdjust")
    assert page.evaluate("document.documentElement.scrollWidth") <= 700
    for left, right in pairwise(boxes):
        assert left["x"] + left["width"] <= right["x"] + 1
