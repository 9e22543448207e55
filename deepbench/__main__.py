"""The command `deepbench`, and `python -m deepbench`."""

import signal
from typing import NoReturn


def main() -> NoReturn:
    """Run the command. Until its modules are loaded, Ctrl-C ends this process without a traceback."""
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from deepbench.cli import main

    main()


if __name__ == "__main__":
    main()
