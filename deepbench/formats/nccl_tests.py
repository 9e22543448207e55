"""nccl-tests: the JSON of `all_reduce_perf -J out.json` and its kin (since 2025-10).

The number of ranks is not in the file: it is processes × threads × GPUs of each thread. Times are microseconds, a mean
over iterations unless each one is listed. Its environment may hold secrets and is left where it is.
"""

from __future__ import annotations

import math
import re
from typing import Any

from deepbench.core.errors import BadInput
from deepbench.formats import Format, Found, Given, Imported, json_object

# Programs and our ops.
PROGRAMS = {
    "all_reduce_perf": "all_reduce",
    "all_gather_perf": "all_gather",
    "reduce_scatter_perf": "reduce_scatter",
    "alltoall_perf": "all_to_all",
    "broadcast_perf": "broadcast",
    "sendrecv_perf": "send_receive",
}
TYPES = {"float": "f32", "half": "f16", "bfloat16": "bf16"}


class NcclTests(Format):
    name = "nccl-tests"
    about = "JSON of -J"

    def sniff(self, text: str) -> bool:
        return text.lstrip()[:1] == "{" and '"nccl_version"' in text and '"results"' in text

    def read(self, text: str, given: Given) -> Imported:
        # A bandwidth of infinity is printed as a bare `inf`.
        value = json_object(re.sub(r"(?<=[:,\[])\s*-?inf(?=[,}\]])", "null", text), self.name)
        arguments = value.get("args") or []
        program = str(arguments[0]).replace("\\", "/").rsplit("/", 1)[-1] if arguments else ""
        config = value["config"] if isinstance(value.get("config"), dict) else {}
        devices = [d for d in config.get("devices") or [] if isinstance(d, dict)]
        group = devices[0].get("group") if devices else None
        processes = sum(d.get("group") == group for d in devices)
        ranks = processes * _whole(config, "nthreads") * _whole(config, "ngpus")
        version = _whole(value, "nccl_version")
        imported = Imported(
            self.name,
            {"name": "NCCL", "version": f"{version // 10000}.{version // 100 % 100}.{version % 100}"},
            {
                "host": str(devices[0].get("hostname")) if devices else None,
                "cpu": str(devices[0].get("device_info")) if devices else None,
            },
        )
        op = PROGRAMS.get(program)
        if op is None:
            raise BadInput(f"nccl-tests: {program or 'no program'} is none of {', '.join(PROGRAMS)}")
        if ranks < 2:
            raise BadInput("nccl-tests: the file names fewer than two ranks, so nothing travelled")
        for result in value.get("results") or []:
            self._add(imported, op, ranks, "processes=one" if processes == 1 else "", result, given)
        return imported

    def _add(self, imported: Imported, op: str, ranks: int, way: str, result: Any, given: Given) -> None:
        backend, threads = given.backend or "nccl", given.threads
        if not isinstance(result, dict):
            return
        kind = TYPES.get(str(result.get("type")))
        if kind is None or str(result.get("redop")).strip() not in ("sum", "none"):
            imported.left_out.append(f"{result.get('type')} {result.get('redop')}: no precision or sum of ours")
            return
        n = _whole(result, "count")
        # Ours counts elements of the whole vector where nccl-tests counts those of one rank's part.
        if op in ("all_gather", "reduce_scatter", "all_to_all"):
            n = _whole(result, "size") // {"f32": 4}.get(kind, 2)
        for place, name in (("out", "out_of_place"), ("in", "in_place")):
            one = result.get(name)
            if not isinstance(one, dict) or (place == "in" and op != "all_reduce"):
                continue
            each = result.get(f"{name}_per_iter")
            skipped = _whole(each, "skipped_iterations") if isinstance(each, dict) else 0
            times = (
                each.get("times_us", [])[skipped:] if isinstance(each, dict) else [one.get("time", one.get("cpu_time"))]
            )
            samples = [float(t) / 1e6 for t in times if isinstance(t, int | float) and math.isfinite(t) and t > 0]
            if not samples or n < 1:
                imported.left_out.append(f"{result.get('size')} bytes {name}: no time")
                continue
            words = [*(["place=in"] if place == "in" else []), *([way] if way and op == "all_reduce" else [])]
            text = " ".join([op, f"n={n} ranks={ranks} forward {kind} {backend} threads={threads}", *words])
            wrong = one.get("nwrong")
            notes = {"their_bus_bytes_per_s": one["bus_bw"] * 1e9} if isinstance(one.get("bus_bw"), int | float) else {}
            if isinstance(wrong, int | float) and wrong > 0:
                imported.found.append(Found(text, [], notes, f"nccl-tests found {wrong:g} wrong elements", wrong=True))
            else:
                imported.found.append(Found(text, [samples], notes))


def _whole(value: dict[str, Any], name: str) -> int:
    found = value.get(name)
    return found if isinstance(found, int) and 0 <= found < 2**62 else 0


FORMAT = NcclTests()
