"""How often `deepbench history` reports changes, and how long it takes: python benchmarks/history.py.

Made-up series of equal code with several kinds of noise; the same with one case of 50 that changes; and the time to
read a folder of 1,000 files of 50 cases.
"""

import argparse
import math
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import deepbench  # noqa: E402
from deepbench.judge import change_points  # noqa: E402

CASES = 50

Noise = Callable[[random.Random, int], list[float]]


def independent(deviation: float) -> Noise:
    """Normal noise of log times."""
    return lambda generator, count: [generator.gauss(0, deviation) for _ in range(count)]


def heavy(generator: random.Random, count: int) -> list[float]:
    """Student's t with three degrees of freedom."""
    return [
        0.02 * generator.gauss(0, 1) / math.sqrt(sum(generator.gauss(0, 1) ** 2 for _ in range(3)) / 3)
        for _ in range(count)
    ]


def slow_runs(generator: random.Random, count: int) -> list[float]:
    """One run in ten is half as slow again, as if another program ran."""
    return [generator.gauss(0, 0.01) + (0.4 if generator.random() < 0.1 else 0.0) for _ in range(count)]


def autocorrelated(share: float, deviation: float) -> Noise:
    """Each value has this share of the one before."""

    def values(generator: random.Random, count: int) -> list[float]:
        found, fresh = [generator.gauss(0, deviation)], deviation * math.sqrt(1 - share**2)
        for _ in range(count - 1):
            found.append(share * found[-1] + generator.gauss(0, fresh))
        return found

    return values


NOISE: dict[str, Noise] = {
    "normal, 1 %": independent(0.01),
    "normal, 3 %": independent(0.03),
    "normal, 10 %": independent(0.1),
    "heavy tails, 2 %": heavy,
    "one run in ten 49 % slower": slow_runs,
    "autocorrelated 0.5, 2 %": autocorrelated(0.5, 0.02),
    "autocorrelated 0.5, 5 %": autocorrelated(0.5, 0.05),
    "autocorrelated 0.9, 2 %": autocorrelated(0.9, 0.02),
    "autocorrelated 0.9, 5 %": autocorrelated(0.9, 0.05),
}


def found_in(series: list[list[float]]) -> list[list[change_points.LevelChange]]:
    return change_points.find([[1e-3 * math.exp(v) for v in values] for values in series])


def false_alarms(histories: int) -> None:
    """The share of series and of histories of 50 equal cases with any change point."""
    print(f"{'equal code, 50 cases':28}  files  series with a point  histories with a point")
    for name, noise in NOISE.items():
        for files in (20, 60, 200):
            generator = random.Random(1)
            series = with_any = 0
            for _ in range(histories):
                count = sum(map(bool, found_in([noise(generator, files) for _ in range(CASES)])))
                series, with_any = series + count, with_any + (count > 0)
            print(f"{name:28}  {files:5}  {series / histories / CASES:19.2%}  {with_any / histories:22.1%}", flush=True)


def power(histories: int) -> None:
    """How often a change of one case of 50 is found, within two files of its place."""
    print(f"\n{'one case of 50 changes':28}  files  after  +3 %  +5 %  +10 %")
    for deviation in (0.01, 0.02):
        for files, after in ((20, 10), (60, 5), (60, 10), (60, 30), (200, 10)):
            shares = []
            for change in (0.03, 0.05, 0.1):
                generator, hits = random.Random(2), 0
                for _ in range(histories):
                    series = [independent(deviation)(generator, files) for _ in range(CASES)]
                    series[0][-after:] = [v + math.log1p(change) for v in series[0][-after:]]
                    hits += any(abs(c.at - (files - after)) <= 2 for c in found_in(series)[0])
                shares.append(hits / histories)
            text = "  ".join(f"{share:4.0%}" for share in shares)
            print(f"{f'normal, {deviation:.0%}':28}  {files:5}  {after:5}  {text}", flush=True)


def speed(files: int, rounds: int) -> None:
    """CPU seconds and memory to read so many files of 50 cases."""
    from tests.help import over_time

    with tempfile.TemporaryDirectory() as folder:
        generator = random.Random(3)
        for day in range(files):
            times = {m: 1e-5 * m * math.exp(generator.gauss(0, 0.01)) for m in range(2, 2 + CASES)}
            over_time.write(Path(folder), f"{day:05}.jsonl", times, day / 8, rounds=rounds)
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
        # CPU seconds, because everything is done by one thread, and the machine may be busy.
        start = time.process_time()
        found = deepbench.history(folder)
        read_s = time.process_time() - start
        found.report().text("json")
        page = found.page()
        whole_s = time.process_time() - start
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"\n{files} files of {CASES} cases × {rounds} rounds, {size / 1e6:.0f} MB: at most {memory:.0f} MiB of memory;"
    )
    print(f"read and judged in {read_s:.1f} CPU s, with JSON and a page of {len(page) / 1e6:.1f} MB in {whole_s:.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=100)
    parser.add_argument("--only", choices=("false", "power", "speed"))
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.only in (None, "false"):
        false_alarms(options.histories)
    if options.only in (None, "power"):
        power(options.histories)
    if options.only in (None, "speed"):
        speed(options.files, options.rounds)


if __name__ == "__main__":
    main()
