"""A recipe of Spack 1.0 or newer for DeepBench. To use it from a checkout:

spack repo create deepbench-repo deepbench
mkdir -p deepbench-repo/spack_repo/deepbench/packages/py_deepbench_kernels
cp docs/recipes/spack/package.py deepbench-repo/spack_repo/deepbench/packages/py_deepbench_kernels/
spack repo add deepbench-repo/spack_repo/deepbench
spack env create deepbench && spack env activate deepbench
spack add py-deepbench-kernels@main
spack develop --path "$PWD" py-deepbench-kernels@main && spack install
"""

from spack_repo.builtin.build_systems.python import PythonPackage

from spack.package import *


class PyDeepbenchKernels(PythonPackage):
    """Measures how fast libraries run the basic operations of deep learning, with checks."""

    license("Apache-2.0")

    # `spack develop` replaces it. A release gets a line with the checksum of its sdist.
    version("main", branch="main", git="file:///path/to/deepbench")

    variant("onednn", default=True, description="Measure oneDNN")
    variant("mpi", default=False, description="Measure collectives with MPI")
    variant("scipy", default=False, description="Measure sparse products of SciPy")
    variant("torch", default=False, description="Measure PyTorch")
    variant("jax", default=False, description="Trace networks in JAX")
    variant("fleet", default=False, description="Sets of hosts, such as node[001-512]")
    variant("report", default=False, description="Write pages")
    variant("plot", default=False, description="Draw figures")
    variant("pandas", default=False, description="Results as data frames")
    variant("xlsx", default=False, description="Export to spreadsheets")
    variant("parquet", default=False, description="Export to Parquet")

    # All of these are also for aarch64. MKL and AOCL are no variants: like OpenBLAS, they provide
    # `blas`, and two providers in one environment were not tried. Where they are installed,
    # DEEPBENCH_MKL_PATH and DEEPBENCH_AOCL_PATH name their files.
    depends_on("c", type="build")  # small loops, loaded with ctypes
    depends_on("python@3.11:", type=("build", "run"))
    depends_on("py-setuptools@77:", type="build")
    with default_args(type=("build", "run")):
        depends_on("py-numpy@1.26:")
        depends_on("py-ml-dtypes@0.4:")
        depends_on("py-click@8.1:")
        depends_on("py-rich@13:")
        depends_on("py-fastjsonschema@2.19:")
        depends_on("py-orjson@3.10:")
    with default_args(type="run"):
        depends_on("openblas@0.3.29: threads=openmp")  # in place of the wheel scipy-openblas64
        depends_on("onednn@3: cpu_runtime=omp", when="+onednn")
        depends_on("py-mpi4py@4.1:", when="+mpi")
        depends_on("py-scipy@1.11:", when="+scipy")
        depends_on("py-torch@2.4:", when="+torch")
        depends_on("py-jax@0.4.30:", when="+jax")
        depends_on("py-clustershell@1.9:", when="+fleet")
        depends_on("py-jinja2@3.1:", when="+report")
        depends_on("py-matplotlib@3.7:", when="+plot")
        depends_on("py-pandas@2.1:", when="+pandas")
        depends_on("py-openpyxl@3.1:", when="+xlsx")
        depends_on("py-pyarrow@16:", when="+parquet")

    def setup_run_environment(self, env: EnvironmentModifications) -> None:
        """The libraries of Spack, not those that a loader would find elsewhere."""
        libraries = {"OPENBLAS": self.spec["openblas"].libs}
        if self.spec.satisfies("+onednn"):
            prefix = self.spec["onednn"].prefix
            libraries["ONEDNN"] = find_libraries("libdnnl", prefix, recursive=True)
        for name, found in libraries.items():
            if found:
                env.set(f"DEEPBENCH_{name}_PATH", found[0])
