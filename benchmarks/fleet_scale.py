"""What does a fleet of many hosts cost the process that asks them, and does it name those that fail?

python benchmarks/fleet_scale.py [HOSTS] [RUNS]      default: 1000 hosts, 5 runs

Each host is a small program that waits and sends a result file back, whose times vary by a percent. Eight hosts do
something else (`FAULTS`). Prints time, peak memory and descriptors of the near end, and the hosts that it names. Exits
with 1 if these are not the faulty ones.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CASES = [f"gemm m={n} n=64 k=64 f32 openblas threads=1" for n in (33, 34, 35, 36)]

# So many result files are sent by turns, for hosts as fast as the others, and again for slow ones.
FILES = 97

SLOWER = 1.2

# Seconds that a host measures.
MEASURES_S = 1.0

# What the faulty hosts do, in the words of a shell, after they have read the request. The others answer.
BEGIN = """echo '{"started": true}'"""
FAULTS = {
    "dead": "echo no route to host >&2; exit 255",
    "silent": "exec cat >/dev/null",  # never answers
    "rubbish": f"{BEGIN}; head -c 100000 /dev/urandom; exit 0",
    "torn": f'{BEGIN}; head -c 5000 "$0.equal.$(($$ % {FILES}))"; exit 0',
    "wrong file": f"""{BEGIN}; echo '{{"lines": "[]\\n", "exit_code": 0}}'; exit 0""",
    "lost": f"{BEGIN}; exec cat >/dev/null",  # begins, and gives no sign of life
    "slow": "kind=slow",
    "slow too": "kind=slow",
}

# A host that takes long and gives signs of life is not faulty.
LATE = f"{BEGIN}; for i in 1 2; do sleep 5; echo; done"

PROGRAM = """#!/bin/sh
# HOST COMMAND: what this host sends. The input stays open for as long as the near end lives.
read -r request
kind=equal
case "$1" in
{cases}
esac
{begin}
sleep {measures_s}
cat "$0.$kind.$(($$ % {files}))"
exec cat >/dev/null
"""


def main(hosts: int, runs: int) -> int:
    """Measure one fleet; 1 if a faulty host is not named, or another one is."""
    names = [f"n{i:05d}" for i in range(1, hosts + 1)]
    faulty = dict(zip(random.Random(1).sample(names, len(FAULTS)), FAULTS, strict=True))
    late = next(name for name in names if name not in faulty)
    with tempfile.TemporaryDirectory(prefix="deepbench-scale-") as folder:
        program = Path(folder, "host")
        write_answers(program, folder)
        does = {name: FAULTS[fault] for name, fault in faulty.items()} | {late: LATE}
        cases = "\n".join(f" {name}) {words};;" for name, words in does.items())
        program.write_text(PROGRAM.format(cases=cases, begin=BEGIN, measures_s=MEASURES_S, files=FILES))
        program.chmod(0o755)
        words = ["fleet", *CASES, "--hosts", ",".join(names), "--through", f"{program} {{host}} --"]
        words += ["--runs", str(runs), "--links", "none", "--wait", "10", "-o", "fleet.jsonl"]
        start = time.monotonic()
        child = subprocess.Popen(command(*words), cwd=folder, env=environment(), stdout=subprocess.DEVNULL)
        peak = watch(child)
        took_s = time.monotonic() - start
        print(f"{hosts} hosts × {runs} runs: {took_s:.0f} s, {took_s / runs / hosts * 1e3:.1f} ms per host and run")
        print(
            f"near end: {peak['memory'] / 2**20:.0f} MiB, {peak['descriptors']} descriptors, "
            f"{peak['processes']} processes at once, {peak['cpu_s']:.0f} CPU seconds of its own"
        )
        print(f"exit code {child.returncode}, {Path(folder, 'fleet.jsonl').stat().st_size / 2**20:.0f} MiB of results")
        start = time.monotonic()
        shown = subprocess.run(
            command("show", "fleet.jsonl", "--json"), cwd=folder, env=environment(), capture_output=True, check=True
        )
        print(f"deepbench show: {time.monotonic() - start:.0f} s")
        named = {row["host"]: row["verdict"] for row in json.loads(shown.stdout)["hosts"] if row["verdict"] != "fine"}
    for name, fault in faulty.items():
        print(f"  {name} {fault:10} {named.get(name, 'NOT NAMED')}")
    others = {name: verdict for name, verdict in named.items() if name not in faulty}
    some = ", ".join(f"{name} {verdict}" for name, verdict in list(others.items())[:10])
    print(f"named besides these: {len(others)} hosts {some}")
    return int(named.keys() != faulty.keys())


def write_answers(program: Path, folder: str) -> None:
    """Measure the cases once here, and write answers with other times."""
    run = command("run", *CASES, "--rounds", "1", "--quick", "-o", "one.jsonl")
    subprocess.run(run, cwd=folder, env=environment(), check=True, stdout=subprocess.DEVNULL)
    text = Path(folder, "one.jsonl").read_text()
    lines = [json.loads(re.sub(r',"crc32":"[0-9a-f]{8}"}$', "}", line)) for line in text.splitlines()]
    draw = random.Random(2)
    for kind, slower in (("equal", 1.0), ("slow", SLOWER)):
        for number in range(FILES):
            factor = slower * draw.uniform(0.99, 1.01)
            content = "".join(f"{json.dumps(scaled(line, factor))}\n" for line in lines)
            answer = json.dumps({"lines": content, "exit_code": 0, "last_output": ""})
            Path(f"{program}.{kind}.{number}").write_text(f"\n{answer}\n")


def scaled(line: dict, factor: float) -> dict:
    """A line of a result file as a host writes it that takes so many times as long for each call."""
    if "case" not in line:
        return {name: value for name, value in line.items() if name != "checksums"}
    measured = {**line["measurement"]}
    measured["samples_s"] = [s * factor for s in measured["samples_s"]]
    return {**line, "measurement": measured}


def watch(child: subprocess.Popen) -> dict[str, float]:
    """Wait for the end; the most that the process had at once, in bytes and numbers, looked at ten times a second."""
    peak = {"memory": 0, "descriptors": 0, "processes": 0, "cpu_s": 0.0}
    ticks = os.sysconf("SC_CLK_TCK")
    here = Path(f"/proc/{child.pid}")
    while child.poll() is None:
        with contextlib.suppress(OSError, KeyError, IndexError):
            status = dict(line.split(":", 1) for line in (here / "status").read_text().splitlines())
            children = (here / "task" / str(child.pid) / "children").read_text().split()
            stat = (here / "stat").read_text().rpartition(")")[2].split()
            now = {
                "memory": int(status["VmHWM"].split()[0]) * 1024,
                "descriptors": len(os.listdir(here / "fd")),
                "processes": len(children),
                "cpu_s": (int(stat[11]) + int(stat[12])) / ticks,
            }
            peak = {name: max(value, now[name]) for name, value in peak.items()}
        time.sleep(0.1)
    return peak


def command(*words: str) -> list[str]:
    """The command of this checkout."""
    return [sys.executable, "-m", "deepbench", *words]


def environment() -> dict[str, str]:
    """The variables of the near end."""
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:]]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    print(f"descriptors allowed: {soft} ({hard})")
    sys.exit(main(*(numbers + [1000, 5][len(numbers) :])))
