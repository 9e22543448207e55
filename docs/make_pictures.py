"""Draw the pictures of the documentation from the files in results/. Needs Chromium and Playwright.

The terminals show what the command prints in a terminal of that width.
"""

import io
import re
import shlex
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from playwright.sync_api import expect, sync_playwright
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from deepbench.core import units
from deepbench.gpus import package, ranking
from deepbench.gpus.serving.steps import FORMATS
from deepbench.reporting import site
from deepbench.reporting.bars import StackedBar, svg
from deepbench.reporting.page import content, render
from deepbench.results.file import read_results, title_of
from tests.help.terminal import output_of
from tests.reporting.conftest import CHROMIUM

HERE = Path(__file__).parent
PICTURES = HERE / "pictures"


# Rows of a long output at its beginning, and at its end, which a person sees who has typed the command.
FIRST_ROWS, LAST_ROWS = 20, 23

TERMINAL = """<body style="margin: 0"><pre id="terminal" style="display: inline-block; margin: 0; padding: 12px 14px;
background: {background}; color: {foreground}; font: 14px/1.25 'DejaVu Sans Mono', monospace">{code}</pre></body>"""


def terminal_html(columns: int, words: list[str]) -> str:
    """A page with what `deepbench` followed by these words shows in a terminal."""
    printed = output_of(HERE.parent, columns, *words).splitlines()
    if len(printed) > FIRST_ROWS + LAST_ROWS:
        printed = [*printed[:FIRST_ROWS], "…", *printed[-LAST_ROWS:]]
    lines = [f"$ {shlex.join(['deepbench', *words])}", *printed]
    console = Console(file=io.StringIO(), width=columns, record=True, highlight=False)
    console.print(Text.from_ansi("\n".join(lines)), soft_wrap=True)
    return console.export_html(theme=MONOKAI, inline_styles=True, code_format=TERMINAL)


# GPUs that have times in fp8.
GPUS = ("h100_sxm", "h200_sxm", "b200_sxm", "gb200", "l40s", "rtx_pro_6000_server")
STEP = ("llm/llama31_70b", "decode", {"batch": "16", "context": "4096"})

# What labels have no room for.
LEFT_OUT = re.compile(r"^NVIDIA | Server| \(a GPU of it\)")


def draw_gpus() -> None:
    """Draw a step of a model on six GPUs, from published kernel times; a sentence where these are not installed."""
    if package.folder() is None:
        print(f"gpus.svg stays as it is: the published kernel times of GPUs are not installed; {package.REMEDY}")
        return
    suite, phase, settings = STEP
    found = ranking.rank(suite, GPUS, phase, settings, FORMATS["fp8"])
    bars = [
        StackedBar(
            f"{LEFT_OUT.sub('', c.sheet.title)} ×{c.devices}",
            {"time of a step, the median of frameworks": c.time_s},
            f"{units.seconds(c.time_s)} ({units.seconds(c.interval[0])} to {units.seconds(c.interval[1])})",
            c.interval,
        )
        for c in found.ranked
    ]
    title = f"{found.title} in fp8, one step of decode: {settings['batch']} sequences of {settings['context']} tokens"
    notes = [
        "A sum of kernels on the fewest GPUs that hold the model. Lines: the spread of frameworks, and errors of",
        "interpolation. Source: kernel times of NVIDIA's aiconfigurator-core, which nobody here measured or checked.",
    ]
    (PICTURES / "gpus.svg").write_text(svg(title, bars, notes), encoding="utf-8")


def main() -> None:
    """Draw terminals, the first screen of a report, one of its cases on a phone, a site, a comparison, and GPUs."""
    draw_gpus()
    files = sorted((HERE.parent / "results").glob("*.jsonl*"))
    largest = max(files, key=lambda path: path.stat().st_size)
    name = title_of(Path(largest.name))
    file = str(largest.relative_to(HERE.parent))
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

        for columns in (80, 120):
            for verb, words in {"show": [file], "compare": [file, "NVIDIA T4"], "info": []}.items():
                page = browser.new_page(viewport={"width": 1400, "height": 800})
                page.set_content(terminal_html(columns, [verb, *words]))
                page.locator("#terminal").screenshot(path=PICTURES / f"terminal-{verb}-{columns}.png")
                page.close()
        screenshot("report.png", report, 1400, 1000)
        screenshot("report-dark.png", report, 1400, 1000, "dark")
        screenshot("report-phone.png", report, 390, 844)
        screenshot("case-phone.png", report, 390, 844, "dark", "#table tbody button >> nth=2")
        screenshot("site.png", public / "index.html", 1300, 900)
        query = f"?a={name}&b=nvidia-gtx-1080-ti"
        screenshot("compare.png", public / "compare.html", 1200, 1100, query=query)
        browser.close()


if __name__ == "__main__":
    main()
