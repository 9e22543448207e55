"""One occasion of the data for `rules.py`: products next to a library that is slower by a known amount, in turn.

    python benchmarks/rules_data.py -o benchmarks/rules              an occasion of about 40 minutes on two cores
    python benchmarks/rules_data.py -o benchmarks/rules --cases 10 --heats 4 --minutes 5
    python benchmarks/rules_data.py -o benchmarks/rules --busy --percents 0,5   beside another program
    python benchmarks/rules_data.py -o benchmarks/rules --percents 1 --heats 20   longer, for small differences

For 0, 1, 2, 5 and 10 %, OpenBLAS and a library that takes so much longer (`slowed.c`) alternate on the same products.
Both sides go through `slowed.c`, so they differ in nothing else. The order of the amounts is random. Every pair of
files is `DATE-PERCENT.a.jsonl.gz` and `.b.jsonl.gz`, with `busy` or `long` after the date where that was so. Nothing is
judged here.
"""

from __future__ import annotations

import argparse
import gzip
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from deepbench.measuring.session import Options
from deepbench.measuring.sides import Side, Turns
from deepbench.plan.cases import Choices
from deepbench.reporting.progress import Bar
from tests.help import slowed

PERCENTS = (0, 1, 2, 5, 10)
USUAL_HEATS = 8

# Products of 15 µs to some milliseconds.
SIZES = (64, 96, 128, 192, 256, 384, 512)


def products(count: int) -> list[str]:
    """So many different products, always the same."""
    draw, found = random.Random(39), dict[str, None]()
    while len(found) < count:
        m, n, k = (draw.choice(SIZES) for _ in range(3))
        if 2 * m * n * k >= 500_000:
            found[f"gemm m={m} n={n} k={k} f32 openblas threads=1"] = None
    return list(found)


# Another program that computes for a second, then rests for up to two.
BURSTS = """
import random, time
while True:
    ends = time.monotonic() + 1
    while time.monotonic() < ends:
        sum(range(10_000))
    time.sleep(random.uniform(0, 2))
"""


@contextmanager
def bursts() -> Iterator[None]:
    """Another program beside the measurement."""
    program = subprocess.Popen([sys.executable, "-c", BURSTS])
    try:
        yield
    finally:
        program.kill()
        program.wait()


def measure(percent: int, cases: list[str], heats: int, target: Path, libraries: dict[int, Path], ends: float) -> None:
    """One amount: two files."""
    sides = [
        Side(name, environment={"DEEPBENCH_OPENBLAS_PATH": str(p)})
        for name, p in zip("ab", libraries.values(), strict=True)
    ]
    words = [word for case in cases for word in case.split()]
    with tempfile.TemporaryDirectory() as folder:
        stem = Path(folder, "sides")
        with (
            Turns.create((sides[0], sides[1]), words, Choices(), Options("default", heats), stem) as turns,
            Bar() as bar,
        ):
            turns.run(bar, ends)
        for name in "ab":
            content = Path(f"{stem}.{name}.jsonl").read_bytes()
            with gzip.GzipFile(f"{target}-{percent}.{name}.jsonl.gz", "wb", compresslevel=9, mtime=0) as file:
                file.write(content)


def main() -> None:
    """Compile the libraries and measure all amounts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True, help="the folder")
    parser.add_argument("--cases", type=int, default=50)
    parser.add_argument("--heats", type=int, default=USUAL_HEATS)
    parser.add_argument("--percents", default=",".join(map(str, PERCENTS)), help="only these amounts, such as 0,5")
    parser.add_argument("--busy", action="store_true", help="while another program computes in bursts")
    parser.add_argument("--minutes", type=float, default=None, help="for each amount, at most (default: no limit)")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    kind = "busy" if arguments.busy else "long" if arguments.heats > USUAL_HEATS else ""
    target = arguments.output / (datetime.now(UTC).strftime("%Y%m%d-%H%M") + kind)
    percents = [int(word) for word in arguments.percents.split(",")]
    cases = products(arguments.cases)
    with tempfile.TemporaryDirectory() as folder, bursts() if arguments.busy else nullcontext():
        base = slowed.compiled(Path(folder, "slowed-base.so"), 0)
        for percent in random.sample(percents, len(percents)):
            begin = time.monotonic()
            library = slowed.compiled(Path(folder, f"slowed-{percent}.so"), percent)
            ends = float("inf") if arguments.minutes is None else begin + 60 * arguments.minutes
            measure(percent, cases, arguments.heats, target, {0: base, 1: library}, ends)
            print(f"{percent} %: {time.monotonic() - begin:.0f} s", flush=True)
    subprocess.run(["ls", "-l", str(arguments.output)], check=False)


if __name__ == "__main__":
    main()
