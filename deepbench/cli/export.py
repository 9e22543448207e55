"""`deepbench export`: results and problems in the formats of other programs."""

from __future__ import annotations

from typing import Any

import click

from deepbench.api.text import BadInput, count
from deepbench.cli.options import choices_of, choosing_options, skip_damaged_option, whole
from deepbench.cli.root import HELP, cli
from deepbench.cli.streams import print_for_programs, say, warn_each

MOST_MULTIPLY_ADDS = 10**18


@cli.command(context_settings=HELP, short_help="Write results or problems for other programs.")
@click.argument("words", metavar="FILE...|[SUITE|CASE]...", nargs=-1, required=True)
@click.option(
    "--to",
    metavar="FORMAT",
    required=True,
    help="Of results: pytorch-hud, bencher, github-action-benchmark, otava, openmetrics, flashinfer-trace. Of "
    "problems: scalesim, timeloop, zigzag, stonne, maestro, chakra, onnx, c, benchdnn, rocblas-bench, "
    "hipblaslt-bench, csv, json.",
)
@click.option(
    "--output",
    "-o",
    metavar="OUT",
    help="The file (default: standard output). otava writes OUT.csv and OUT.yaml; flashinfer-trace, and all formats "
    "of problems, a folder.",
)
@click.option("--commit", metavar="SHA", help="Of results: the commit that was measured.")
@click.option("--branch", metavar="NAME", help="Of results: its branch.")
@click.option("--repository", metavar="OWNER/NAME", help="Of results: its repository.")
@skip_damaged_option
@click.option("--format-version", metavar="V", help="Of problems: the version of the format (timeloop: 0.4 or 0.3).")
@click.option("--max-macs", metavar="N", help="Of problems: leave out those with more multiply-adds.")
@choosing_options(
    *("--op", "--precision", "--direction", "--application", "--ranks", "--set", "--fit"),
    ranks="Only groups of this many ranks (default: what the suite says).",
)
def export(
    words: tuple[str, ...],
    to: str,
    output: str | None,
    commit: str | None,
    branch: str | None,
    repository: str | None,
    skip_damaged: bool,
    format_version: str | None,
    max_macs: str | None,
    **filters: Any,
) -> None:
    """Write results in the format of another program, to draw them, to store them, or to watch them over time.

    A time that other programs disturbed is marked in the output, or left out where the format has no mark.

    Or write problems for simulators, compilers and benchmarks of libraries. counts.json next to them has the case, the
    work and the applications of each; what the format cannot express is named.

    \b
    Examples:
      deepbench export new.jsonl --to bencher -o bencher.json
      deepbench export nightly/*.jsonl --to otava -o otava/onednn
      deepbench export new.jsonl --to openmetrics > deepbench.prom
      deepbench export deepbench/train --to scalesim -o scalesim/
    """
    from deepbench.api import exporting

    of_results = {"--commit": commit, "--branch": branch, "--repository": repository, "--skip-damaged": skip_damaged}
    of_problems = {"--format-version": format_version, "--max-macs": max_macs}
    of_problems |= {f"--{name.replace('_', '-')}": value for name, value in filters.items()}
    is_of_problems = exporting.is_of_problems(to)
    for name, value in (of_results if is_of_problems else of_problems).items():
        if value:
            what, other = ("problems", "results") if is_of_problems else ("results", "problems")
            raise BadInput(f"{name} is for formats of {other}, and {to} is one of {what}; leave it out")
    if is_of_problems:
        if output is None:
            raise BadInput(f"--to {to} writes a folder; name it: -o {to}")
        most = whole("--max-macs", max_macs, MOST_MULTIPLY_ADDS)
        made = exporting.prepare_problems(words, to, output, choices_of(filters), format_version, most)
        warn_each("left out", made.left_out)
        warn_each("differs", made.remarks)
        paths = exporting.write_problems(made, output)
        problems = len({layer.problem for layer in made.layers})
        say(f"wrote {count(problems, 'problem')} into {count(len(paths), 'file')} in {output}")
        return
    found = exporting.prepare(words, to, output, commit, branch, repository, skip_damaged)
    warn_each("left out", found.left_out)
    if output is None:
        print_for_programs(found.texts[""])
    else:
        paths = exporting.write(found, output)
        more = f" and {count(len(paths) - 1, 'more file')}" if len(paths) > 1 else ""
        say(f"wrote {paths[0]}{more}" if paths else "wrote nothing: all cases are left out")
