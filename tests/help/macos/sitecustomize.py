"""Makes every Python that finds this file look like one on macOS, as far as a program in Python can see it.

What Linux alone has is missing: the affinity of processes, /proc, /sys, descriptors of processes, CPU clocks of other
threads. Only the interpreter itself still knows where it is.
"""

import builtins
import io
import os
import platform
import sys
import time

HIDDEN = ("/proc", "/sys/")
if os.environ.get("DEEPBENCH_FAKE_MACOS"):
    for name in ("sched_getaffinity", "sched_setaffinity", "pidfd_open", "memfd_create"):
        if hasattr(os, name):
            delattr(os, name)

    def _hiding(function):
        def hides(path, *arguments, **options):
            text = os.fspath(path) if isinstance(path, str | bytes | os.PathLike) else ""
            if str(text).startswith(HIDDEN):
                raise FileNotFoundError(2, "no such file on macOS", text)
            return function(path, *arguments, **options)

        return hides

    for module, names in ((os, ("open", "listdir", "scandir", "stat", "lstat", "readlink")), (io, ("open",))):
        for name in names:
            setattr(module, name, _hiding(getattr(module, name)))
    builtins.open = io.open

    _clock = time.clock_gettime_ns

    def _clock_of_this_process(number):
        if number < 0:
            raise OSError(22, "no such clock on macOS")
        return _clock(number)

    time.clock_gettime_ns = _clock_of_this_process
    platform.system = lambda: "Darwin"
    platform.mac_ver = lambda *arguments: ("14.5", ("", "", ""), "arm64")
    platform.machine = lambda: "arm64"
    sys.platform = "darwin"
