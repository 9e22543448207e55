"""nccl-tests: the JSON of `all_reduce_perf -J out.json` and the other programs (since 2025-10).

The number of ranks is processes × threads × GPUs per thread. Times are microseconds, a mean over iterations unless each
one is listed. The environment is not imported, because it may contain secrets.
"""

from __future__ import annotations

import math
import re
from typing import Any

from deepbench.core.errors import BadInput
from deepbench.core.precision import BITS
from deepbench.formats import Format, ImportedCase, ImportedFile, ImportOptions, json_object

# Operations by program.
OPS = {
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

    def matches(self, text: str) -> bool:
        return text.lstrip()[:1] == "{" and '"nccl_version"' in text and '"results"' in text

    def read(self, text: str, options: ImportOptions) -> ImportedFile:
        # nccl-tests prints an infinite bandwidth as a bare `inf`, which is not JSON.
        content = json_object(re.sub(r"(?<=[:,\[])\s*-?inf(?=[,}\]])", "null", text), self.name)
        arguments = content.get("args") or []
        program = str(arguments[0]).replace("\\", "/").rsplit("/", 1)[-1] if arguments else ""
        config = content["config"] if isinstance(content.get("config"), dict) else {}
        devices = [d for d in config.get("devices") or [] if isinstance(d, dict)]
        group = devices[0].get("group") if devices else None
        processes = sum(d.get("group") == group for d in devices)
        ranks = processes * _integer(config, "nthreads") * _integer(config, "ngpus")
        version = _integer(content, "nccl_version")
        imported = ImportedFile(self.name, "NCCL", f"{version // 10000}.{version // 100 % 100}.{version % 100}")
        if devices:
            imported.host, imported.cpu = str(devices[0].get("hostname")), str(devices[0].get("device_info"))
        if program not in OPS:
            raise BadInput(f"nccl-tests: unknown program {program!r}; deepbench reads {', '.join(OPS)}")
        if ranks < 2:
            raise BadInput("nccl-tests: the file has fewer than two ranks, so nothing was transferred")
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
                times_us = [times.get("time", times.get("cpu_time"))]
            samples = [float(t) / 1e6 for t in times_us if isinstance(t, int | float) and math.isfinite(t) and t > 0]
            if not samples or n < 1:
                imported.left_out.append(f"{result.get('size')} bytes {name}: no time")
                continue
            words = [op, f"n={n} ranks={ranks} forward {precision}", options.backend or "nccl"]
            text = " ".join(filter(None, [*words, f"threads={options.threads}", place, settings]))
            bandwidth, wrong = times.get("bus_bw"), times.get("nwrong")
            notes = {}
            if isinstance(bandwidth, int | float) and math.isfinite(bandwidth):
                notes["their_bus_bytes_per_s"] = bandwidth * 1e9
            if isinstance(wrong, int | float) and wrong > 0:
                reason = f"nccl-tests found {wrong:g} wrong elements"
                imported.cases.append(ImportedCase(text, [], notes, reason, wrong=True))
            else:
                imported.cases.append(ImportedCase(text, [samples], notes))


def _integer(value: dict[str, Any], name: str) -> int:
    """A non-negative integer; 0 if it is missing or anything else."""
    number = value.get(name)
    return number if isinstance(number, int) and 0 <= number < 2**62 else 0


FORMAT = NcclTests()
