"""Writes the sample output of README.md from docs/readme.jsonl: python docs/make_readme.py.

That file holds a real run on one machine; `deepbench run` wrote it. The tests compare the sample in the README with
what this script would write.
"""

import io
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

BEGIN, END = "<!-- sample: made by docs/make_readme.py from docs/readme.jsonl -->", "<!-- end of sample -->"
WIDTH = 110


def sample() -> str:
    """What `deepbench show docs/readme.jsonl` prints in a terminal of WIDTH columns."""
    from rich.console import Console

    from deepbench.api import load

    text = io.StringIO()
    results = load(ROOT / "docs" / "readme.jsonl")
    console = Console(file=text, width=WIDTH, force_terminal=True, color_system=None, highlight=False)
    results.table().print(console)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def readme() -> str:
    """The README with the current sample."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n```text\n{sample()}\n```\n{END}{after}"


if __name__ == "__main__":
    (ROOT / "README.md").write_text(readme(), encoding="utf-8")
