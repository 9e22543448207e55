"""The page of a conformance report in a real browser: nothing overflows, nothing is loaded, axe finds nothing."""

import pytest

from deepbench.judge.conformance import judge
from deepbench.reporting.conformance import write_page
from deepbench.results.file import read_results
from tests.help import samples
from tests.reporting.conftest import violations
from tests.reporting.page_files import HOSTILE

pytestmark = pytest.mark.browser

pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed: make test-browser")

ENDINGS = ("ok", "unsupported", "wrong", "crashed", "timeout", "out_of_memory")


def written(folder):
    records = []
    for i, precision in enumerate(("f32", "bf16", "f16", "i8", "i8u8", "f8e4m3")):
        for m in (64, 1000):
            text = f"gemm m={m} n=32 k=16 a_t=0 b_t=0 forward {precision} pjrt threads=1 device=pjrt:chip"
            record = samples.measured("pjrt", text=text)
            if m == 64 and i:
                record |= {"status": ENDINGS[i], "reason": f"{HOSTILE} {'x' * 10_000}", "measurement": None}
            records.append(record)
    path = samples.write(folder / "r.jsonl", records, samples.header([r["case"] for r in records]))
    write_page(judge(read_results(path), {"f32": 1e3, "bf16": 1e15}), folder / "page.html")
    return folder / "page.html"


@pytest.mark.parametrize("width", [1400, 390])
def test_a_report_with_hostile_reasons_fits_the_screen(visit, tmp_path, width):
    page = visit(written(tmp_path), width)

    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert 0 == page.locator("img").count()
    assert "Of 12 cases, 7 are right" in page.locator(".result").inner_text()
    assert 1 == page.get_by_text("(impossible)").count()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(visit, tmp_path, scheme):
    page = visit(written(tmp_path), 1400, scheme=scheme)

    assert [] == violations(page, of_any_impact=True)
