"""Folders of result files that were measured one after the other."""

from datetime import UTC, datetime, timedelta

from tests.help import samples

FIRST_DAY = datetime(2026, 1, 1, 3, 0, tzinfo=UTC)
TEXT = "gemm m={} n=3 k=4 a_t=0 b_t=0 forward f32 mkl threads=2"

# Noise of 1 %, which repeats and has no trend.
NOISE = [0.0, 0.007, -0.008, 0.003, -0.004, 0.009, -0.006, 0.001, 0.005, -0.002, -0.009, 0.008, -0.001]


def noisy(level, i):
    """The time of run i at a level."""
    return level * (1 + NOISE[i % len(NOISE)])


def header(day=0, host="here", cpu="A CPU", cores=2, started=None, texts=(), **machine):
    made = samples.header(texts)
    made["started"] = started or (FIRST_DAY + timedelta(days=day)).isoformat()
    made["machine"] = {"host": host, "cpu": cpu, "cores_allowed": cores, **machine}
    return made


def records(times, version="1.0", rounds=3, make=samples.measured):
    """Rounds of each case; `times` are seconds by the text of the case, or by m of TEXT."""
    made = []
    for name, seconds in times.items():
        for number in range(1, rounds + 1):
            text = name if isinstance(name, str) else TEXT.format(name)
            record = make(text=text, seconds=seconds * (1 + 0.001 * number), round_number=number)
            record["library"]["version"] = version
            made.append(record)
    return made


def write(folder, name, times, day=0, version="1.0", rounds=3, make=samples.measured, **facts):
    """One result file."""
    lines = records(times, version, rounds, make)
    return samples.write(
        folder / name, lines, header(day, texts=list(dict.fromkeys(r["case"] for r in lines)), **facts)
    )


def write_step(folder, count=30, at=18, factor=1.1, cases=(2, 5), **facts):
    """Files of consecutive days: from day `at` on, the first case takes longer, with a new version of its library."""
    for day in range(count):
        times = {m: noisy(1e-3 * m, day + m) for m in cases}
        times[cases[0]] *= factor if day >= at else 1.0
        write(folder, f"day{day:03}.jsonl", times, day, "3.2" if day >= at else "3.1", **facts)
    return folder
