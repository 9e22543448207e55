"""`deepbench published`: results of the original DeepBench, and published kernel times of GPUs."""

from __future__ import annotations

import click

from deepbench.api.text import BadInput, shorten
from deepbench.cli.console import make_console, print_head, print_table, print_text
from deepbench.cli.options import form_options, pairs, whole
from deepbench.cli.root import HELP, cli
from deepbench.cli.streams import print_for_programs


@cli.group(context_settings=HELP, short_help="Show published results of other machines.")
def published() -> None:
    """Results that Baidu's DeepBench published from 2016 to 2019, and NVIDIA's kernel times of ten newer GPUs.

    The kernel times are in a package of 82 MB: pip install -e ".[gpus]".

    \b
    Examples:
      deepbench published list
      deepbench published show V100 --op gemm
      deepbench published show h100_sxm --op linear --where n=8192,k=8192
      deepbench compare mine.jsonl V100
    """


@published.command("list", context_settings=HELP)
@form_options
def list_machines(form: str | None) -> None:
    """List the machines, newest first."""
    from deepbench.api.published import published_machines

    print_table(published_machines(), form)


@published.command("show", short_help="Print the results of a machine.", context_settings=HELP)
@click.argument("machine", metavar="MACHINE")
@click.option("--op", metavar="OP", help="Only this operation.")
@click.option("--precision", metavar="WORD", help="Only this precision: f32, f16, i8; of GPUs bfloat16, fp8, nvfp4.")
@click.option("--framework", metavar="F", help="Of GPUs with tables: only times of vllm, sglang or trtllm.")
@click.option("--where", "sizes", multiple=True, metavar="N=V,…", help="Of GPUs with tables: only these sizes.")
@click.option("--rows", metavar="N", help="Of GPUs with tables: at most N rows (default: 40).")
@click.option("--every-version", is_flag=True, help="Of GPUs with tables: all versions of the frameworks.")
@form_options
def show_machine(
    machine: str,
    op: str | None,
    precision: str | None,
    framework: str | None,
    sizes: tuple[str, ...],
    rows: str | None,
    every_version: bool,
    form: str | None,
) -> None:
    """Print the results of a machine, with rates computed from the times, and the published rate where it differs."""
    from deepbench.api.published import has_tables, published_kernels
    from deepbench.api.published import published as results_of

    if has_tables(machine):
        words = pairs("--where", [word for text in sizes for word in text.split(",")])
        most = whole("--rows", rows, 10**6)
        found = published_kernels(
            machine,
            op=op,
            precision=precision,
            framework=framework,
            sizes=words,
            most=most,
            every_version=every_version,
        )
        print_text(found, form)
        return
    if framework or sizes or rows or every_version:
        raise BadInput(
            f"--framework, --where, --rows and --every-version are for GPUs with tables, and {shorten(machine)!r} is "
            "none; see deepbench published list"
        )

    results = results_of(machine, op=op, precision=precision)
    report = results.report(full=True)
    if form is not None:
        print_for_programs(report.text(form))
    else:
        console = make_console(to_read=True)
        print_head(console, results)
        report.print(console)
