"""nccl-tests: the JSON of `all_reduce_perf -J out.json` and the other programs (since 2025-10), and their text.

The number of ranks is processes × threads × GPUs per thread. Times are microseconds, a mean over iterations unless each
one is listed. The environment is not imported, because it may contain secrets.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from deepbench.core.errors import BadInput, shorten
from deepbench.core.precision import BITS
from deepbench.formats import Format, ImportedCase, ImportedFile, ImportOptions, json_object, text_lines

# Operations by program.
OPS = {
    "all_reduce_perf": "all_reduce",
    "all_gather_perf": "all_gather",
    "reduce_scatter_perf": "reduce_scatter",
    "alltoall_perf": "all_to_all",
    "broadcast_perf": "broadcast",
    "sendrecv_perf": "send_receive",
}
# Comments of the text that say what runs: the program, a rank, the version, and the columns.
STARTING = re.compile(r"^\s*#? *Collective test starting: *(\w+)")
RANK = re.compile(r"^\s*# +Rank +\d+ (?:Group +(\d+) )?Pid +(\d+) on +(\S+) device +\S+ \[[^\]]*\] *(.*)")
LIBRARY = re.compile(r"[nr]ccl-library=(\d{4,6})\b")
RCCL = re.compile(r"rccl-(?:tests|library)\b|^RCCL version *: *(\d[\d.]{0,20})|^\s*# +Rank.*\] AMD ")
COLUMNS = re.compile(r"^\s*# +size +count +type +(.*\balgbw\b.*)$")
ROW = re.compile(r"^\s*\d+ +\d+ +[a-z][a-z0-9_]* +\S+")

# The comments stand at the beginning.
MOST_HEADER = 1_000_000

TYPES = {"float": "f32", "half": "f16", "bfloat16": "bf16"}


class NcclTests(Format):
    name = "nccl-tests"
    about = "JSON of -J, or the text that it prints"

    def matches(self, text: str) -> bool:
        if text.lstrip()[:1] == "{":
            return '"nccl_version"' in text and '"results"' in text
        return any(COLUMNS.match(line) for line in text[:MOST_HEADER].splitlines())

    def read(self, text: str, options: ImportOptions) -> ImportedFile:
        return self._read_json(text, options) if text.lstrip()[:1] == "{" else self._read_text(text, options)

    def _read_text(self, text: str, options: ImportOptions) -> ImportedFile:
        imported = ImportedFile(self.name, "NCCL")
        program, columns, ranks = "", list[str](), list[re.Match[str]]()
        for line in text_lines(text, self.name):
            if match := LIBRARY.search(line):
                imported.version = _version(int(match[1]))
            if match := RCCL.search(line):  # AMD's programs print the same
                imported.library, imported.version = "RCCL", match[1] or imported.version
            if match := STARTING.match(line):
                program, columns, ranks = match[1], [], []  # there may be several outputs in one file
            elif match := RANK.match(line):
                ranks.append(match)
            elif match := COLUMNS.match(line):
                columns = ["size", "count", "type", *match[1].split()]
            elif columns and ROW.match(line):
                if reason := _unreadable(program, ranks, columns, line.split()):
                    imported.left_out.append(reason)
                else:
                    self._add_row(imported, program, ranks, dict(_row(columns, line.split())), options)
        if not imported.cases and not imported.left_out:
            raise BadInput("nccl-tests: the table of times has no rows: the program was aborted")
        return imported

    def _add_row(
        self,
        imported: ImportedFile,
        program: str,
        ranks: Sequence[re.Match[str]],
        result: dict[str, Any],
        options: ImportOptions,
    ) -> None:
        group = [rank for rank in ranks if rank[1] == ranks[0][1]]
        imported.host, imported.cpu = group[0][3], group[0][4].strip() or None
        settings = "processes=one" if len({rank[2] for rank in group}) == 1 and program == "all_reduce_perf" else ""
        self._add(imported, OPS[program], len(group), settings, result, options)

    def _read_json(self, text: str, options: ImportOptions) -> ImportedFile:
        # nccl-tests prints an infinite bandwidth as a bare `inf`, which is not JSON.
        content = json_object(re.sub(r"(?<=[:,\[])\s*-?inf(?=[,}\]])", "null", text), self.name)
        arguments = content.get("args") or []
        program = str(arguments[0]).replace("\\", "/").rsplit("/", 1)[-1] if arguments else ""
        config = content["config"] if isinstance(content.get("config"), dict) else {}
        devices = [d for d in config.get("devices") or [] if isinstance(d, dict)]
        group = devices[0].get("group") if devices else None
        processes = sum(d.get("group") == group for d in devices)
        ranks = processes * _integer(config, "nthreads") * _integer(config, "ngpus")
        imported = ImportedFile(self.name, "NCCL", _version(_integer(content, "nccl_version")))
        if devices:
            imported.host, imported.cpu = str(devices[0].get("hostname")), str(devices[0].get("device_info"))
            if imported.cpu.startswith("AMD "):
                imported.library = "RCCL"
        if program not in OPS:
            raise BadInput(f"nccl-tests: unknown program {program!r}; deepbench reads {', '.join(OPS)}")
        if ranks < 2:
            raise BadInput("nccl-tests: the file has fewer than two ranks, so nothing was transferred")
        if not content.get("results"):
            raise BadInput("nccl-tests: the file has no results: the program was aborted")
        # One process that drives all GPUs is a setting of all-reduce alone.
        settings = "processes=one" if processes == 1 and OPS[program] == "all_reduce" else ""
        for result in content.get("results") or []:
            if isinstance(result, dict):
                self._add(imported, OPS[program], ranks, settings, result, options)
        return imported

    def _add(
        self, imported: ImportedFile, op: str, ranks: int, settings: str, result: dict[str, Any], options: ImportOptions
    ) -> None:
        precision = TYPES.get(str(result.get("type")))
        if precision is None or str(result.get("redop")).strip() not in ("sum", "none"):
            imported.left_out.append(f"{result.get('type')} {result.get('redop')}: unsupported type or reduction")
            return
        n = _integer(result, "count")
        # nccl-tests counts the elements of one rank's part, deepbench those of the full vector.
        if op in ("all_gather", "reduce_scatter", "all_to_all"):
            n = _integer(result, "size") // (BITS[precision] // 8)
        for place, name in (("", "out_of_place"), ("place=in", "in_place")):
            times = result.get(name)
            if not isinstance(times, dict) or (place and op != "all_reduce"):
                continue
            each = result.get(f"{name}_per_iter")
            if isinstance(each, dict):
                times_us = each.get("times_us", [])[_integer(each, "skipped_iterations") :]
            else:
                times_us = [times.get("time")]
            samples = [float(t) / 1e6 for t in times_us if isinstance(t, int | float) and math.isfinite(t) and t > 0]
            if not samples or n < 1:
                what = f"{result.get('size')} bytes {name.replace('_', ' ')}"
                reason = "no time"
                if n < 1:
                    reason = "nothing was transferred"
                elif "cpu_time" in times:
                    reason = "its time is that of the CPU (-C 1), not of the operation"
                imported.left_out.append(f"{what}: {reason}")
                continue
            library = options.backend or imported.library.lower()
            words = [op, f"n={n} ranks={ranks} forward {precision}", library]
            text = " ".join(filter(None, [*words, f"threads={options.threads or 1}", place, settings]))
            bandwidth, wrong = times.get("bus_bw"), times.get("nwrong")
            notes = {}
            if isinstance(bandwidth, int | float) and math.isfinite(bandwidth):
                notes["their_bus_bytes_per_s"] = bandwidth * 1e9
            if isinstance(wrong, int | float) and wrong > 0:
                reason = f"nccl-tests found {wrong:g} wrong elements"
                imported.cases.append(ImportedCase(text, [], notes, reason, wrong=True))
            else:
                imported.cases.append(ImportedCase(text, [samples], notes))


def _unreadable(
    program: str, ranks: Sequence[re.Match[str]], columns: Sequence[str], words: Sequence[str]
) -> str | None:
    """Why a row is no result of an operation; None if it is one."""
    if not program:
        return "a row of a text without the line 'Collective test starting: …', which says which program wrote it"
    if program not in OPS:
        return f"{program}: no operation of deepbench; read are {', '.join(OPS)}"
    if sum(rank[1] == ranks[0][1] for rank in ranks) < 2:
        return f"{program}: the text has fewer than two lines '#  Rank …' before it, so nothing was transferred"
    if "cputime" in columns or "time" not in columns:
        return f"{program}: its times are those of the CPU (-C 1), not of the operation"
    # A time stamp (-T) is the last column, and has a blank in it.
    if not 0 <= len(words) - len(columns) <= (columns[-1] == "timestamp"):
        return f"a row with {len(words)} words and {len(columns)} columns: {shorten(' '.join(words), 120)}"
    return None


def _version(code: int) -> str:
    return f"{code // 10000}.{code // 100 % 100}.{code % 100}"


def _row(columns: Sequence[str], words: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """A row of the text as JSON has it. The columns after `root` are those out of place, and then those in place."""
    at = next((i for i, name in enumerate(columns) if name == "time"), len(columns))
    first = dict(zip(columns[:at], words, strict=False))
    yield from (("type", first.get("type")), ("redop", first.get("redop", "none")))
    yield from ((name, int(first[name])) for name in ("size", "count"))
    half = (len(columns) - at) // 2
    for place, start in (("out_of_place", at), ("in_place", at + half)):
        values = dict(zip(columns[start : start + half], map(_number, words[start : start + half]), strict=True))
        time_us, rate = values.get("time"), values.get("algbw")
        if time_us and rate and abs(int(first["size"]) / time_us / 1e3 - rate) > 0.05 * rate + 0.006:
            time_us = None  # the columns are others than they seem
        wrong = values.get("#wrong")
        yield place, {"time": time_us, "bus_bw": values.get("busbw"), "nwrong": wrong}


def _number(word: str) -> float | None:
    """None for N/A."""
    try:
        return float(word)
    except ValueError:
        return None


def _integer(value: dict[str, Any], name: str) -> int:
    """A non-negative integer; 0 if it is missing or anything else."""
    number = value.get(name)
    return number if isinstance(number, int) and 0 <= number < 2**62 else 0


FORMAT = NcclTests()
