"""The original DeepBench: what its programs print, for NVIDIA, AMD, Intel and ARM.

Columns are found by their header, because they changed over the years. Nothing says on which card or library a text was
made: --machine and --library do. Times of most are whole microseconds, means of calls made back to back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from deepbench.core.errors import BadInput
from deepbench.formats import Format, Found, Given, Imported

# Precisions as they are printed; "half" dense products are another (see `_cases`).
PRECISIONS = {"float": "f32", "half": "f16", "int8": "i8", "uint8_t": "i8"}
SECONDS = {"usec": 1e-6, "msec": 1e-3}

INTEL_GEMM = re.compile(r"^(SGEMM|GEMM_S8U8S32)\(([NT]),([NT]),(\d+),(\d+),(\d+)\) ([\d.]+) usec")
INTEL_CONV = re.compile(r"^(FWD|BWD_D|BWD_F),[01](?:,\d+){11}(?:,[\d.e+-]+){4}$")
INTEL_SPARSE = re.compile(r"^sparse +\[(.*)$")
LIBXSMM = re.compile(r"^PERFDUMP,(FP|BP|WU),")
RANKS = re.compile(r"(?:Num Ranks:|# Number of Ranks)\s+(\d+)")
REDUCED = re.compile(r"^\s*(\d+)\s+(?:(\d+)\s+)?([\d.]+)(?:\s+[\d.]+)*\s*$")
BENCHMARK = re.compile(r"Running (?:the )?(training|inference) benchmark")
SUITES = {"training": ("deepbench/train",), "inference": ("deepbench/server", "deepbench/device")}
INTEL_DIRECTIONS = {"FWD": "forward", "BWD_D": "backward_data", "BWD_F": "backward_weights"}
LIBXSMM_DIRECTIONS = {"FP": "forward", "BP": "backward_data", "WU": "backward_weights"}

# Columns of times and what they are of.
DIRECTIONS = {"fwd_time": "forward", "bwd_inputs_time": "backward_data", "bwd_params_time": "backward_weights"}


class DeepBenchText(Format):
    name = "DeepBench"
    about = "what the original's programs print"

    def sniff(self, text: str) -> bool:
        if INTEL_GEMM.search(text) or re.search(INTEL_GEMM.pattern, text, re.M):
            return True
        if re.search(INTEL_CONV.pattern, text, re.M) or re.search(INTEL_SPARSE.pattern, text, re.M):
            return True
        if re.search(LIBXSMM.pattern, text, re.M):
            return True
        return bool(RANKS.search(text) and "educe" in text) or any(_header(line) for line in text.splitlines()[:200])

    def read(self, text: str, given: Given) -> Imported:
        imported = Imported(self.name, {"name": "not said"})
        header: list[str] = []
        suites: tuple[str, ...] = ()
        reduced: tuple[str, int] | None = None
        program = ""
        for line in text.splitlines():
            if known := _header(line):
                header = known
            elif found := BENCHMARK.search(line):
                suites = SUITES[found[1]]
            elif found := RANKS.search(line):  # several logs may be one after the other
                reduced = program, int(found[1])
            elif "educe" in line:
                program = line
            elif header and re.match(r"\s*(\d|vanilla|lstm|gru)", line) and reduced is None:
                values = line.replace("Not Supported", "NotSupported").split()
                cells = dict(zip(header, values, strict=False))
                imported.found += [replace(f, suites=suites) for f in _row(cells, given, imported.left_out)]
            else:
                try:
                    if reduced and (row := REDUCED.match(line)):
                        imported.found.append(_all_reduce(line, row, *reduced, given))
                    else:
                        imported.found += [replace(f, suites=suites) for f in _intel(line, given)]
                except (ValueError, IndexError, ArithmeticError):  # a line that was cut off
                    imported.left_out.append(f"a line that is not whole: {line.strip()[:60]}")
        return imported


def _header(line: str) -> list[str] | None:
    """The columns of a table of times, or None."""
    if not re.search(r"\((usec|msec)\)", line) or "# of floats" in line:
        return None
    text = re.sub(r"\s*\((usec|msec)\)", r":\1", line)
    text = re.sub(r"\b(sparse|dense) time", r"\1_time", text)
    return text.split()


def _need(given: Given, usual: str | None, what: str) -> tuple[str, int]:
    """Library and threads."""
    if given.backend or usual:
        return given.backend or str(usual), given.threads
    raise BadInput(f"DeepBench: {what} ran on a library that deepbench has no word for; say one with --backend")


def _row(row: dict[str, str], given: Given, left_out: list[str]) -> Iterator[Found]:
    row = {name.lower(): value for name, value in row.items()}
    said = row.get("precision")
    precision = PRECISIONS.get(said or "float")
    if precision is None:
        left_out.append(f"precision {said}: none of {', '.join(PRECISIONS)}")
        return
    times = {
        name.partition(":")[0]: (value, SECONDS[name.partition(":")[2]]) for name, value in row.items() if ":" in name
    }
    try:
        yield from _cases(row, times, precision, given)
    except (KeyError, ValueError):
        left_out.append(f"a row that fits no table: {' '.join(row.values())[:60]}")


def _cases(row: dict[str, str], times: dict[str, tuple[str, float]], precision: str, given: Given) -> Iterator[Found]:
    arm = "msec" in " ".join(row) or row.get("precision") == "uint8_t"
    # Before June 2017 NVIDIA's products had no precision in their table either, but 0 and 1 where AMD's have n and t.
    amd = "precision" not in row and not arm and row.get("a_t") not in ("0", "1")
    if "sparsity" in row:
        backend = _need(given, None if "precision" in row else "cusparse", "sparse products of ARM")
        size = f"m={row['m']} n={row['n']} k={row['k']} sparsity={round(100 * float(row['sparsity']))}"
        notes: dict[str, Any] = {"their_dense_s": float(times["dense_time"][0]) * times["dense_time"][1]}
        yield _found(f"sparse_gemm {size} forward {precision}", backend, *times["sparse_time"], notes)
    elif "a_t" in row:
        a, b = (str(int(row[n] in ("1", "t", "T"))) for n in ("a_t", "b_t"))
        usual = None if arm else "hipblas" if amd else "cublas"
        backend = _need(given, usual, "products of ARM")
        kind = "i8" if arm else precision
        notes = {"padded": True} if row.get("pad_kerenels") == "1" else {}
        if precision == "f16" and not amd:
            kind = "f16f16"
            notes["sums"] = "in 16 bits since November 2017, before that in 32: the text does not say which"
        size = f"m={row['m']} n={row['n']} k={row['k']} a_t={a} b_t={b}"
        yield _found(f"gemm {size} forward {kind}", backend, *times["time"], notes)
    elif "pad_w" in row:
        # Older programs call the filter's sides r and s, the width first.
        width, height = (row["f_w"], row["f_h"]) if "f_w" in row else (row["r"], row["s"])
        size = (
            f"n={row['n']} c={row['c']} h={row['h']} w={row['w']} k={row['k']} r={height} s={width} "
            f"pad_h={row['pad_h']} pad_w={row['pad_w']} stride_h={row['stride_h']} stride_w={row['stride_w']}"
        )
        usual = "miopen" if amd else "cudnn" if "fwd_algo" in row else None
        backend = _need(given, usual, "convolutions of ARM")
        notes = {"algorithm": row["fwd_algo"]} if row.get("fwd_algo") else {}
        for name, direction in DIRECTIONS.items():
            if name in times:
                yield _found(
                    f"conv {size} {direction} {precision}",
                    backend,
                    *times[name],
                    notes if direction == "forward" else {},
                )
    else:
        cell = row.get("type") or row["rnn_type"]
        hidden = row.get("hidden") or row["hidden_size"]
        batch = row.get("n") or row["batch_size"]
        steps = row.get("timesteps") or row["time_steps"]
        size = f"cell={cell} hidden={hidden} batch={batch} timesteps={steps}"
        backend = _need(given, "miopen" if "rnn_type" in row else "cudnn", "recurrent layers")
        names = {**DIRECTIONS, "bwd_time": "backward_data"}
        trains = any(name in times for name, direction in names.items() if direction != "forward")
        for name, direction in names.items():
            if name in times and times[name][0] != "0":  # AMD's gradients of weights were not measured
                # With a backward pass to come, the forward one keeps what that needs.
                mode = " mode=training" if trains and direction == "forward" else ""
                yield _found(f"recurrent {size} {direction} {precision}{mode}", backend, *times[name], {})


def _found(words: str, backend: tuple[str, int], value: str, unit: float, notes: Mapping[str, Any]) -> Found:
    text = f"{words} {backend[0]} threads={backend[1]}"
    try:
        seconds = float(value) * unit
    except ValueError:
        return Found(text, [], dict(notes), "DeepBench: not supported")
    return Found(text, [[seconds]] if seconds > 0 else [], dict(notes), None if seconds > 0 else "DeepBench: no time")


def _all_reduce(line: str, found: re.Match[str], program: str, ranks: int, given: Given) -> Found:
    osu = "OSU" in program  # of whichever MPI
    usual = "rccl" if "RCCL" in program else "nccl" if "NCCL" in program else None if osu else "ring"
    n = int(found[1])
    words = line.split()
    milliseconds = words[1] if osu else words[2]
    backend = _need(given, usual, "OSU's all-reduce")
    # Without MPI one process drives all cards.
    one = " processes=one" if usual == "nccl" and "MPI" not in program else ""
    return _found(f"all_reduce n={n} ranks={ranks} forward f32{one}", backend, milliseconds, 1e-3, {})


def _intel(line: str, given: Given) -> Iterator[Found]:
    if found := INTEL_GEMM.match(line):
        name, a, b, m, n, k, usec = found.groups()
        precision = "f32" if name == "SGEMM" else "i8u8"
        size = f"m={m} n={n} k={k} a_t={int(a == 'T')} b_t={int(b == 'T')}"
        yield _found(f"gemm {size} forward {precision}", _need(given, "mkl", ""), usec, 1e-6, {})
    elif INTEL_CONV.match(line):
        direction, _, n, w, h, c, k, s, r, stride_w, stride_h, pad_w, pad_h, _, _, mean_ms, _ = line.split(",")
        size = (
            f"n={n} c={c} h={h} w={w} k={k} r={r} s={s} "
            f"pad_h={pad_h} pad_w={pad_w} stride_h={stride_h} stride_w={stride_w}"
        )
        yield _found(f"conv {size} {INTEL_DIRECTIONS[direction]} f32", _need(given, "onednn", ""), mean_ms, 1e-3, {})
    elif found := INTEL_SPARSE.match(line):
        m, n, k, nnz, seconds, *_ = (word.strip() for word in found[1].split("|"))
        sparsity = round(100 * (1 - int(nnz) / (int(m) * int(k))))
        size = f"m={m} n={n} k={k} sparsity={sparsity}"
        yield _found(f"sparse_gemm {size} forward f32", _need(given, "mkl", ""), seconds, 1.0, {})
    elif found := LIBXSMM.match(line):
        _, kind, _, threads, n, c, k, w, h, s, r, stride, pad_w, pad_h, seconds, *_ = line.split(",")
        size = (
            f"n={n} c={c} h={h} w={w} k={k} r={r} s={s} pad_h={pad_h} pad_w={pad_w} stride_h={stride} stride_w={stride}"
        )
        direction = LIBXSMM_DIRECTIONS[kind]
        yield _found(
            f"conv {size} {direction} f32",
            (_need(given, None, "LIBXSMM")[0], int(threads)),
            seconds,
            1.0,
            {"implementation": "LIBXSMM"},
        )


FORMAT = DeepBenchText()
