"""Draw the pictures of reports.md from the files in results/. Needs Chromium and Playwright."""

import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from playwright.sync_api import expect, sync_playwright

from deepbench.report import site
from deepbench.report.page import content, render
from deepbench.results.file import read_results, title_of

HERE = Path(__file__).parent
PICTURES = HERE / "pictures"
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


def main() -> None:
    """Draw a report, the report in dark mode on a phone with a case open, the index of a site, and a comparison."""
    files = sorted((HERE.parent / "results").glob("*.jsonl*"))
    largest = max(files, key=lambda path: path.stat().st_size)
    name = title_of(Path(largest.name))
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        data = {"files": [content.of_file(read_results(largest), name)], "pairs": []}
        report = Path(folder) / "report.html"
        report.write_bytes(render.page(data, f"DeepBench: {name}"))
        public = Path(folder) / "public"
        site.build(HERE.parent / "results", public, with_published=True)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])

        def screenshot(
            picture: str, path: Path, width: int, height: int, scheme: str = "light", click: str = "", query: str = ""
        ):
            page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
            page.goto(path.as_uri() + query)
            expect(page.locator("html[data-ready=yes]")).to_be_attached()
            if click:
                page.click(click)
                page.evaluate("document.getElementById('table').scrollIntoView()")
            page.wait_for_timeout(1200)
            page.screenshot(path=PICTURES / picture)
            page.close()

        screenshot("report.png", report, 1200, 1500)
        screenshot("report-dark.png", report, 420, 900, "dark", "#table tbody button >> nth=2")
        screenshot("site.png", public / "index.html", 1300, 900)
        query = f"?a={name}&b=nvidia-gtx-1080-ti"
        screenshot("compare.png", public / "compare.html", 1200, 1100, query=query)
        browser.close()


if __name__ == "__main__":
    main()
