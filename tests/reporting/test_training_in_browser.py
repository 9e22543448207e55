"""The page of trained applications in a real browser: nothing overflows, nothing is loaded, axe finds nothing."""

import pytest

from deepbench.applications.reporting.page import write_page
from tests.help.trained import seeds, write
from tests.reporting.conftest import violations

pytestmark = pytest.mark.browser

pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed: make test-browser")

NAMES = ("image", "detection", "speech", "translation", "sentiment", "recommendation", "go")


def written(folder, *, shift=0.0):
    files = [
        write(folder / f"{name}.jsonl", [run for n in NAMES for run in seeds(3, application=n, chunk_s=s, shift=shift)])
        for name, s in (("first-machine", 10.0), ("second-machine", 14.0))
    ]
    write_page(files, folder / "page.html", None)
    return folder / "page.html"


@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.parametrize("shift", [0.0, -0.3])
def test_seven_applications_fit_the_screen(visit, tmp_path, width, shift):
    page = visit(written(tmp_path, shift=shift), width)

    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert 7 == page.locator(".curves svg").count()
    assert (0 if shift else 14) == page.locator(".stack").count()
    box = page.locator(".curves").bounding_box()
    if width == 1400:
        assert box["y"] + box["height"] <= 900  # all seven on one screen


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(visit, tmp_path, scheme):
    page = visit(written(tmp_path), 1400, scheme=scheme)

    assert [] == violations(page, of_any_impact=True)
