"""benchdnn: the lines of `--mode=P`, by the template that it prints before them. Matrix products and convolutions.

Times are milliseconds; the mean is used. benchdnn's matrices are row-major and ours are column-major, so its M×K:K×N is
our m=N n=M. Its recurrent layers are skipped: their sizes are not read yet.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from deepbench.core.errors import BadInput, shorten
from deepbench.core.onednn_text import numbers, precision_of, shapes
from deepbench.formats import Format, ImportedCase, ImportedFile, ImportOptions, _benchdnn_problems, text_lines
from deepbench.formats._problems import ProblemExport, ProblemFormat, ProblemOptions
from deepbench.plan.problems import ExportedProblem

TEMPLATE = re.compile(r"\b(?:Output template|Template entries): *(perf,.*)")
LINE = re.compile(r"\bperf, *(?:cpu|gpu) *,")
PART = re.compile(r"(?=\bperf,)")

# The state of a test and its problem, such as `3:FAILED (errors:12 total:1024) __REPRO: --matmul 8x8:8x8`.
STATE = re.compile(r"\b\d{1,9}: ?([A-Z_]{4,30})( \([^)]{0,200}\))?.{0,200}?__REPRO: (.*)")
GOOD_STATES = ("PASSED", "EXECUTED", "LISTED", "INITIALIZED")

# What is printed by default, with and without the time of creation; the number of columns tells them apart. A file
# whose template line is missing has one of them.
DEFAULT_TEMPLATES = (
    "perf,%engine%,%impl%,%name%,%prb%,%Gops%,%+ctime%,%-time%,%-Gflops%,%0time%,%0Gflops%",
    "perf,%engine%,%impl%,%name%,%prb%,%Gops%,%-time%,%-Gflops%,%0time%,%0Gflops%",
)

# A rate and a time in one line say the same if they differ by less: both are rounded, and rarely to two digits.
AGREEING = 0.1
DIRECTIONS = {
    **dict.fromkeys(("FWD_B", "FWD_D", "FWD_I"), "forward"),
    "BWD_D": "backward_data",
    **dict.fromkeys(("BWD_W", "BWD_WB"), "backward_weights"),
}

# Options that do not change the work, and options that are translated. Lines with any other option are skipped: it may
# add work (a bias, scales), remove work (zeros) or change the precision.
OPTIONS = {
    *("matmul", "conv", "mode", "engine", "dir", "dt", "cfg", "stag", "wtag", "dtag", "alg", "skip-impl", "impl"),
    *("attr-scratchpad", "attr-post-ops", "cold-cache", "max-ms-per-prb", "fix-times-per-prb", "allow-enum-tags-only"),
}

# Layouts of matrices that have a case: row-major, transposed, or packed by the library.
MATRIX_TAGS = {"stag": ("any", "ab", "abx", "ba"), "wtag": ("any", "ab", "abx", "ba"), "dtag": ("any", "ab", "abx")}
TYPE = "f32|f16|bf16|s32|s8|u8|f64"
CHANNELS_LAST = ("axb", "acdb", "nhwc")

# The setting for the type of the result, by operation and precision. There is no case for other types.
RESULTS = {
    **{("gemm", kind, kind): "result=narrow" for kind in ("bf16", "f16")},
    **{("gemm", kind, "f32"): "" for kind in ("f32", "bf16", "f16")},
    **{("gemm", kind, "s32"): "" for kind in ("i8", "i8u8")},
    **{("conv", kind, kind): "" for kind in ("f32", "bf16", "f16")},
    **{("conv", kind, "f32"): "result=wide" for kind in ("bf16", "f16")},
    **{("conv", kind, "s32"): "result=wide" for kind in ("i8", "i8u8")},
    **{("conv", "i8", "s8"): "", ("conv", "i8u8", "u8"): ""},
}


class Benchdnn(Format, ProblemFormat):
    name = "benchdnn"
    about = "lines of --mode=P"
    reads = "oneDNN's benchdnn"

    def matches(self, text: str) -> bool:
        return bool(TEMPLATE.search(text) or LINE.search(text))

    def write_problems(self, problems: Sequence[ExportedProblem], options: ProblemOptions) -> ProblemExport:
        """See `_benchdnn_problems.py`."""
        return _benchdnn_problems.write(problems)

    def recount(self, export: ProblemExport) -> dict[str, int]:
        """From the sizes of each line."""
        return _benchdnn_problems.recount(export)

    def read(self, text: str, options: ImportOptions) -> ImportedFile:
        imported = ImportedFile(self.name, "oneDNN")
        failed = _states(text, imported)
        template: list[str] | None = None
        results = 0
        for line in text_lines(text, self.name):
            if line.lstrip().startswith("#"):
                continue
            if match := TEMPLATE.search(line):
                template = [column.strip() for column in match[1].split(",")]
            elif STATE.search(line) is None:
                for part in PART.split(line)[1:]:  # two processes may write to one line
                    results += 1
                    self._add(imported, part.rstrip(), template, options, failed)
        if not results:
            raise BadInput("benchdnn: no line of results follows the template: the program was aborted")
        imported.left_out += [f"{found} (no line of results)" for found in failed.values()]
        return imported

    def _add(
        self,
        imported: ImportedFile,
        line: str,
        template: list[str] | None,
        options: ImportOptions,
        failed: dict[str, str],
    ) -> None:
        values = _values(line, template)
        if isinstance(values, str):
            imported.left_out.append(values)
            return
        if values.get("%engine%") == "gpu" and not options.backend:
            imported.left_out.append("results of a GPU: deepbench has no backend for oneDNN on GPUs; use --backend")
            return
        wrong = failed.pop(_problem_key(values["%prb%"]), None)
        words = values["%prb%"].split()
        settings: dict[str, str] = {}
        for word in words:
            name, _, value = word.removeprefix("--").partition("=")
            if word.startswith("--"):
                settings[name.replace("_", "-")] = value  # older versions write bia_dt
        try:
            if stray := [word for word in words[:-1] if not word.startswith("-")]:
                raise ValueError(f"the word {shorten(stray[0])!r} before the problem is not understood")
            if re.search(r",\d", re.sub('".*"', "", words[-1])):
                raise ValueError("the line has more commas than its template; one may be a decimal comma")
            text = _case_text(settings, words[-1], options)
        except KeyError as error:
            imported.left_out.append(f"{shorten(values['%prb%'])}: its problem has no {error.args[0]}")
            return
        except (ValueError, IndexError) as error:
            imported.left_out.append(f"{shorten(values['%prb%'])}: {error.args[0] if error.args else 'invalid'}")
            return
        notes = {"implementation": values["%impl%"]} if values.get("%impl%") else {}
        time = values["%0time%"].strip()
        milliseconds = float(time) if _is_number(time) else None
        if wrong:
            imported.cases.append(ImportedCase(text, [], notes, f"benchdnn: {wrong}", wrong=True))
        elif reason := _contradiction(values):
            imported.cases.append(ImportedCase(text, [], notes, reason))
        elif milliseconds:
            imported.cases.append(ImportedCase(text, [[milliseconds / 1e3]], notes))
        elif milliseconds is None:
            imported.cases.append(ImportedCase(text, [], notes, f"benchdnn: its time is {shorten(time, 20)!r}"))
        else:
            imported.cases.append(ImportedCase(text, [], notes, "benchdnn: not implemented"))


def _states(text: str, imported: ImportedFile) -> dict[str, str]:
    """The tests that failed, by their problem. Others without a result are left out, each state once."""
    failed: dict[str, str] = {}
    states: dict[str, list[str]] = {}
    for line in text_lines(text, "benchdnn"):
        match = STATE.search(line)
        if match is None or match[1] in GOOD_STATES:
            continue
        if match[1] == "FAILED":
            failed[_problem_key(match[3])] = shorten(f"FAILED{match[2] or ''}: {match[3]}", 150)
        else:
            states.setdefault(match[1], []).append(shorten(f"{match[3].strip()}{match[2] or ''}", 120))
    for state, found in states.items():
        tests = "1 test" if len(found) == 1 else f"{len(found)} tests, the first"
        imported.left_out.append(f"{state}, {tests}: {found[0]}")
    return failed


def _problem_key(problem: str) -> str:
    """A problem without the order of its options."""
    *options, sizes = problem.split() or [""]
    return " ".join([*sorted(options), sizes])


def _values(line: str, template: list[str] | None) -> dict[str, str] | str:
    """The values of a line by their column, or why there are none."""
    for columns in [template] if template else [text.split(",") for text in DEFAULT_TEMPLATES]:
        if "%prb%" not in columns or "%0time%" not in columns:
            return "the template has no %prb% or %0time%; use the default template"
        # The problem may contain commas, so fields are counted from both ends.
        at = columns.index("%prb%")
        head = line.split(",", at)
        tail = head[at].rsplit(",", len(columns) - at - 1) if len(head) > at else []
        if len(tail) == len(columns) - at and head[at].lstrip().startswith("--"):
            values = dict(zip(columns, map(str.strip, [*head[:at], *tail]), strict=True))
            if template or all(_is_number(v) for name, v in values.items() if name[1:2] in "G+-0"):
                return values
    missing = "" if template else "; the line `Output template: …` is missing"
    return f"a line that does not match {'its' if template else 'the default'} template: {shorten(line)}{missing}"


def _is_number(text: str) -> bool:
    return bool(re.fullmatch(r"[0-9]+(\.[0-9]*)?(e[+-]?[0-9]+)?", text.strip()))


def _contradiction(values: Mapping[str, str]) -> str | None:
    """Why the time of a line is not that of its work and rate; None if they agree, or if one of them is missing."""
    time, work, rate = (values.get(name, "") for name in ("%0time%", "%Gops%", "%0Gflops%"))
    if not all(_is_number(text) and float(text) for text in (time, work, rate)):
        return None
    time_ms, wanted_ms = float(time), float(work) / float(rate) * 1e3
    rounding = 0.5 * 10.0 ** -len(time.partition(".")[2].partition("e")[0])
    if abs(time_ms - wanted_ms) <= AGREEING * max(time_ms, wanted_ms) + rounding:
        return None
    return f"{time} ms contradict the {work} GFLOP and {rate} GFLOP/s of the same line"


def _case_text(settings: dict[str, str], problem: str, options: ImportOptions) -> str:
    """The text of a case; `ValueError` with the reason if there is no such case."""
    op = "gemm" if "matmul" in settings else "conv"
    if not {"matmul", "conv"} & set(settings):
        raise ValueError("not a matrix product or convolution")
    if unknown := sorted(set(settings) - OPTIONS):
        raise ValueError(f"--{unknown[0]} is not supported")
    post_ops = settings.get("attr-post-ops", "")
    if post_ops and not (op == "gemm" and re.fullmatch(r"sum(:1(\.0*)?)?", post_ops)):
        raise ValueError(f"the time includes --attr-post-ops={shorten(post_ops, 40)}")
    sizes, words = _gemm(settings, problem) if op == "gemm" else _conv(settings, problem)
    direction = DIRECTIONS[settings.get("dir", "FWD_B")] if op == "conv" else "forward"
    words += [_result(settings, op)]
    cold, _, _ = settings.get("cold-cache", "").partition(":")
    if cold not in ("none", "", "all"):
        raise ValueError(f"--cold-cache={shorten(cold, 40)}: only a part of the arrays is cold")
    if cold == "all":
        words.append("cache=cold")
    backend = options.backend or "onednn"
    parts = [op, sizes, direction, _precision(settings), backend, f"threads={options.threads or 1}", *words]
    return " ".join(filter(None, parts))


def _gemm(settings: dict[str, str], problem: str) -> tuple[str, list[str]]:
    """Sizes and settings of a matrix product."""
    sizes = shapes(problem)
    if sizes is None or len(sizes) not in (2, 3):
        raise ValueError(f"{shorten(problem, 40)} are not two matrices")
    if any(len(shape) != 2 for shape in sizes):
        raise ValueError("products with a batch are not supported")
    (m, k), (inner, n), *result = sizes
    if k != inner or result not in ([], [(m, n)]):
        raise ValueError("the sizes of the matrices do not match")
    for name, tags in MATRIX_TAGS.items():
        if settings.get(name, "any") not in tags:
            raise ValueError(f"layout {shorten(settings[name], 40)} is not supported")
    # A row-major A·B is a column-major Bᵀ·Aᵀ, so the operands change places.
    a_t, b_t = (int(settings.get(name) == "ba") for name in ("wtag", "stag"))
    words = [] if settings.get("attr-post-ops") else ["beta=0"]
    # In a layout of the library's choice, weights were packed before timing.
    words += ["weights=packed"] if settings.get("wtag", "any") == "any" else []
    return f"m={n} n={m} k={k} a_t={a_t} b_t={b_t}", words


def _conv(settings: dict[str, str], problem: str) -> tuple[str, list[str]]:
    """Sizes and settings of a convolution."""
    direction = settings.get("dir", "FWD_B")
    if settings.get("alg", "direct").lower() not in ("direct", "auto", "wino"):
        raise ValueError(f"--alg={shorten(settings['alg'], 40)} is not supported")
    if DIRECTIONS[direction] != "forward" and len(set(_types(settings))) > 1:
        raise ValueError("gradients in mixed precisions are not supported")
    if settings.get("wtag", "any") != "any":
        raise ValueError("a given layout of the weights is not supported")
    tags = {settings.get("stag", "any"), settings.get("dtag", "any")}
    layout = "any" if tags == {"any"} else "nhwc" if tags <= set(CHANNELS_LAST) else None
    if layout is None:
        raise ValueError(f"layout {' and '.join(sorted(tags))} is not supported")
    return _conv_sizes(problem), [f"layout={layout}", "bias=yes" if direction in ("FWD_B", "BWD_WB") else ""]


def _types(settings: dict[str, str]) -> list[str]:
    """Types of source, weights and result, or one for all. Older versions write them without colons: `u8s8s32`."""
    text = settings.get("dt") or settings.get("cfg") or "f32"
    return re.findall(TYPE, text) if re.fullmatch(f"(?:{TYPE}){{3}}", text) else text.split(":")


def _result(settings: dict[str, str], op: str) -> str:
    """The setting for the type of the result."""
    types, precision = _types(settings), _precision(settings)
    if len(types) not in (1, 3):
        raise ValueError(f"--dt={':'.join(types)} is not valid")
    if (op, precision, types[-1]) not in RESULTS:
        raise ValueError(f"results in {types[-1]} of operands in {precision} are not supported")
    return RESULTS[op, precision, types[-1]]


def _precision(settings: dict[str, str]) -> str:
    types = _types(settings)
    precision = precision_of(types[0], types[min(1, len(types) - 1)])
    if precision is None:
        raise ValueError(f"precision {':'.join(types)} is not supported")
    return precision


def _conv_sizes(problem: str) -> str:
    sizes = numbers(problem)
    if {"id", "od"} & set(sizes):
        raise ValueError("three-dimensional convolutions are not supported")
    if "ih" not in sizes or "kh" not in sizes:
        raise ValueError("one-dimensional convolutions are not supported" if "iw" in sizes else "its height is missing")
    h, r = sizes["ih"], sizes["kh"]
    pad, stride, dilation = sizes.get("ph", 0), sizes.get("sh", 1), sizes.get("dh", 0)
    # The default batch is 2, and the width defaults to the height.
    values = {
        "n": sizes.get("mb", 2),
        "c": sizes["ic"],
        "h": h,
        "w": sizes.get("iw", h),
        "k": sizes["oc"],
        "r": r,
        "s": sizes.get("kw", r),
        "pad_h": pad,
        "pad_w": sizes.get("pw", pad),
        "stride_h": stride,
        "stride_w": sizes.get("sw", stride),
        "dilation_h": dilation + 1,
        "dilation_w": sizes.get("dw", dilation) + 1,
        "groups": sizes.get("g", 1),
    }
    stated_w = sizes.get("ow", sizes.get("oh") if "iw" not in sizes else None)
    for side, filter_, stated in (("h", "r", sizes.get("oh")), ("w", "s", stated_w)):
        extent = values[f"dilation_{side}"] * (values[filter_] - 1) + 1
        output = (values[side] + 2 * values[f"pad_{side}"] - extent) // values[f"stride_{side}"] + 1
        if stated is not None and stated != output:
            raise ValueError(f"asymmetric padding is not supported: {stated} outputs instead of {output}")
    return " ".join(f"{name}={value}" for name, value in values.items())


FORMAT = Benchdnn()
