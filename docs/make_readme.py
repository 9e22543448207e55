"""Writes the sample table of README.md from a stored file of real results: python docs/make_readme.py.

The tests compare the sample in the README with what this script would write.
"""

import sys
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

RESULTS = ROOT / "tests" / "data" / "quick-epyc-2cores.jsonl"
BEGIN, END = "<!-- Sample: docs/make_readme.py writes it. -->", "<!-- End of sample. -->"

# A few of the cases of that file, and the columns that fit the width of a page.
PROBLEMS = ("5124 × 700 × 2048 NN", "35 × 700 × 2048 NN", "7680 × 1 × 2560 NN", "128 × 1 × 1024 NN")
COLUMNS = ("problem", "precision", "fastest", "time", "±", "TFLOP/s", "% of peak", "others")


def sample() -> str:
    """Machine and table, as `deepbench show` prints them where the terminal is wide."""
    from deepbench.api import load
    from deepbench.report.cases import fastest_table

    results = load(RESULTS)
    chosen = [s for s in results.summaries if s.problem_title in PROBLEMS]
    table = fastest_table(chosen, results.limits)
    table = replace(table, columns=[c for c in table.columns if c.name in COLUMNS], notes=())
    machine = results.header["machine"]
    return f"{machine['cpu']}, {machine['cores_allowed']} cores\n\n{table}"


def readme() -> str:
    """The README with the current sample."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    lines = "\n".join(line.rstrip() for line in sample().splitlines())
    return f"{before}{BEGIN}\n\n```text\n{lines}\n```\n\n{END}{after}"


if __name__ == "__main__":
    (ROOT / "README.md").write_text(readme(), encoding="utf-8")
