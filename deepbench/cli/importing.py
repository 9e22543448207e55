"""`deepbench import`: results of other programs as a result file."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from deepbench.cli.root import HELP, cli
from deepbench.core.errors import BadInput


@cli.command("import", context_settings=HELP)
@click.argument("file", metavar="FILE")
@click.option("--output", "-o", metavar="FILE", help="Where the result file goes (default: FILE's name with .jsonl).")
@click.option("--machine", metavar="TEXT", help="On which machine, where the file does not say.")
@click.option("--library", metavar="TEXT", help='Which library, such as "cuDNN 7.6", where the file does not say.')
@click.option("--backend", metavar="NAME", help="The library's word here, such as cudnn, where it is not clear.")
@click.option("--threads", metavar="N", help="How many threads the library had, where the file does not say.")
@click.option("--case", metavar="CASE", help="nvbench, pyperf: the case that a benchmark is, {M} for its axis M.")
def import_file(
    file: str,
    output: str | None,
    machine: str | None,
    library: str | None,
    backend: str | None,
    threads: str | None,
    case: str | None,
) -> None:
    """Read nccl-tests JSON, benchdnn lines, nvbench JSON, pyperf JSON, or what the original DeepBench prints.

    Times become a result file that show, compare, report and site take; nobody here checked the answers.

    \b
    Examples:
      deepbench import nccl.json -o nccl.jsonl
      deepbench import gemm.txt --machine "NVIDIA V100" --library "cuBLAS 10.1"
      deepbench import bench.json --case "gemm m={M} n={N} k={K} f16 cublas"
    """
    from deepbench import formats
    from deepbench.core.case import thread_count
    from deepbench.core.json_lines import printable
    from deepbench.results.file import Store

    path = Path(file)
    text = _text(path)
    count = thread_count(threads) if threads else 1
    given = formats.Given(machine, library, backend, count, case)
    imported = formats.read(text, given)
    lines = formats.lines(imported, given, ["import", path.name])
    target = Path(output) if output else Path(f"{path.stem}.jsonl")
    store = Store.create(target, lines[0])
    try:
        for line in lines[1:]:
            store.append(line)
    finally:
        store.close()
    for reason in dict.fromkeys(imported.left_out):
        print(f"deepbench: left out: {printable(reason)}", file=sys.stderr)
    print(f"wrote {target}: {len(lines) - 1} results of {imported.program}; deepbench show {target}")


def _text(path: Path) -> str:
    from deepbench.formats import LARGEST_BYTES

    try:
        if not path.is_file():
            raise BadInput(f"{path} is no file; wanted one that another program wrote")
        if path.stat().st_size > LARGEST_BYTES:
            raise BadInput(f"{path} has over {LARGEST_BYTES} bytes, which is no output of a benchmark")
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from None
