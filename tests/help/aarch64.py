"""Builds an emulated Arm machine in a folder: `python tests/help/aarch64.py .venv/aarch64 nvpl onnxruntime …`.

It consists of packages of Debian for arm64 (Python, oneDNN, the runtimes of C++ and OpenMP), QEMU's emulator of one
process, and what `pip` installs there: the dependencies of DeepBench and of the extras that are named. `bin/python` is
a script that starts the emulator, so processes that start `sys.executable` are emulated too. `CPU` names the model of
the processor for QEMU (default: `max`). Needs Debian's apt-get and dpkg-deb, or Ubuntu's, and no rights.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
NATIVE = ROOT / "deepbench" / "native"

# The release of Debian whose QEMU runs all libraries (that of Debian 12 does not), and whose oneDNN is of version 3.
SUITE, MIRROR = "trixie", "http://deb.debian.org/debian"
KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
ON_ARM = ("python3", "libgomp1", "libstdc++6", "libdnnl3.6", "ca-certificates")

# Without the second word, pointers are signed as in hardware, at which an emulator is slow. The third one is the length
# of SME's vectors in bytes on all processors that have it; with others OpenBLAS, which is also NumPy's, is wrong.
CPU = "max,pauth-impdef=on,sme-default-vector-length=64"

# What is used of these is one library; what they depend on is not needed.
ALONE = {"xnnpack"}

# Of PJRT, for CPUs.
PLUGIN = "xla-cpu-pjrt==0.0.1"

COMPILER = "aarch64-linux-gnu-gcc"


def main(folder: Path, extras: list[str]) -> None:
    """Build it from nothing."""
    for program, package in (("apt-get", "apt"), ("dpkg-deb", "dpkg")):
        if shutil.which(program) is None:
            sys.exit(f"{program} is missing: this needs Debian or Ubuntu ({package})")
    if not KEYS.exists():
        sys.exit(f"{KEYS} is missing; try: apt install debian-archive-keyring")
    shutil.rmtree(folder, ignore_errors=True)
    root = folder / "root"
    root.mkdir(parents=True)
    for name in ("lib", "bin", "sbin"):  # Debian's packages of today have everything in /usr
        (root / name).symlink_to(f"usr/{name}")
    unpack("arm64", ON_ARM, root, folder / "apt")
    unpack("amd64" if os.uname().machine == "x86_64" else "arm64", ["qemu-user"], folder / "emulator", folder / "apt")
    shutil.rmtree(folder / "apt")
    make_environment(folder, root)
    install(folder, extras)
    compile_loops()


def unpack(architecture: str, packages: list[str] | tuple[str, ...], target: Path, apt: Path) -> None:
    """Unpack packages, with what they depend on, below a folder. Nothing is installed and no script of them runs."""
    shutil.rmtree(apt, ignore_errors=True)
    for name in ("lists/partial", "cache/archives/partial"):
        (apt / name).mkdir(parents=True)
    (apt / "status").touch()
    (apt / "sources.list").write_text(f"deb [signed-by={KEYS}] {MIRROR} {SUITE} main\n")
    options = {
        "APT::Architecture": architecture,
        "APT::Architectures::": architecture,
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "root",
        "Dir::State": apt,
        "Dir::State::lists": apt / "lists",
        "Dir::State::status": apt / "status",
        "Dir::Cache": apt / "cache",
        "Dir::Etc::sourcelist": apt / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::Etc::trusted": KEYS,
    }
    command = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in options.items())]
    subprocess.run([*command, "update"], check=True)
    # QEMU alone: its static build depends on nothing that it needs.
    alone = packages == ["qemu-user"]
    what = ["download", *packages] if alone else ["install", "--yes", "--download-only", *packages]
    subprocess.run([*command, *what], check=True, cwd=apt, stdout=subprocess.DEVNULL)
    target.mkdir(exist_ok=True)
    for package in sorted(apt.glob("*.deb") if alone else apt.glob("cache/archives/*.deb")):
        subprocess.run(["dpkg-deb", "--extract", package, target], check=True)


def make_environment(folder: Path, root: Path) -> None:
    """A virtual environment whose Python is a script that starts the emulator."""
    (python,) = (path for path in (root / "usr/bin").glob("python3.*") if path.suffix[1:].isdecimal())
    packages = folder / "lib" / python.name / "site-packages"
    packages.mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text(f"home = {root / 'usr/bin'}\ninclude-system-site-packages = false\n")
    (folder / "bin").mkdir()
    script = folder / "bin" / "python"
    script.write_text(
        f'#!/bin/sh\nexec "{folder}/emulator/usr/bin/qemu-aarch64" -cpu "${{CPU:-{CPU}}}" -L "{root}" -0 "$0" '
        f'"{root}/usr/bin/{python.name}" "$@"\n'
    )
    script.chmod(0o755)
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", packages, "pip"], check=True
    )


def install(folder: Path, extras: list[str]) -> None:
    """Let the emulated pip install the dependencies, whose markers it evaluates as on such a machine."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    chosen = project["optional-dependencies"]
    together = [*project["dependencies"], *(word for name in extras if name not in ALONE for word in chosen[name])]
    alone = [PLUGIN, *(word for name in extras if name in ALONE for word in chosen[name])]
    pip = [folder / "bin/python", "-m", "pip", "install", "--quiet", "--no-compile", "--only-binary", ":all:"]
    for options, words in (([], together), (["--no-deps"], alone)):
        if words:
            # A simple processor is emulated twice as fast.
            environment = {**os.environ, "CPU": "cortex-a72"}
            subprocess.run([*pip, "--disable-pip-version-check", *options, *words], check=True, env=environment)


def compile_loops() -> None:
    """Compile our C code for Arm beside that for this machine; without a compiler, what needs it is skipped."""
    if shutil.which(COMPILER) is None:
        print(f"{COMPILER} is missing, so our loops are not tested; try: apt install gcc-aarch64-linux-gnu")
        return
    for source in sorted(NATIVE.glob("*.c")):
        plain = source.stem in ("callloop", "pjrt")  # as in setup.py
        options = ["-O2"] if plain else ["-O3", "-fno-math-errno", "-fopenmp"]
        library = NATIVE / f"_{source.stem}.aarch64-linux-gnu.so"
        subprocess.run([COMPILER, *options, "-fPIC", "-shared", "-o", library, source], check=True)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]).resolve(), sys.argv[2:])
    except subprocess.CalledProcessError as error:
        sys.exit(f"{error.cmd[0]} failed; what it said is above")
