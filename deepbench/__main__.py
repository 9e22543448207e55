"""`python -m deepbench` is the command `deepbench`."""

from deepbench.cli import main

if __name__ == "__main__":
    main()
