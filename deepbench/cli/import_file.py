"""`deepbench import`: results of other programs as a result file."""

from __future__ import annotations

import click

from deepbench.api.text import command, count
from deepbench.cli.root import HELP, cli
from deepbench.cli.streams import say, warn, warn_each


@cli.command("import", context_settings=HELP, short_help="Convert results of other benchmark programs.")
@click.argument("file", metavar="FILE|FOLDER")
@click.option("--output", "-o", metavar="FILE", help="The result file (default: the name of FILE with .jsonl).")
@click.option("--machine", metavar="TEXT", help="The machine, where the file does not name it.")
@click.option("--library", metavar="TEXT", help='The library, such as "cuDNN 7.6", where the file does not name it.')
@click.option("--backend", metavar="NAME", help="The name of that library in deepbench, such as cudnn.")
@click.option("--threads", metavar="N", help="The number of threads, where the file does not say it.")
@click.option("--problems", metavar="JSON", help="Simulators, phones: the counts.json of deepbench export.")
@click.option("--clock", metavar="HZ", help="Simulators: cycles per second, such as 1GHz.")
@click.option("--case", metavar="CASE", help="nvbench, pyperf: the case of a benchmark; {M} stands for its axis M.")
def import_file(
    file: str,
    output: str | None,
    machine: str | None,
    library: str | None,
    backend: str | None,
    threads: str | None,
    problems: str | None,
    clock: str | None,
    case: str | None,
) -> None:
    """Read nccl-tests text or JSON, benchdnn lines, nvbench JSON, pyperf JSON, output of the original DeepBench, or
    what SCALE-Sim, ZigZag or Timeloop (a file, or a folder) or benchmark_model on a phone made of problems of deepbench
    export.

    The times become a result file for show, compare, report and site. They stay marked as unchecked.

    \b
    Examples:
      deepbench import nccl.json -o nccl.jsonl
      deepbench import gemm.txt --machine "NVIDIA V100" --library "cuBLAS 10.1"
      deepbench import COMPUTE_REPORT.csv --problems counts.json --clock 1GHz
      deepbench import phone.txt --problems counts.json --machine "Pixel 8"
      deepbench import bench.json --case "gemm m={M} n={N} k={K} f16 cublas"
    """
    from deepbench.api.filters import thread_count
    from deepbench.api.foreign import convert

    number = thread_count(threads) if threads else None
    target, imported, results = convert(
        file,
        output,
        machine=machine,
        library=library,
        backend=backend,
        threads=number,
        problems=problems,
        clock=clock,
        case=case,
    )
    for remark in imported.remarks:
        warn(remark)
    warn_each("left out", imported.left_out)
    timeless = sum(not entry.processes_s for entry in imported.cases)
    without = f" ({timeless} without a time)" if timeless else ""
    results_text = f"{count(results, 'result')} of {imported.program}{without}"
    say(f"wrote {target}: {results_text}; to see them: {command('show', target)}")
