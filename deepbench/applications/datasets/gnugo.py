"""GNU Go 3.8: a program that plays Go, as an opponent (Free Software Foundation, 2009)."""

from __future__ import annotations

import os
from pathlib import Path

from deepbench.applications.datasets import Dataset, MissingData, Package

FILE = "usr/games/gnugo"


class GnuGoFiles(Dataset):
    """The program of Debian for x86-64. It is run as a process of its own, and no part of it is passed on."""

    name = "gnugo"
    title = "GNU Go"
    about = "a program that plays Go; for x86-64"
    licence = "GPL-3+, Free Software Foundation"
    packages = (
        Package(
            "debian",
            "gnugo",
            "3.8-11",
            1_467_724,
            "b84c3dc06a7c37917f1e7bf4ef8be8816480ff01ea3eab9b84e2ae66545a5069",
            processor="amd64",
        ),
    )
    files = (FILE,)
    digest = "365c5afc2480d7e7c4d928b77a241aa1940633192bb336ee034a5b39b00d9ebe"

    def load(self, folder: Path) -> tuple[str, ...]:
        """The command that starts it for the Go Text Protocol."""
        path = folder / FILE
        if not os.access(path, os.X_OK):
            try:
                path.chmod(0o755)  # a file that was unpacked is not executable
            except OSError as error:
                raise MissingData(f"{path} cannot be made executable: {error.strerror}", "apt install gnugo") from None
        return (str(path), "--mode", "gtp")


DATASET = GnuGoFiles()
