"""benchdnn: the lines of `--mode=P`, by the template that it prints before them.

Times are milliseconds, the mean. Its matrices lie row by row and ours column by column, so that M×K:K×N is our m=N n=M.
Convolutions and products are read; its recurrent layers have the input's product in their time, which ours leave out.
"""

from __future__ import annotations

import re

from deepbench.formats import Format, Found, Given, Imported

TEMPLATE = re.compile(r"^(?:Output template|Template entries): (perf,.*)$", re.M)
USUAL = "perf,%engine%,%impl%,%name%,%prb%,%Gops%,%+ctime%,%-time%,%-Gflops%,%0time%,%0Gflops%"
PRECISIONS = {"f32": "f32", "bf16": "bf16", "f16": "f16", "s8:s8": "i8", "u8:s8": "i8u8"}
DIRECTIONS = {
    **dict.fromkeys(("FWD_B", "FWD_D", "FWD_I"), "forward"),
    "BWD_D": "backward_data",
    **dict.fromkeys(("BWD_W", "BWD_WB"), "backward_weights"),
}


class Benchdnn(Format):
    name = "benchdnn"
    about = "lines of --mode=P"

    def sniff(self, text: str) -> bool:
        return bool(TEMPLATE.search(text) or re.search(r"^perf,(cpu|gpu),", text, re.M))

    def read(self, text: str, given: Given) -> Imported:
        imported = Imported(self.name, {"name": "oneDNN"})
        template = USUAL.split(",")
        for line in text.splitlines():
            if found := TEMPLATE.match(line):
                template = found[1].split(",")
            elif line.startswith("perf,") and not line.startswith("perf,engine,"):
                self._add(imported, line, template, given)
        return imported

    def _add(self, imported: Imported, line: str, template: list[str], given: Given) -> None:
        if "%prb%" not in template or "%0time%" not in template:
            imported.left_out.append("a template without %prb% and %0time%: use the default one")
            return
        # The problem may have commas, so that fields are counted from both ends.
        at = template.index("%prb%")
        head = line.split(",", at)
        tail = head[at].rsplit(",", len(template) - at - 1) if len(head) > at else []
        if len(tail) != len(template) - at:
            imported.left_out.append(f"a line that does not fit its template: {line[:60]}")
            return
        values = dict(zip(template, [*head[:at], *tail], strict=True))
        if values.get("%engine%") == "gpu" and not given.backend:
            imported.left_out.append("results of a GPU: oneDNN there has no word here; say one with --backend")
            return
        words = values["%prb%"].split()
        options: dict[str, str] = {}
        for word in words:
            name, equals, value = word.removeprefix("--").partition("=")
            if word.startswith("--"):
                options[name.replace("_", "-")] = value if equals else ""  # older versions write bia_dt
        try:
            case = _case(options, words[-1], given)
            milliseconds = float(values["%0time%"])
        except (ValueError, KeyError, IndexError) as error:
            imported.left_out.append(f"{values['%prb%'][:60]}: {error.args[0] if error.args else 'not understood'}")
            return
        notes = {"implementation": values["%impl%"]} if values.get("%impl%") else {}
        found = [[milliseconds / 1e3]] if milliseconds > 0 else []
        imported.found.append(Found(case, found, notes, None if found else "benchdnn: not implemented"))


# Options that leave the work as it is: how it is timed, laid out, and chosen among oneDNN's implementations. Any other
# one may ask for more (a bias, scales), less (zeros) or another precision, and its line is left out.
KNOWN = {
    *("matmul", "conv", "mode", "engine", "dir", "dt", "cfg", "stag", "wtag", "dtag", "alg", "skip-impl", "impl"),
    *("attr-scratchpad", "attr-post-ops", "cold-cache", "max-ms-per-prb", "fix-times-per-prb", "allow-enum-tags-only"),
}


# Layouts of products that we have: row by row, transposed, or packed by the library.
PLAIN = {"stag": ("any", "ab", "abx", "ba"), "wtag": ("any", "ab", "abx", "ba"), "dtag": ("any", "ab", "abx")}


def _case(options: dict[str, str], problem: str, given: Given) -> str:
    backend = given.backend or "onednn"
    if not {"matmul", "conv"} & set(options):
        raise ValueError("only products and convolutions are read")
    if unknown := sorted(set(options) - KNOWN):
        raise ValueError(f"--{unknown[0]} is none of our cases")
    added = options.get("attr-post-ops", "")
    if added and not ("matmul" in options and re.fullmatch(r"sum(:1(\.0*)?)?", added)):
        raise ValueError(f"--attr-post-ops={added[:40]}: more than the product is in its time")
    if "matmul" in options:
        sides = re.fullmatch(r"(\d+)x(\d+):(\d+)x(\d+)(?:_n\".*\")?", problem)
        if sides is None:
            raise ValueError("products with a batch are none of our cases")
        m, k, inner, n = map(int, sides.groups())
        if k != inner:
            raise ValueError("its sizes do not fit together")
        if odd := [t for n in ("stag", "wtag", "dtag") if (t := options.get(n, "any")) not in PLAIN[n]]:
            raise ValueError(f"layout {odd[0][:40]} is none of our cases")
        # Row by row A·B is column by column Bᵀ·Aᵀ with the operands changed over.
        a_t, b_t = (int(options.get(name) == "ba") for name in ("wtag", "stag"))
        # Weights in a format of the library's choice were packed before the clock started.
        packed = options.get("wtag", "any") == "any"
        words = [
            *_result(options, "gemm"),
            *([] if added else ["beta=0"]),
            *(["weights=packed"] if packed else []),
            *_cold(options),
        ]
        size = f"m={n} n={m} k={k} a_t={a_t} b_t={b_t}"
        return " ".join([f"gemm {size} forward {_precision(options)} {backend} threads={given.threads}", *words])
    if "conv" in options:
        said = options.get("dir", "FWD_B")
        if options.get("alg", "direct").lower() not in ("direct", "auto", "wino"):
            raise ValueError(f"--alg={options['alg'][:40]} is no algorithm of ours")
        bias = ["bias=yes"] if said in ("FWD_B", "BWD_WB") else []
        if DIRECTIONS[said] != "forward" and len(_kinds(options)) > 1 and len(set(_kinds(options))) > 1:
            raise ValueError("gradients of mixed precisions are none of our cases")
        words = [DIRECTIONS[said], _precision(options), backend, f"threads={given.threads}", _layout(options)]
        return " ".join(["conv", _conv(problem), *words, *bias, *_result(options, "conv"), *_cold(options)])
    raise ValueError("only products and convolutions are read")


def _kinds(options: dict[str, str]) -> list[str]:
    """Types of source, weights and result; one word is for all."""
    return (options.get("dt") or options.get("cfg") or "f32").split(":")


# The setting for a type of results, by op and precision; what is not here has no case.
RESULTS = {
    **{("gemm", kind, kind): "result=narrow" for kind in ("bf16", "f16")},
    **{("gemm", kind, "f32"): "" for kind in ("f32", "bf16", "f16")},
    **{("gemm", kind, "s32"): "" for kind in ("i8", "i8u8")},
    **{("conv", kind, kind): "" for kind in ("f32", "bf16", "f16")},
    **{("conv", kind, "f32"): "result=wide" for kind in ("bf16", "f16")},
    **{("conv", kind, "s32"): "result=wide" for kind in ("i8", "i8u8")},
    **{("conv", "i8", "s8"): "", ("conv", "i8u8", "u8"): ""},
}


def _result(options: dict[str, str], op: str) -> list[str]:
    """How results are stored; `ValueError` where ours are stored in no such way."""
    kinds, precision = _kinds(options), _precision(options)
    if len(kinds) not in (1, 3):
        raise ValueError(f"--dt={':'.join(kinds)} is not understood")
    word = RESULTS.get((op, precision, kinds[-1]))
    if word is None:
        raise ValueError(f"results in {kinds[-1]} of operands in {precision} are none of our cases")
    return [word] if word else []


CHANNELS_LAST = ("axb", "acdb", "nhwc")


def _layout(options: dict[str, str]) -> str:
    """Layout of what goes in and comes out; weights in the library's choice, as ours are."""
    tags = options.get("stag", "any"), options.get("dtag", "any")
    if options.get("wtag", "any") != "any":
        raise ValueError("weights laid out by hand are none of our cases")
    for layout, names in (("any", ("any",)), ("nhwc", CHANNELS_LAST)):
        if set(tags) <= set(names):
            return f"layout={layout}"
    raise ValueError(f"layouts {tags[0]} and {tags[1]} are none of our cases")


def _cold(options: dict[str, str]) -> list[str]:
    return ["cache=cold"] if options.get("cold-cache", "none") not in ("none", "") else []


def _precision(options: dict[str, str]) -> str:
    kinds = _kinds(options)
    both = ":".join(kinds[:2]) if len(kinds) > 1 and kinds[0] != kinds[1] else kinds[0]
    found = PRECISIONS.get(both) or PRECISIONS.get(":".join(kinds[:2]))
    if found is None:
        raise ValueError(f"precision {':'.join(kinds)} is none of ours")
    return found


def _conv(problem: str) -> str:
    text = re.sub(r"n\".*\"$", "", problem).replace("_", "")
    if re.search(r"[io]d\d", text):
        raise ValueError("convolutions of three dimensions are not read")
    sizes = {name: int(value) for name, value in re.findall(r"([a-z]+)(\d+)", text)}
    h, r = sizes["ih"], sizes["kh"]
    pad, stride, dilation = sizes.get("ph", 0), sizes.get("sh", 1), sizes.get("dh", 0)
    # What is left out: a batch of two, and a width like the height.
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
    for side, out in (("h", sizes.get("oh")), ("w", sizes.get("ow", sizes.get("oh") if "iw" not in sizes else None))):
        reach = values[f"dilation_{side}"] * (values["r" if side == "h" else "s"] - 1) + 1
        mine = (values[side] + 2 * values[f"pad_{side}"] - reach) // values[f"stride_{side}"] + 1
        if out is not None and out != mine:
            raise ValueError(f"padded on one side only: {out} outputs instead of {mine}")
    return " ".join(f"{name}={value}" for name, value in values.items())


FORMAT = Benchdnn()
