"""Puts old faults back, one at a time in a scratch copy, and says which a test finds: `python -m tests.old_faults`.

Every entry is a fix from the history: its commit, the text as it is now, the text as it was, and the tests that ought
to fail. The texts follow the code when it moves. Words on the command line choose entries. With `--control` nothing is
put back, and the tests have to pass: otherwise they would find every fault.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
MOST_S, MOST_MEMORY_KIB = 300, 6 * 2**20
ENDED_BY_TIMEOUT = 124


class Fault(NamedTuple):
    """A fix that is taken back."""

    commit: str
    what: str
    file: str
    now: str
    then: str
    tests: str


FAULTS = (
    Fault(
        "dbb01aa",
        "probes of the server have no limit of queries",
        "applications/training/scenarios.py",
        "min(MOST_ARRIVALS, queries)",
        "queries",
        "tests/applications/training/test_scenarios.py",
    ),
    Fault(
        "414e4c1",
        "a level of memory of unknown rate holds data",
        "networks/what_if/hardware.py",
        "((level.bytes or 0.0) if level.bytes_per_s else 0.0",
        "((level.bytes or 0.0)",
        "tests/networks/test_time_model.py",
    ),
    Fault(
        "b680a56",
        "too many open files have no remedy of their own",
        "measuring/process.py",
        "REMEDIES.get(error.errno or 0, ",
        "{}.get(error.errno or 0, ",
        "tests/measuring/test_process.py tests/promises/test_resources.py",
    ),
    Fault(
        "31be940",
        "the share of a hidden all-reduce replaces the hidden size of recurrent layers",
        "reporting/export.py",
        '"hidden_fraction": s.hidden',
        '"hidden": s.hidden',
        "tests/test_python_api.py -k columns_of_a_frame",
    ),
    Fault(
        "6bb95de",
        "a ratio of slices that all samples contradict counts",
        "judge/heats.py",
        " if abs(of_slices - of_all) <= math.log(CONTRADICTION) else None",
        "",
        "tests/judge/test_heats.py",
    ),
    Fault(
        "2f6dba7",
        "a table of which the same rows are read counts as cold",
        "measuring/steps.py",
        "if count * touched <",
        "if count * set_bytes <",
        "tests/measuring/test_steps.py tests/measuring/test_cold.py",
    ),
    Fault(
        "10f7cd1",
        "a disturbed peak refutes rates a little above it",
        "results/peaks.py",
        "DISTURBED_MARGIN = 4.0",
        "DISTURBED_MARGIN = MARGIN",
        "tests/judge tests/results -k 'disturbed or peak'",
    ),
    Fault(
        "32eea0a",
        "a probe that was left alone does not end the wide margin",
        "results/peaks.py",
        "self._undisturbed.add(key)",
        "pass",
        "tests/judge tests/results -k 'disturbed or peak'",
    ),
    Fault(
        "0882f3f",
        "a file that was moved away counts as in place",
        "results/file.py",
        "return os.path.samestat(os.fstat(self._file.fileno()), os.stat(self.path))",
        "return True",
        "tests/cli tests/promises -k 'moved or place or removed or replaced or loss'",
    ),
    Fault(
        "0882f3f",
        "a lost output has the exit code of success",
        "cli/streams.py",
        "return EXIT_CLOSED if output.error.errno in CLOSED else EXIT_NOT_WRITTEN",
        "return code",
        "tests/promises/test_streams.py",
    ),
    Fault(
        "0882f3f",
        "an output replaces a result file",
        "core/files.py",
        "    require_no_results(path)\n",
        "",
        "tests/core/test_files.py tests/cli/test_outputs.py",
    ),
    Fault(
        "4b75d5e",
        "a text of a file ends the script of a page",
        "reporting/page/render.py",
        '.replace(b"<", b"\\\\u003c")',
        "",
        "tests/reporting/test_page.py tests/promises/test_hostile.py",
    ),
    Fault(
        "9df7fda",
        "a stranger proves the secret with any text",
        "measuring/wire.py",
        "hmac.compare_digest(",
        "(lambda a, b: True)(",
        "tests/measuring/test_wire.py",
    ),
    Fault(
        "88f7eec",
        "variables of a file that may be secrets are shown",
        "results/secrets.py",
        "if isinstance(v, str) and is_tuning(n) else HIDDEN",
        "if isinstance(v, str) else HIDDEN",
        "tests/promises/test_secrets.py",
    ),
    Fault(
        "0e34358",
        "a long first call is the only sample, although the library loads its kernels in it",
        "measuring/launch.py",
        "self.rules if self.backend.loads_at_once else replace(self.rules, first_call_counts_s=None)",
        "self.rules",
        "tests/measuring",
    ),
    Fault(
        "f6a965f",
        "not a number is written to files",
        "core/json_lines.py",
        "return value if math.isfinite(value) else None",
        "return value",
        "tests/core/test_json_lines.py",
    ),
    Fault(
        "030078b",
        "a worker outlives its parent",
        "measuring/process.py",
        "prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)",
        "pass",
        "tests/measuring tests/promises/test_signals.py tests/promises/test_loss.py -k 'parent or kill or dies'",
    ),
    Fault(
        "8537e67",
        "one machine is ranked twice",
        "api/comparing.py",
        "if real.count(file) > 1",
        "if False",
        "tests/api/test_comparing.py tests/cli/test_rank.py",
    ),
    Fault(
        "030078b",
        "two runs write to one file",
        "results/file.py",
        "fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "pass",
        "tests/results/test_file.py",
    ),
    Fault(
        "1927782",
        "an all-reduce far beyond what was measured has an interval",
        "judge/suite_devices.py",
        "is_far = ranks > scaling.FAR * model.most_ranks",
        "is_far = False",
        "tests/reporting/test_steps.py",
    ),
    Fault(
        "a7084a9",
        "a comparison takes all processes instead of the faster half",
        "core/stats.py",
        "return n // 2 + 1, scale,",
        "return n, scale,",
        "tests/core/test_stats.py tests/judge/test_compare.py",
    ),
    Fault(
        "030078b",
        "a control character of a file reaches the terminal",
        "core/json_lines.py",
        'c if c.isprintable() else "\\N{REPLACEMENT CHARACTER}"',
        "c",
        "tests/promises/test_hostile.py tests/cli/test_outputs.py",
    ),
)


def main() -> int:
    """Print one line per fault; the exit code is 1 if one is not found."""
    words, missed = [w for w in sys.argv[1:] if w != "--control"], 0
    is_control = len(words) < len(sys.argv[1:])
    chosen = [f for f in FAULTS if not words or any(w in (f.commit, f.file) or w in f.what for w in words)]
    with tempfile.TemporaryDirectory(prefix="deepbench-faults-") as folder:
        copy = Path(folder) / "copy"
        skipped = shutil.ignore_patterns(".venv", ".git", "__pycache__", ".hypothesis", ".mypy_cache", "results.html")
        shutil.copytree(ROOT, copy, ignore=skipped)
        for fault in chosen:
            begin = time.monotonic()
            status = _status(copy, fault, fault.now if is_control else fault.then)
            # Others than these: nothing was collected, or pytest itself failed.
            is_right = status == 0 if is_control else status in (1, ENDED_BY_TIMEOUT)
            missed += not is_right
            state = ("passed" if is_right else "FAILED") if is_control else "found" if is_right else "NOT FOUND"
            print(f"{state:9}  {time.monotonic() - begin:4.0f} s  {fault.commit}  {fault.what}", flush=True)
    right = "entries have tests that pass without the fault" if is_control else "old faults were found"
    print(f"{len(chosen) - missed} of {len(chosen)} {right}")
    return 1 if missed else 0


def _status(copy: Path, fault: Fault, text: str) -> int:
    """The exit code of the tests of `fault`, with `text` in the place of the text of now."""
    path = copy / "deepbench" / fault.file
    before = path.read_text(encoding="utf-8")
    if fault.now not in before:
        raise SystemExit(f"{fault.file} has no {fault.now!r}; adapt the entry of {fault.commit}")
    path.write_text(before.replace(fault.now, text), encoding="utf-8")
    try:
        # Some faults ask for all memory or never end.
        command = f"ulimit -v {MOST_MEMORY_KIB}; timeout {MOST_S} {sys.executable} -m pytest -q -x -p no:cacheprovider"
        environment = {**os.environ, "PYTHONPATH": str(copy)}
        words = f"{command} {fault.tests}"
        return subprocess.run(words, shell=True, cwd=copy, env=environment, capture_output=True, text=True).returncode
    finally:
        path.write_text(before, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
