"""A command in a terminal of a given width. `docs/make_pictures.py` uses it too."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

ROOT = Path(__file__).parents[2]

ROWS = 50


def output_of(folder, columns, *words, **environment):
    """What `deepbench` prints in `folder` on a terminal, with its colours; fails unless its exit code is 0."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
    hidden = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "OMP_NUM_THREADS", "DEEPBENCH_PLUGINS")
    env = {name: value for name, value in os.environ.items() if name not in hidden}
    process = subprocess.Popen(
        [sys.executable, "-m", "deepbench", *words],
        cwd=folder,
        env=env | {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color", **environment},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    output = b""
    try:
        while chunk := os.read(ours, 65536):
            output += chunk
    except OSError:
        pass  # the command has ended
    os.close(ours)
    text = output.decode().replace("\r\n", "\n")
    assert 0 == process.wait(60), text
    return text
