"""SCALE-Sim 3: products as a topology of matrix products, with an array to run it on.

A row is `name, M, N, K,`: the comma at the end is required. A convolution is written as the product that it is, because
rows of convolutions have neither batch nor padding. Batches, and the steps of a recurrence, are several runs of a row;
counts.json says how many. Zeros cannot be expressed, except N of M in the format's own way.

    python -c "from scalesim.scale_sim import scalesim; scalesim(save_disk_space=True, verbose=True,
        config='scalesim.cfg', topology='topology.csv', layout='layout.csv',
        input_type_gemm=True).run_scale(top_path='.')"
"""

from __future__ import annotations

from collections.abc import Sequence

from deepbench.formats._problems import ProblemExport, ProblemFormat, ProblemOptions, layers_of_products, text_of
from deepbench.plan.problems import ExportedProblem

# An array of 128 × 128 that keeps weights, as in Google's first TPUs. `CALC` is the mode without stalls.
CONFIGURATION = """[general]
run_name = deepbench

[architecture_presets]
ArrayHeight = 128
ArrayWidth = 128
IfmapSramSzkB = 1024
FilterSramSzkB = 1024
OfmapSramSzkB = 1024
IfmapOffset = 0
FilterOffset = 10000000
OfmapOffset = 20000000
Bandwidth = 10
Dataflow = ws
MemoryBanks = 1
ReadRequestBuffer = 32
WriteRequestBuffer = 32

[layout]
IfmapCustomLayout = False
IfmapSRAMBankBandwidth = 10
IfmapSRAMBankNum = 10
IfmapSRAMBankPort = 2
FilterCustomLayout = False
FilterSRAMBankBandwidth = 10
FilterSRAMBankNum = 10
FilterSRAMBankPort = 2

[sparsity]
SparsitySupport = false
SparseRep = ellpack_block
OptimizedMapping = false
BlockSize = 8
RandomNumberGeneratorSeed = 40

[run_presets]
InterfaceBandwidth = CALC
UseRamulatorTrace = False
"""

# The file of layouts must exist even where it is not used.
LAYOUT = "Layer name, IFMAP Height Intraline Factor,\n"


class ScaleSim(ProblemFormat):
    name = "scalesim"
    reads = "SCALE-Sim 3"

    def write_problems(self, problems: Sequence[ExportedProblem], options: ProblemOptions) -> ProblemExport:
        """`topology.csv`, `scalesim.cfg` and `layout.csv`."""
        export = ProblemExport()
        rows = ["Layer, M, N, K,"]
        for _, product, layer in layers_of_products(problems, export):
            rows.append(f"{layer.name}, {product.m}, {product.n}, {product.k},")
        export.files |= {"topology.csv": "\n".join(rows) + "\n", "scalesim.cfg": CONFIGURATION, "layout.csv": LAYOUT}
        return export

    def recount(self, export: ProblemExport) -> dict[str, int]:
        """M · N · K of each row."""
        counts: dict[str, int] = {}
        for row in text_of(export, "topology.csv").splitlines()[1:]:
            name, m, n, k, _ = row.split(",")
            counts[name] = int(m) * int(n) * int(k)
        return counts


FORMAT = ScaleSim()
