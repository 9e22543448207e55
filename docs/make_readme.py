"""Writes the sample table of README.md from a stored file of real results: python docs/make_readme.py.

The tests compare the sample in the README with what this script would write.
"""

import io
import sys
from pathlib import Path

from rich.console import Console

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

RESULTS = ROOT / "results" / "xeon-amx-2vcpu.jsonl.gz"
BEGIN, END = "<!-- Sample: docs/make_readme.py writes it. -->", "<!-- End of sample. -->"

# A few of the cases of that file.
PROBLEMS = ("5124 × 700 × 2048 NN", "128 × 1500 × 1280 NN", "7680 × 1 × 2560 NN")
PRECISIONS = ("f32", "bf16")


def sample() -> str:
    """Machine and table, as `deepbench show` prints them in 106 columns."""
    from deepbench.api.results import load
    from deepbench.reporting.sections import sections

    results = load(RESULTS)
    of_problems = [s for s in results.summaries if s.problem_title in PROBLEMS and s.is_ranked]
    chosen = [s for s in of_problems if s.record["precision"] in PRECISIONS]
    text = io.StringIO()
    sections(chosen, results.limits).print(Console(file=text, width=106, force_terminal=True, color_system=None))
    machine = results.header["machine"]
    return f"{machine['cpu']}, {machine['cores_allowed']} cores\n\n{text.getvalue()}"


def readme() -> str:
    """The README with the current sample."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    lines = "\n".join(line.rstrip() for line in sample().splitlines())
    return f"{before}{BEGIN}\n\n```text\n{lines}\n```\n\n{END}{after}"


if __name__ == "__main__":
    (ROOT / "README.md").write_text(readme(), encoding="utf-8")
