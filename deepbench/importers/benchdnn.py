"""benchdnn: the lines of `--mode=P`, by the template that it prints before them.

Times are milliseconds, the mean. Its matrices lie row by row and ours column by column, so that M×K:K×N is our m=N n=M.
Convolutions and products are read; its recurrent layers have the input's product in their time, which ours leave out.
"""

from __future__ import annotations

import re

from deepbench.importing import Format, Found, Given, Imported

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
        words = values["%prb%"].split()
        options: dict[str, str] = {}
        for word in words:
            name, equals, value = word.removeprefix("--").partition("=")
            if word.startswith("--"):
                options[name] = value if equals else ""
        try:
            case = _case(options, words[-1], given)
            milliseconds = float(values["%0time%"])
        except (ValueError, KeyError, IndexError) as error:
            imported.left_out.append(f"{values['%prb%'][:60]}: {error.args[0] if error.args else 'not understood'}")
            return
        notes: dict[str, str | None] = {"implementation": values.get("%impl%") or None}
        notes["also"] = (
            " ".join(sorted(f"{n}={v}" for n, v in options.items() if n.startswith("attr-") or n == "bia-dt")) or None
        )
        found = [[milliseconds / 1e3]] if milliseconds > 0 else []
        imported.found.append(
            Found(case, found, {n: v for n, v in notes.items() if v}, None if found else "benchdnn: not implemented")
        )


def _case(options: dict[str, str], problem: str, given: Given) -> str:
    backend = given.backend or "onednn"
    if "matmul" in options:
        sides = re.fullmatch(r"(\d+)x(\d+):(\d+)x(\d+)(?:_n\".*\")?", problem)
        if sides is None:
            raise ValueError("products with a batch are none of our cases")
        m, k, inner, n = map(int, sides.groups())
        if k != inner:
            raise ValueError("its sizes do not fit together")
        # Row by row A·B is column by column Bᵀ·Aᵀ with the operands changed over.
        a_t, b_t = (int(options.get(name) == "ba") for name in ("wtag", "stag"))
        return f"gemm m={n} n={m} k={k} a_t={a_t} b_t={b_t} forward {_precision(options)} {backend} threads=1"
    if "conv" in options:
        direction = DIRECTIONS[options.get("dir", "FWD_B")]
        return f"conv {_conv(problem)} {direction} {_precision(options)} {backend} threads=1 layout=any"
    raise ValueError("only products and convolutions are read")


def _precision(options: dict[str, str]) -> str:
    kinds = (options.get("dt") or options.get("cfg") or "f32").split(":")
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
    return " ".join(f"{name}={value}" for name, value in values.items())


FORMAT = Benchdnn()
