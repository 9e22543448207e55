"""How long reports and sites take to build, how large they are, how soon a browser shows them, and how soon it answers.

python benchmarks/pages.py FILE [FILES_OF_SITE]     FILE: any result file with products; its records are multiplied

Asked: 100,000 records in under 20 s and 1 GB, 3,000 in under 3 s and 3 MB beside Plotly; a site of 1,000 files in under
2 minutes, one more in under 3 s; a page of 1,400 cases in a browser in under 2 s, each filter and order of its table
in under 0.2 s; a page of 100,000 records in under 3 s.
"""

import copy
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from deepbench.core.case import parse_case  # noqa: E402
from deepbench.reporting.page import render  # noqa: E402
from deepbench.results.record import make_record  # noqa: E402

ROUNDS, SAMPLES = 3, 30

# The fields of a record that depend on the sizes of its problem.
OF_SIZES = (
    *("case", "round", "problem", "problem_title", "baselines"),
    *("flop", "least_flop", "other_flop", "traffic_bytes"),
)


def multiplied(source: Path, count: int, target: Path) -> None:
    """So many records, three a case, of products of ever other sizes."""
    lines = [json.loads(line) for line in source.read_text().splitlines()]
    for line in lines:  # new lines have no checksum
        line.pop("crc32", None)
    lines[0].pop("checksums", None)
    header, others = lines[0], [line for line in lines if "roof" in line or "limit" in line]
    products = [r for r in lines if r.get("op") == "gemm" and r["status"] == "ok"]
    header["plan"]["cases"] = []
    with open(target, "w", encoding="utf-8") as file:
        for line in [header, *others]:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
        for i in range(count):
            case = i // ROUNDS
            record = copy.deepcopy(products[case % len(products)])
            m, n = 64 + case % 997, 1 + case // 997 * 7
            words = record["case"].split()
            text = " ".join([words[0], f"m={m}", f"n={n}", *words[3:]])
            fields = make_record(parse_case(text), 1 + i % ROUNDS, "ok")
            longer = fields["flop"] / record["flop"]  # at the same rate: none may exceed the peak of the file
            record |= {name: fields[name] for name in OF_SIZES if name in record} | {"sources": []}
            for check in filter(None, record["check"].values()):
                check["error"] = case / 1e6  # of other numbers: every case has its own
            for name, values in record["measurement"].items():
                scale = longer if name in ("samples_s", "cpu_s") else 1
                if isinstance(values, list):
                    record["measurement"][name] = [scale * value for value in values[:SAMPLES]]
            file.write(json.dumps(record, ensure_ascii=False) + "\n")


def timed(*words: str) -> tuple[float, float]:
    """Seconds and megabytes of a command."""
    command = [sys.executable, "-m", "deepbench", *words]
    begin = time.perf_counter()
    child = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    assert status == 0, words
    return time.perf_counter() - begin, usage.ru_maxrss * 1024 / 1e6


# Milliseconds until the table is drawn after each of these, longest first.
ANSWERS = """async () => {
  const filter = document.getElementById("filters"), found = [];
  const choose = (label) => () => {
    const select = [...filter.querySelectorAll("label")].find((l) => l.firstChild.data === label)?.lastChild;
    select.selectedIndex = 1 - select.selectedIndex;
    select.dispatchEvent(new Event("change"));
  };
  const sort = (title) => () => [...document.querySelectorAll("#table th")].find((h) => h.innerText === title)
    .querySelector("button").click();
  const actions = {
    filter: choose("Precision"), "filter removed": choose("Precision"),
    sort: sort("Time"), "sort texts": sort("Problem"),
  };
  for (const [name, act] of Object.entries(actions)) {
    const begin = performance.now();
    act();
    await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
    found.push([performance.now() - begin, name]);
  }
  return found.sort((a, b) => b[0] - a[0]);
}"""


def opened(path: Path) -> str:
    """Seconds until a browser that runs already has the page ready, and how long its table takes to answer."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    try:
        from playwright.sync_api import expect, sync_playwright
    except ImportError:
        return "no playwright here"
    if chromium is None:
        return "no browser here"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        begin = time.perf_counter()
        page.goto(path.as_uri())
        expect(page.locator("html[data-ready=yes]")).to_be_attached(timeout=60_000)
        seconds = time.perf_counter() - begin
        page.wait_for_timeout(1000)  # charts that are in view are drawn after the page is ready
        answers = ", ".join(f"{name} {milliseconds:.0f} ms" for milliseconds, name in page.evaluate(ANSWERS))
        browser.close()
    return f"open in {seconds:.1f} s, {answers}"


def main(source: Path, files: int) -> None:
    """A line a claim."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for count in (3_000, ROUNDS * 1_400, 100_000):
            multiplied(source, count, folder / "many.jsonl")
            seconds, megabytes = timed("report", str(folder / "many.jsonl"), "-o", str(folder / "many.html"))
            own = ((folder / "many.html").stat().st_size - len(render.plotly().encode())) / 1e6
            size = f"page {own:.1f} MB beside Plotly"
            shown = opened(folder / "many.html")
            print(f"report of {count} records: {seconds:.1f} s, {megabytes:.0f} MB, {size}, {shown}")
        results, public = folder / "results", folder / "public"
        results.mkdir()
        multiplied(source, 300, folder / "one.jsonl")
        for i in range(files):
            shutil.copyfile(folder / "one.jsonl", results / f"machine-{i}.jsonl")
        seconds, megabytes = timed("site", str(results), "-o", str(public))
        print(f"site of {files} files of 300 records: {seconds:.0f} s, {megabytes:.0f} MB")
        shutil.copyfile(folder / "one.jsonl", results / "one-more.jsonl")
        seconds, megabytes = timed("site", str(results), "-o", str(public))
        print(f"one more file: {seconds:.1f} s, {megabytes:.0f} MB")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1000)
