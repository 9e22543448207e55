"""Problems as benchdnn takes them: a file per driver, `benchdnn --mode=P --matmul --batch=matmul.txt`.

benchdnn's matrices are row-major and ours are column-major, so our m=N n=M is its M×K:K×N. A dilation of 1 is 0 there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from deepbench.core.case import Case
from deepbench.core.errors import Unsupported
from deepbench.core.onednn_text import numbers, shapes
from deepbench.formats._problems import ProblemExport, WrittenLayer, text_of
from deepbench.plan.problems import ExportedProblem

TYPES = {"f8e4m3": "f8_e4m3", "f8e5m2": "f8_e5m2"}
CONV_DIRECTIONS = {"forward": "FWD_", "backward_data": "BWD_D", "backward_weights": "BWD_W"}
ACTIVATIONS = {"none": (), "relu": ("relu",), "gelu": ("gelu_erf",), "silu": ("swish:1",)}
LAYOUTS = {"nchw": "abx", "nhwc": "axb", "any": "any"}
CELLS = {"vanilla": "VANILLA_RNN", "lstm": "VANILLA_LSTM", "gru": "LBR_GRU"}
GATES = {"VANILLA_RNN": 1, "VANILLA_LSTM": 4, "VANILLA_GRU": 3, "LBR_GRU": 3}

HEAD = "# benchdnn --mode=P --{driver} --batch={driver}.txt"

LINE = re.compile(r'(\S+)_n"(\w+)"$')


def write(problems: Sequence[ExportedProblem]) -> ProblemExport:
    """`matmul.txt`, `conv.txt` and `rnn.txt`, as far as there are such problems."""
    export = ProblemExport()
    lines: dict[str, list[str]] = {}
    for problem in problems:
        case = problem.case
        try:
            if case.op not in WRITERS:
                raise Unsupported(f"benchdnn has no driver for {case.op}, or its options are not written yet")
            driver, words = WRITERS[case.op](case)
        except Unsupported as reason:
            export.left_out.append(f"{problem.text}: {reason}")
            continue
        *options, sizes = words
        line = " ".join(["--reset", *filter(None, options), f'{sizes}_n"{problem.name}"'])
        lines.setdefault(driver, [HEAD.format(driver=driver)]).append(line)
        export.layers.append(WrittenLayer(problem.name, problem.name, 1, problem.flop // 2))
    export.files |= {f"{driver}.txt": "\n".join(found) + "\n" for driver, found in lines.items()}
    return export


def _types(case: Case, result: str, separator: str = ":") -> str:
    """Types of source, weights and result."""
    if case.precision.name in ("tf32", "f16f16", "nvfp4"):
        raise Unsupported(f"benchdnn has no type for {case.precision.name}")
    kinds = [TYPES.get(kind, kind) for kind in (case.precision.data, case.precision.weights, result)]
    return kinds[0] if len(set(kinds)) == 1 else separator.join(kinds)


def _matmul(case: Case, rows: int, columns: int, batch: str, source: str, weights: str) -> list[str]:
    types = _types(case, case.operation.result_type(case))
    k = case.problem.k
    tags = [f"--stag={source}", f"--wtag={weights}", f"--dtag={'abc' if batch else 'ab'}"]
    return [f"--dt={types}", *tags, f"{batch}{rows}x{k}:{batch}{k}x{columns}"]


def _gemm(case: Case) -> tuple[str, list[str]]:
    p, settings = case.problem, case.settings
    weights = "any" if settings["weights"] == "packed" else "ba" if p.a_t else "ab"
    *words, sizes = _matmul(case, p.n, p.m, "", "ba" if p.b_t else "ab", weights)
    return "matmul", [*words, "--attr-post-ops=sum" if settings["beta"] == "1" else "", sizes]


def _batched(case: Case) -> tuple[str, list[str]]:
    p = case.problem
    return "matmul", _matmul(case, p.n, p.m, f"{p.batch}x", "acb" if p.b_t else "abc", "acb" if p.a_t else "abc")


def _linear(case: Case) -> tuple[str, list[str]]:
    p, settings = case.problem, case.settings
    if settings["scales"] != "none":
        raise Unsupported("scales of blocks are not written yet")
    *words, sizes = _matmul(case, p.n, p.m, "", "ab", "any" if settings["weights"] == "packed" else "ba")
    kind = TYPES.get(case.operation.result_type(case), case.operation.result_type(case))
    bias = [f"--bia-dt={kind}", "--bia_mask=2"] if settings["bias"] == "yes" else []
    post = [f"--attr-post-ops={name}" for name in ACTIVATIONS[settings["activation"]]]
    return "matmul", [*words, *bias, *post, sizes]


def _conv(case: Case) -> tuple[str, list[str]]:
    p, settings = case.problem, case.settings
    direction, bias = CONV_DIRECTIONS[case.direction], settings["bias"] == "yes"
    if case.direction == "forward":
        direction += "B" if bias else "D"
    elif bias:
        direction += "B"
    tag = LAYOUTS[settings["layout"]]
    first = 0 if p.dimensions == 3 else 1
    axes = list(zip("dhw", p.image, p.filter, p.stride, p.dilation, p.pad, strict=True))[first:]
    parts = [
        f"g{p.groups}" * (p.groups > 1) + f"mb{p.n}",
        f"ic{p.c}" + "".join(f"i{axis}{size}" for axis, size, *_ in axes),
        f"oc{p.k}",
        "".join(f"k{axis}{taps}" for axis, _, taps, *_ in axes),
        "".join(f"s{axis}{stride}" for axis, _, _, stride, *_ in axes),
        "".join(f"d{axis}{dilation - 1}" for axis, *_, dilation, _ in axes) * (set(p.dilation) != {1}),
        "".join(f"p{axis}{pad}" for axis, *_, pad in axes),
    ]
    types = _types(case, case.operation.result_type(case))
    words = [f"--dir={direction}", f"--dt={types}", f"--stag={tag}", f"--dtag={tag}"]
    return "conv", [*words, "_".join(filter(None, parts))]


def _rnn(case: Case) -> tuple[str, list[str]]:
    p, settings = case.problem, case.settings
    if case.direction in ("backward_data", "backward_weights"):
        raise Unsupported("benchdnn computes both gradients of a recurrent layer together: choose direction=backward")
    if settings["input"] == "skip":
        raise Unsupported("oneDNN's recurrent layers have weights for their input")
    if p.layers > 1 and (p.bidirectional or p.input_size != p.hidden):
        raise Unsupported("all layers of a stack of oneDNN have inputs of the same width")
    if case.precision.name not in ("f32", "bf16", "f16"):
        raise Unsupported(f"configurations in {case.precision.name} are not written yet")
    cell = "VANILLA_GRU" if settings["gru_reset"] == "before" else CELLS[p.cell]
    forward = "FWD_D" if settings["mode"] == "training" else "FWD_I"
    words = [
        f"--alg={cell}",
        f"--direction={'concat' if p.bidirectional else 'left2right'}",
        "--activation=RELU" if p.cell == "vanilla" else "",
        f"--prop={'BWD_DW' if case.direction == 'backward' else forward}",
        f"--cfg={case.precision.data}",
    ]
    sizes = f"l{p.layers}t{p.timesteps}mb{p.batch}sic{p.hidden}slc{p.input_size}dhc{p.hidden}dic{p.hidden}"
    return "rnn", [*words, sizes]


WRITERS: dict[str, Callable[[Case], tuple[str, list[str]]]] = {
    "gemm": _gemm,
    "batched_gemm": _batched,
    "linear": _linear,
    "conv": _conv,
    "recurrent": _rnn,
}


def recount(export: ProblemExport) -> dict[str, int]:
    """Multiply-adds of each line, from its sizes alone."""
    counts = {}
    for path in export.texts:
        for line in text_of(export, path).splitlines():
            if found := LINE.search(line):
                counts[found[2]] = COUNTERS[path.removesuffix(".txt")](found[1], line)
    return counts


def _of_matmul(sizes: str, line: str) -> int:
    found = shapes(sizes)
    assert found is not None, f"{sizes} are shapes"
    (*batch, m, k), (*_, n) = found
    return (batch[0] if batch else 1) * m * n * k


def _of_conv(sizes: str, line: str) -> int:
    p = numbers(sizes)
    count = p["mb"] * p["oc"] * (p["ic"] // p.get("g", 1))
    for axis in "dhw":
        if f"i{axis}" in p:
            extent = (p[f"k{axis}"] - 1) * (p.get(f"d{axis}", 0) + 1) + 1
            count *= p[f"k{axis}"] * ((p[f"i{axis}"] + 2 * p[f"p{axis}"] - extent) // p[f"s{axis}"] + 1)
    return count


def _of_rnn(sizes: str, line: str) -> int:
    """An input of width 1 stands for a recurrence without its projection, whose work does not count."""
    p = {name: int(value) for name, value in re.findall(r"([a-z]+)(\d+)", sizes)}
    ways = 2 if "--direction=concat" in line else 1
    gates = GATES[line.split("--alg=")[1].split()[0]]
    widths = [p["slc"] if p["slc"] > 1 else 0, *[ways * p["dhc"]] * (p["l"] - 1)]
    per_step = sum(gates * ways * p["dhc"] * (p["sic"] + width) for width in widths)
    return p["t"] * p["mb"] * per_step * (2 if "--prop=BWD_DW" in line else 1)


COUNTERS: dict[str, Callable[[str, str], int]] = {"matmul": _of_matmul, "conv": _of_conv, "rnn": _of_rnn}
