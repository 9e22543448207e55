"""A recipe of Spack for DeepBench. To use it from a checkout:

spack repo create deepbench-repo && mkdir deepbench-repo/packages/py-deepbench-kernels
cp docs/recipes/spack/package.py deepbench-repo/packages/py-deepbench-kernels/
spack repo add deepbench-repo
spack env create deepbench && spack env activate deepbench
spack add py-deepbench-kernels@main && spack develop --path "$PWD" py-deepbench-kernels@main && spack install
"""

from spack.package import *


class PyDeepbenchKernels(PythonPackage):
    """Measures how fast libraries run the basic operations of deep learning, and checks every result."""

    license("Apache-2.0")

    version("main", branch="main", git="file:///path/to/deepbench")  # `spack develop` replaces it

    variant("onednn", default=True, description="Measure oneDNN")
    variant("mpi", default=False, description="Measure collectives with MPI")

    depends_on("c", type="build")  # small loops, loaded with ctypes
    depends_on("python@3.11:", type=("build", "run"))
    depends_on("py-setuptools@77:", type="build")
    depends_on("py-numpy@1.26:", type=("build", "run"))
    depends_on("py-ml-dtypes@0.4:", type=("build", "run"))
    depends_on("py-click@8.1:", type=("build", "run"))
    depends_on("py-rich@13:", type=("build", "run"))
    depends_on("py-fastjsonschema@2.19:", type=("build", "run"))
    depends_on("py-orjson@3.10:", type=("build", "run"))
    depends_on("openblas threads=openmp", type="run")  # in place of the wheel scipy-openblas64
    depends_on("onednn", when="+onednn", type="run")
    depends_on("py-mpi4py@4.1:", when="+mpi", type="run")

    def setup_run_environment(self, env):
        """The libraries of Spack, not those that a loader would find elsewhere."""
        libraries = {"OPENBLAS": self.spec["openblas"].libs}
        if self.spec.satisfies("+onednn"):
            libraries["ONEDNN"] = find_libraries("libdnnl", self.spec["onednn"].prefix, recursive=True)
        for name, found in libraries.items():
            if found:
                env.set(f"DEEPBENCH_{name}_PATH", found[0])
