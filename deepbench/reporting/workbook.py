"""A result file as a workbook: sheets with the layout of the original DeepBench, and one sheet with one row per case.

In the original's sheets each row is a row of a suite with its fastest library. Cells without a measurement are empty.
Cells hold values, not formulas.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepbench.core.errors import BadInput
from deepbench.core.files import replacing
from deepbench.plan.suites import read_suite
from deepbench.reporting import export
from deepbench.reporting.table import Table, not_a_formula
from deepbench.results.file import ResultFile
from deepbench.results.summary import Summary, baselines

REMEDY = "a workbook needs openpyxl: pip install openpyxl"

# The original's name of a sheet, and the text of cell B1; for f16 that of its V100 workbook.
TRAIN = {
    "f32": ("Results FP32", "Float"),
    "tf32": ("Results TF32", "32 bit inputs, 19 bit multiplication, 32 bit addition"),
    "f16": ("Results - FP16 ip, Mixed math", "16 bit inputs, 16 bit multiplication, 32 bit addition"),
    "bf16": ("Results - BF16 ip, Mixed math", "16 bit inputs (bfloat16), 16 bit multiplication, 32 bit addition"),
}
# The original's problem list has one element more than its sheets.
SAME_SIZE = {16777217: 16777216}

DEVICE_NAME, SERVER_NAME = "Kernels", "Results - Mixed Precision"
EIGHT_BITS = ("i8u8", "i8")

GEMM = {1: "Dense Matrix Multiplication", 3: "M", 4: "N", 5: "K", 6: "A Transpose", 7: "B Transpose", 9: "Time (msec)"}
SPARSE = {
    **{1: "Sparse Matrix Multiplication", 3: "M", 4: "N", 5: "K", 6: "A Transpose", 7: "B Transpose", 8: "Sparsity"},
    **{10: "Sparse Time (msec)", 11: "Dense Time (msec)", 13: "Speedup wrt dense"},
}
CONV_TRAIN = (
    *("W", "H", "C", "N", "K ", "S (Filter width)", "R (Filter height)", "pad_w", "pad_h", "Horizontal stride"),
    *("Vertical stride", "Forward (msec)", "wrt Inputs (msec)", "wrt Parameters (msec)", None, "P", "Q"),
    *("Total Time (msec)", "FWD TERAFLOPS", "BWD INPUTS TERAFLOPS", "BWD PARMS TERAFLOPS", "Forward Algorithm"),
)
CONV_INFERENCE = (
    *("W (input - time)", "H (input)", "C (channels)", "N (batch size)", "K  (number of filters)", "S (filter width)"),
    *("R (filter height)", "pad_w", "pad_h", "Horizontal Stride", "Vertical Stride", "Forward (msec)", "P", "Q"),
)
INPUT_LAYERS = (
    "* = The backward pass wrt inputs is excluded for these kernels since they are typically the input layers of a "
    "neural network"
)
RECURRENT_TRAIN = (
    *("Hidden Units", "N", "Timesteps", None, "Time Forward (msec)", "Time Backward wrt Inputs (msec)"),
    *("Time Backward wrt Weights (msec)", "TERAFLOPS FWD", "TERAFLOPS BWD Inputs", "TERAFLOPS BWD Weights"),
    "Total Time",
)
TITLES = {"vanilla": "Recurrent Layers - Vanilla", "lstm": "Recurrent Layers - LSTM", "gru": "Recurrent Layers - GRU"}

# Rows of the products, as in the original's V100, TitanXp and Raspberry Pi workbooks.
TRAIN_GEMM_ROWS = [*range(5, 49), *range(51, 67), *range(68, 84), *range(85, 87), *range(88, 170)]


@dataclass(frozen=True)
class _Fastest:
    """The fastest case of each row of a suite in some precisions."""

    cases: dict[tuple[str, int, str], Summary]
    """By operation, row and direction."""
    dense: dict[str, float]
    """Seconds of the fastest dense product of the same shape, by the text of a sparse case."""

    def get(self, op: str, row: int, direction: str = "forward") -> Summary | None:
        return self.cases.get((op, row, direction))


def write(results: ResultFile, summaries: Sequence[Summary], path: Path) -> None:
    """Write the workbook; `BadInput` without openpyxl, and where the file cannot be written."""
    try:
        import openpyxl
    except ImportError:
        raise BadInput(REMEDY) from None
    book = openpyxl.Workbook()
    book.remove(book.active)
    ranked = [s for s in summaries if s.is_ranked]
    disturbed = sum(s.is_ranked and s.is_disturbed for s in summaries)
    suites = {source["suite"] for s in ranked for source in s.record["sources"]}
    if "deepbench/train" in suites:
        for precision, (name, words) in TRAIN.items():
            fastest = _fastest(ranked, "deepbench/train", (precision,))
            if fastest.cases:
                _train(_sheet(book, name), fastest, words)
    for suite, name, unit in (("deepbench/server", SERVER_NAME, 1e12), ("deepbench/device", DEVICE_NAME, 1e9)):
        if suite in suites:
            _inference(_sheet(book, name), ranked, suite, unit)
    _specs(_sheet(book, "Specs"), results, disturbed)
    _all_cases(_sheet(book, "All cases"), export.table(results, summaries))
    with replacing(path) as draft:
        # In memory first: openpyxl tries to end a file that could not be written and prints a traceback.
        content = io.BytesIO()
        book.save(content)
        draft.write_bytes(content.getvalue())


def _sheet(book: Any, name: str) -> Any:
    sheet = book.create_sheet(name)
    sheet.column_dimensions["A"].width = 28
    return sheet


# The settings of the original's programs; its recurrent layers run in training mode.
USUAL: tuple[list[str], ...] = ([], ["mode=training"])


def _fastest(ranked: Sequence[Summary], suite: str, precisions: Sequence[str]) -> _Fastest:
    best: dict[tuple[str, int, str], Summary] = {}
    for s in ranked:
        # The original's tables have no column for settings.
        # Nor have they a place for a mark, so a disturbed time is left out.
        if s.is_disturbed or s.record["precision"] not in precisions or s.settings_words(variants=False) not in USUAL:
            continue
        for source in s.record["sources"]:
            key = s.record["op"], source["row"], s.record["direction"]
            if source["suite"] == suite and (key not in best or s.time_s < best[key].time_s):
                best[key] = s
    dense = {text: b.summary.time_s for text, b in baselines(ranked).items() if not b.withheld}
    return _Fastest(best, dense)


def _entries(suite: str, op: str) -> list[tuple[int, Any, str]]:
    """Row, problem and application of the rows of a suite, each once."""
    entries: dict[int, tuple[int, Any, str]] = {}
    for entry in read_suite(suite):
        if entry.pattern.op == op and entry.source:
            row = int(entry.source["row"])
            label = str(entry.source.get("label") or entry.source["application"])
            entries.setdefault(row, (row, entry.pattern.problem, label))
    return [entries[row] for row in sorted(entries)]


def _milliseconds(s: Summary | None) -> float | None:
    return s.time_s * 1e3 if s else None


def _rate(s: Summary | None, unit: float) -> float | None:
    return s.flop_per_s / unit if s and s.flop_per_s else None


def _put(sheet: Any, row: int, cells: dict[int, Any]) -> None:
    for column, value in cells.items():
        if value is not None:
            cell = sheet.cell(row, column, not_a_formula(value))
            if isinstance(value, float):
                cell.number_format = "0.00" if abs(value) >= 1 else "0.000000"


def _gemm(sheet: Any, rows: Sequence[int], suite: str, fastest: _Fastest, unit: float) -> None:
    for (row, p, label), at in zip(_entries(suite, "gemm"), rows, strict=True):
        s = fastest.get("gemm", row)
        rate = _rate(s, unit)
        cells = {2: label, 3: p.m, 4: p.n, 5: p.k, 6: "NT"[p.a_t], 7: "NT"[p.b_t], 9: _milliseconds(s), 10: rate}
        _put(sheet, at, cells | {11: 0 if s and unit == 1e12 and suite != "deepbench/train" else None})


def _train(sheet: Any, fastest: _Fastest, words: str) -> None:
    _put(sheet, 1, {1: "Precision", 2: words})
    _put(sheet, 4, {**GEMM, 10: "TERAFLOPS"})
    _gemm(sheet, TRAIN_GEMM_ROWS, "deepbench/train", fastest, 1e12)
    _put(sheet, 174, {1: "Convolution"})
    _put(sheet, 175, dict(enumerate(CONV_TRAIN, 3)))
    conv = [e.source for e in read_suite("deepbench/train") if e.source and e.pattern.op == "conv"]
    # Rows whose gradient with respect to the input is not needed for training.
    not_needed = {int(source["row"]) for source in conv if not source.get("needed", True)}
    for at, (row, p, label) in enumerate(_entries("deepbench/train", "conv"), 176):
        passes = [fastest.get("conv", row, d) for d in ("forward", "backward_data", "backward_weights")]
        times: list[Any] = [_milliseconds(s) for s in passes]
        rates: list[Any] = [_rate(s, 1e12) for s in passes]
        needed = [times[0], times[2]] if row in not_needed else list(times)
        if row in not_needed:
            times[1] = rates[1] = "N/A*"
        total = sum(needed) if all(t is not None for t in needed) else None
        algorithm = passes[0].record["notes"].get("implementation") if passes[0] else None
        values = (*_conv_sizes(p), *times, None, p.output[2], p.output[1], total, *rates, algorithm)
        _put(sheet, at, {2: label, **dict(enumerate(values, 3))})
    _put(sheet, 272, {4: INPUT_LAYERS})
    firsts = {"vanilla": (274, 276), "lstm": (291, 292), "gru": (316, 317)}
    for cell, (head, first) in firsts.items():
        _put(sheet, head, {1: TITLES[cell], **dict(enumerate(RECURRENT_TRAIN, 3))})
        layers = [e for e in _entries("deepbench/train", "recurrent") if e[1].cell == cell]
        for at, (row, p, label) in enumerate(layers, first):
            passes = [fastest.get("recurrent", row, d) for d in ("forward", "backward_data", "backward_weights")]
            times = [_milliseconds(s) for s in passes]
            # Libraries with one call for both gradients.
            both = _milliseconds(fastest.get("recurrent", row, "backward"))
            rates = [_rate(s, 1e12) for s in passes]
            known = [t for t in (times[0], both) if t is not None] if both else times
            total = sum(t for t in known if t is not None) if None not in known and len(known) > 1 else None
            values = (p.hidden, p.batch, p.timesteps, None, *times, *rates, total)
            _put(sheet, at, {2: label, **dict(enumerate(values, 3))})
    _all_reduce(sheet, fastest)


def _all_reduce(sheet: Any, fastest: _Fastest) -> None:
    head = {1: "All-Reduce", 3: "Size # floats", 4: "# chips / accelerator cards", 7: "Mean All Reduce Time (msec)"}
    _put(sheet, 339, {**head, 9: "Gigabytes/sec", 10: "Selected Algorithm", 11: "Std Dev All Reduce Time (msec)"})
    for at, (row, p, _) in enumerate(_entries("deepbench/train", "all_reduce"), 341):
        s = fastest.get("all_reduce", row)
        rate = s.original_bytes_per_s / 1e9 if s and s.original_bytes_per_s else None
        cells = {3: SAME_SIZE.get(p.n, p.n), 4: p.ranks, 7: _milliseconds(s), 9: rate}
        _put(sheet, at, cells | {10: s.library_title if s else None})


def _conv_sizes(p: Any) -> tuple[int, ...]:
    return p.w, p.h, p.c, p.n, p.k, p.s, p.r, p.pad_w, p.pad_h, p.stride_w, p.stride_h


def _inference(sheet: Any, ranked: Sequence[Summary], suite: str, unit: float) -> None:
    server = suite == "deepbench/server"
    word = "TERAFLOPS" if server else "GIGAFLOPS"
    eight, single = _fastest(ranked, suite, EIGHT_BITS), _fastest(ranked, suite, ("f32",))
    gemm, conv = (eight if any(op == name for op, _, _ in eight.cases) else single for name in ("gemm", "conv"))
    int8 = "Int8 multiplication, 32 bit accumulation"
    kinds = {"GEMM": gemm is eight, "Conv": conv is eight}
    words = "; ".join(f"{name}: {int8 if is_eight else 'single precision'}" for name, is_eight in kinds.items())
    _put(sheet, 1, {1: "Precision", 2: words})
    first = {"gemm": 4, "sparse": 83, "conv": 111} if server else {"gemm": 4, "sparse": 21, "conv": 33}
    if server:
        _put(sheet, 2, {2: "Sparse Ops, RNN: single precision"})
    _put(sheet, first["gemm"] - 1, {**GEMM, 10: word, **({11: "Padded Kernels"} if server else {})})
    problems = _entries(suite, "gemm")
    _gemm(sheet, range(first["gemm"], first["gemm"] + len(problems)), suite, gemm, unit)
    _put(sheet, first["sparse"] - 1, {**SPARSE, 12: f"Sparse{'' if server else ' '}{word}"})
    for at, (row, p, label) in enumerate(_entries(suite, "sparse_gemm"), first["sparse"]):
        s = single.get("sparse_gemm", row)
        dense = single.dense.get(s.record["case"]) if s else None
        speed_up = dense / s.time_s if s and dense else None
        rate = _rate(s, unit)
        cells = {2: label, 3: p.m, 4: p.n, 5: p.k, 6: "N", 7: "N", 8: p.sparsity / 100, 10: _milliseconds(s)}
        _put(sheet, at, {**cells, 11: dense * 1e3 if dense else None, 12: rate, 13: speed_up})
    _put(sheet, first["conv"] - 2, {1: "Convolution"})
    last = [f"FWD {word}", *(["Padded Kernels"] if server else [])]
    _put(sheet, first["conv"] - 1, dict(enumerate((*CONV_INFERENCE, *last), 3)))
    for at, (row, p, label) in enumerate(_entries(suite, "conv"), first["conv"]):
        s = conv.get("conv", row)
        rate = _rate(s, unit)
        values = (*_conv_sizes(p), _milliseconds(s), p.output[2], p.output[1], rate, 0 if s and server else None)
        _put(sheet, at, {2: label, **dict(enumerate(values, 3))})
    places = {"lstm": (227, 228), "gru": (245, 246)} if server else {"vanilla": (56, 58), "lstm": (63, 64)}
    for cell, (head, start) in places.items():
        column = 7 if server else 6
        rate_head = {8: "FWD TERAFLOPS"} if server else {}
        titles = {3: "Hidden units", 4: "N", 5: "Timesteps", column: "Time Forward (msec)"}
        _put(sheet, head, {1: TITLES[cell], **titles, **rate_head})
        layers = [e for e in _entries(suite, "recurrent") if e[1].cell == cell]
        for at, (row, p, label) in enumerate(layers, start):
            s = single.get("recurrent", row)
            rate = _rate(s, unit) if server else None
            cells = {2: label, 3: p.hidden, 4: p.batch, 5: p.timesteps, column: _milliseconds(s)}
            _put(sheet, at, {**cells, **({8: rate} if server else {})})


TIMES = "lower quartile over processes of the median of undisturbed samples"


def _specs(sheet: Any, results: ResultFile, disturbed: int) -> None:
    machine = results.header["machine"]
    imported = results.header["plan"]["mode"] == "imported"
    cards = [a["library"].get("card") for a in results.header["libraries"].values() if "library" in a]
    card = next((c for c in cards if isinstance(c, dict)), {})
    facts: list[tuple[str, Any]] = [
        ("CPU Model", machine.get("cpu")),
        ("GPU Model", card.get("name")),
        ("Linux Kernel Version", machine.get("kernel")),
        ("System", machine.get("system")),
        *(
            (f"{name} Version", answer["library"]["version"])
            for name, answer in results.header["libraries"].items()
            if "library" in answer
        ),
        ("Imported" if imported else "Measured", results.header["started"]),
        ("Tool", results.header["tool"]),
        ("Times", f"{'as another program measured them' if imported else TIMES}; fastest library of each row"),
        (
            "Settings",
            "those of the suite, else the defaults; cases with other settings are in the sheet All cases only",
        ),
        ("Rates", "without padding; sparse products count non-zeros only, while the original also counted zeros"),
        ("Left out", f"{disturbed} times that other programs disturbed; All cases has them" if disturbed else None),
        ("More", "the sheet All cases has the library, settings and confidence interval of every case"),
    ]
    for at, (name, value) in enumerate([fact for fact in facts if fact[1] is not None], 1):
        _put(sheet, at, {1: name, 2: str(value)})


def _all_cases(sheet: Any, cases: Table) -> None:
    """One row per case, to sort and filter."""
    from openpyxl.styles import Font

    for column, name in enumerate((c.name for c in cases.columns), 1):
        sheet.cell(1, column, not_a_formula(name)).font = Font(bold=True)
        for at, row in enumerate(cases.rows, 2):
            if row.get(name) is not None:
                sheet.cell(at, column, not_a_formula(row[name]))
    sheet.freeze_panes = "B2"
    if cases.rows:
        sheet.auto_filter.ref = sheet.dimensions
