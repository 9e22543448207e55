"""Do two runs agree on the order of libraries? Of all rows of which both runs say which library is the fastest.

python benchmarks/order.py [RUNS] [-- WORDS]     so many runs of `deepbench run WORDS` (6 of `quick --quick`)
python benchmarks/order.py -i FILE...            compare existing files

A row makes a claim if the difference between the fastest library and every other one is beyond its uncertainty.
Target: at least 90 % of the rows of which two runs make a claim agree on the fastest library.
"""

import argparse
import itertools
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from deepbench.reporting.cases import rankings  # noqa: E402
from deepbench.results.file import read_results  # noqa: E402
from deepbench.results.summary import summarize  # noqa: E402
from deepbench.results.work import Work  # noqa: E402


def fastest(path: Path) -> tuple[dict[Work, str], dict[Work, str]]:
    """The fastest library of each piece of work with at least two libraries: as claimed, and all."""
    file = read_results(path)
    claimed, every = {}, {}
    for ranking in rankings(summarize(file.records, file.order)):
        if len(ranking.ranked) > 1:
            first = ranking.ranked[0]
            every[first.work] = first.library_title
            if not ranking.ties and not first.is_disturbed:
                claimed[first.work] = first.library_title
    return claimed, every


def measure(folder: Path, count: int, words: list[str]) -> list[Path]:
    """The files of so many runs."""
    paths = [folder / f"{number}.jsonl" for number in range(count)]
    for path in paths:
        begin = time.monotonic()
        command = [sys.executable, "-m", "deepbench", "run", *words, "-o", str(path)]
        subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
        print(f"a run took {time.monotonic() - begin:.0f} s", flush=True)
    return paths


def main() -> None:
    """Measure or read, then report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", type=int, nargs="?", default=6)
    parser.add_argument("words", nargs="*", default=["quick", "--quick"])
    parser.add_argument("-i", "--input", type=Path, nargs="+")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = list(map(fastest, options.input or measure(Path(folder), options.runs, options.words)))
    rows = sum(len(every) for _, every in files) / len(files)
    claims = sum(len(claimed) for claimed, _ in files) / len(files)
    both = agree = plain = plain_agree = 0
    for (claimed_a, every_a), (claimed_b, every_b) in itertools.combinations(files, 2):
        common = claimed_a.keys() & claimed_b.keys()
        both += len(common)
        agree += sum(claimed_a[work] == claimed_b[work] for work in common)
        common = every_a.keys() & every_b.keys()
        plain += len(common)
        plain_agree += sum(every_a[work] == every_b[work] for work in common)
    print(f"rows with several libraries: {rows:.1f} per run, of which {claims:.1f} make a claim")
    print(f"both runs claim and agree: {agree} of {both} ({agree / max(1, both):.1%})")
    print(
        f"for comparison, the first library of every row: {plain_agree} of {plain} ({plain_agree / max(1, plain):.1%})"
    )


if __name__ == "__main__":
    main()
