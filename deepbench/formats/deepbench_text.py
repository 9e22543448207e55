"""The original DeepBench: the output of its programs for NVIDIA, AMD, Intel and ARM.

Columns are found by their header, because they changed over the years. The output does not name the device or library;
`--machine` and `--library` add them. Most times are whole microseconds, means of consecutive calls.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from deepbench.core.errors import BadInput, shorten
from deepbench.formats import MOST_CHARACTERS, Format, ImportedCase, ImportedFile, ImportOptions, text_lines

# Precisions by their printed name. Products in "half" are different; see `_table_cases`.
PRECISIONS = {"float": "f32", "half": "f16", "int8": "i8", "uint8_t": "i8"}
SECONDS = {"usec": 1e-6, "msec": 1e-3}

INTEL_GEMM = re.compile(r"^(SGEMM|GEMM_S8U8S32)\(([NT]),([NT]),(\d+),(\d+),(\d+)\) ([\d.]+) usec", re.M)
INTEL_CONV = re.compile(r"^(FWD|BWD_D|BWD_F),[01](?:,\d+){11}(?:,[\d.e+-]+){4}$", re.M)
INTEL_SPARSE = re.compile(r"^sparse +\[(.*)$", re.M)
LIBXSMM = re.compile(r"^PERFDUMP,(FP|BP|WU),", re.M)
RANKS = re.compile(r"(?:Num Ranks:|# Number of Ranks)\s+(\d+)")
ALL_REDUCE = re.compile(r"^\s*(\d+)\s+(?:(\d+)\s+)?([\d.]+)(?:\s+[\d.]+)*\s*$")
BENCHMARK = re.compile(r"Running (?:the )?(training|inference) benchmark")
SUITES = {"training": ("deepbench/train",), "inference": ("deepbench/server", "deepbench/device")}
INTEL_DIRECTIONS = {"FWD": "forward", "BWD_D": "backward_data", "BWD_F": "backward_weights"}
LIBXSMM_DIRECTIONS = {"FP": "forward", "BP": "backward_data", "WU": "backward_weights"}

# Directions by the column of their time.
DIRECTIONS = {"fwd_time": "forward", "bwd_inputs_time": "backward_data", "bwd_params_time": "backward_weights"}


class DeepBenchText(Format):
    name = "DeepBench"
    about = "output of the original's programs"

    def matches(self, text: str) -> bool:
        if any(pattern.search(text) for pattern in (INTEL_GEMM, INTEL_CONV, INTEL_SPARSE, LIBXSMM)):
            return True
        return bool(RANKS.search(text) and "educe" in text) or any(_columns(line) for line in text.splitlines()[:200])

    def read(self, text: str, options: ImportOptions) -> ImportedFile:
        imported = ImportedFile(self.name, "unknown")
        columns: list[str] = []
        suites: tuple[str, ...] = ()
        all_reduce: tuple[str, int] | None = None
        program = ""
        for line in text_lines(text, self.name):
            if names := _columns(line):
                columns = names
            elif match := BENCHMARK.search(line):
                suites = SUITES[match[1]]
            elif match := RANKS.search(line):  # there may be several logs in one file
                all_reduce = program, int(match[1])
            elif "educe" in line:
                program = line
            elif columns and re.match(r"\s*(-?\d|vanilla|lstm|gru)", line) and all_reduce is None:
                values = line.replace("Not Supported", "NotSupported").split()
                row = dict(zip(columns, values, strict=False))
                imported.cases += [replace(c, suites=suites) for c in _row_cases(row, options, imported.left_out)]
            else:
                try:
                    if all_reduce and (match := ALL_REDUCE.match(line)):
                        imported.cases.append(_all_reduce_case(match, line.split(), *all_reduce, options))
                    else:
                        imported.cases += [replace(c, suites=suites) for c in _intel_cases(line, options)]
                except (ValueError, IndexError, ArithmeticError):
                    imported.left_out.append(f"an incomplete line: {shorten(line.strip())}")
        if not imported.cases and not imported.left_out:
            raise BadInput(f"DeepBench: the table of times has no rows: the program was aborted{_last_line(text)}")
        return imported


def _last_line(text: str) -> str:
    """What the program said at last."""
    last = text.rstrip()[-MOST_CHARACTERS:].splitlines()[-1:]
    return f"; its last line: {shorten(last[0].strip())}" if last and not _columns(last[0]) else ""


def _columns(line: str) -> list[str] | None:
    """The columns of a table of times, such as `time:usec`; None if the line is not a header."""
    if len(line) > MOST_CHARACTERS or not re.search(r"\((usec|msec)\)", line) or "# of floats" in line:
        return None
    text = re.sub(r"(?<!\s)\s*\((usec|msec)\)", r":\1", line)  # without (?<!\s) a line of blanks takes minutes
    text = re.sub(r"\b(sparse|dense) time", r"\1_time", text)
    return text.split()


@dataclass(frozen=True)
class _Library:
    """The end of a case's text."""

    backend: str
    threads: int

    @classmethod
    def choose(cls, options: ImportOptions, default: str | None, what: str) -> _Library:
        if options.backend or default:
            return cls(options.backend or str(default), options.threads or 1)
        raise BadInput(f"DeepBench: deepbench has no backend for the library of {what}; choose one with --backend")

    def case(self, words: str, value: str, unit_s: float, notes: Mapping[str, Any]) -> ImportedCase:
        text = f"{words} {self.backend} threads={self.threads}"
        try:
            seconds = float(value) * unit_s
        except ValueError:
            missing = "not supported" if value == "NotSupported" else f"its time is {shorten(value, 20)!r}"
            return ImportedCase(text, [], dict(notes), f"DeepBench: {missing}")
        if 0 < seconds < math.inf:
            return ImportedCase(text, [[seconds]], dict(notes))
        return ImportedCase(text, [], dict(notes), f"DeepBench: its time is {shorten(value, 20)!r}")


def _row_cases(row: dict[str, str], options: ImportOptions, left_out: list[str]) -> Iterator[ImportedCase]:
    """The cases in one row of a table: one per direction."""
    row = {name.lower(): value for name, value in row.items()}
    precision = PRECISIONS.get(row.get("precision", "float"))
    if precision is None:
        left_out.append(f"unknown precision {row['precision']!r}; known are {', '.join(PRECISIONS)}")
        return
    columns = [(*name.partition(":")[::2], value) for name, value in row.items() if ":" in name]
    times = {name: (value, SECONDS[unit]) for name, unit, value in columns}
    try:
        yield from _table_cases(row, times, precision, options)
    except KeyError as error:
        left_out.append(f"a row without {error.args[0]}, which may be cut off: {shorten(' '.join(row.values()))}")
    except ValueError:
        left_out.append(f"a row with a number that is none: {shorten(' '.join(row.values()))}")


def _table_cases(
    row: dict[str, str], times: dict[str, tuple[str, float]], precision: str, options: ImportOptions
) -> Iterator[ImportedCase]:
    is_arm = "msec" in " ".join(row) or row.get("precision") == "uint8_t"
    # Before June 2017, NVIDIA's table of products also lacked a precision, but has 0 and 1 where AMD's has n and t.
    is_amd = "precision" not in row and not is_arm and row.get("a_t") not in ("0", "1")
    notes: dict[str, Any] = {}
    if "sparsity" in row:
        library = _Library.choose(options, None if "precision" in row else "cusparse", "ARM's sparse products")
        sizes = f"{_sizes(row, 'm', 'n', 'k')} sparsity={round(100 * float(row['sparsity']))}"
        notes["their_dense_s"] = float(times["dense_time"][0]) * times["dense_time"][1]
        yield library.case(f"sparse_gemm {sizes} forward {precision}", *times["sparse_time"], notes)
    elif "a_t" in row:
        library = _Library.choose(options, None if is_arm else "hipblas" if is_amd else "cublas", "ARM's products")
        if row.get("pad_kerenels") == "1":
            notes["padded"] = True
        if precision == "f16" and not is_amd:
            precision = "f16f16"
            notes["sums"] = "accumulated in 16 bits since November 2017, before that in 32; the file does not say which"
        a_t, b_t = (int(row[n] in ("1", "t", "T")) for n in ("a_t", "b_t"))
        sizes = f"{_sizes(row, 'm', 'n', 'k')} a_t={a_t} b_t={b_t}"
        yield library.case(f"gemm {sizes} forward {'i8' if is_arm else precision}", *times["time"], notes)
    elif "pad_w" in row:
        # In older programs r is the width of the filter, and s its height.
        s, r = (row["f_w"], row["f_h"]) if "f_w" in row else (row["r"], row["s"])
        sizes = _sizes({**row, "r": r, "s": s}, *"nchwkrs", "pad_h", "pad_w", "stride_h", "stride_w")
        default = "miopen" if is_amd else "cudnn" if "fwd_algo" in row else None
        library = _Library.choose(options, default, "ARM's convolutions")
        for name, direction in DIRECTIONS.items():
            if name in times:
                has_algorithm = direction == "forward" and row.get("fwd_algo")
                notes = {"algorithm": row["fwd_algo"]} if has_algorithm else {}
                yield library.case(f"conv {sizes} {direction} {precision}", *times[name], notes)
    else:
        library = _Library.choose(options, "miopen" if "rnn_type" in row else "cudnn", "")
        words = {
            "cell": row.get("type") or row["rnn_type"],
            "hidden": row.get("hidden") or row["hidden_size"],
            "batch": row.get("n") or row["batch_size"],
            "timesteps": row.get("timesteps") or row["time_steps"],
        }
        directions = {**DIRECTIONS, "bwd_time": "backward_data"}
        trains = any(name in times for name, direction in directions.items() if direction != "forward")
        for name, direction in directions.items():
            if name in times and times[name][0] != "0":  # AMD did not measure gradients of weights
                # Before a backward pass, the forward pass stores what that needs.
                mode = " mode=training" if trains and direction == "forward" else ""
                yield library.case(f"recurrent {_sizes(words)} {direction} {precision}{mode}", *times[name], {})


def _sizes(values: Mapping[str, str], *names: str) -> str:
    return " ".join(f"{name}={values[name]}" for name in names or values)


def _all_reduce_case(
    match: re.Match[str], words: list[str], program: str, ranks: int, options: ImportOptions
) -> ImportedCase:
    is_osu = "OSU" in program  # with any MPI
    default = "rccl" if "RCCL" in program else "nccl" if "NCCL" in program else None if is_osu else "ring"
    library = _Library.choose(options, default, "OSU's all-reduce")
    # Without MPI, one process drives all GPUs.
    one = " processes=one" if default == "nccl" and "MPI" not in program else ""
    return library.case(f"all_reduce n={match[1]} ranks={ranks} forward f32{one}", words[1 if is_osu else 2], 1e-3, {})


def _intel_cases(line: str, options: ImportOptions) -> Iterator[ImportedCase]:
    if match := INTEL_GEMM.match(line):
        name, a, b, m, n, k, microseconds = match.groups()
        sizes = f"m={m} n={n} k={k} a_t={int(a == 'T')} b_t={int(b == 'T')}"
        words = f"gemm {sizes} forward {'f32' if name == 'SGEMM' else 'i8u8'}"
        yield _Library.choose(options, "mkl", "").case(words, microseconds, 1e-6, {})
    elif INTEL_CONV.match(line):
        direction, _, n, w, h, c, k, s, r, stride_w, stride_h, pad_w, pad_h, _, _, mean_ms, _ = line.split(",")
        sizes = (
            f"n={n} c={c} h={h} w={w} k={k} r={r} s={s} "
            f"pad_h={pad_h} pad_w={pad_w} stride_h={stride_h} stride_w={stride_w}"
        )
        words = f"conv {sizes} {INTEL_DIRECTIONS[direction]} f32"
        yield _Library.choose(options, "onednn", "").case(words, mean_ms, 1e-3, {})
    elif match := INTEL_SPARSE.match(line):
        m, n, k, non_zeros, seconds, *_ = (word.strip() for word in match[1].split("|"))
        sparsity = round(100 * (1 - int(non_zeros) / (int(m) * int(k))))
        words = f"sparse_gemm m={m} n={n} k={k} sparsity={sparsity} forward f32"
        yield _Library.choose(options, "mkl", "").case(words, seconds, 1.0, {})
    elif match := LIBXSMM.match(line):
        _, kind, _, threads, n, c, k, w, h, s, r, stride, pad_w, pad_h, seconds, *_ = line.split(",")
        sizes = (
            f"n={n} c={c} h={h} w={w} k={k} r={r} s={s} pad_h={pad_h} pad_w={pad_w} stride_h={stride} stride_w={stride}"
        )
        library = replace(_Library.choose(options, None, "LIBXSMM's convolutions"), threads=int(threads))
        words = f"conv {sizes} {LIBXSMM_DIRECTIONS[kind]} f32"
        yield library.case(words, seconds, 1.0, {"implementation": "LIBXSMM"})


FORMAT = DeepBenchText()
