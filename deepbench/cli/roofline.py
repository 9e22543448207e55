"""`deepbench roofline`: the limits of this machine."""

from __future__ import annotations

import click

from deepbench.cli.console import make_console, print_json, print_machine, progress_bar
from deepbench.cli.options import comma_list
from deepbench.cli.root import HELP, cli
from deepbench.cli.streams import go_on_without_output


@cli.command(context_settings=HELP, short_help="Measure the limits of this machine.")
@click.option(
    "--threads", multiple=True, metavar="N", callback=comma_list, help="Numbers of threads (default: 1 and all cores)."
)
@click.option("--quick", is_flag=True, help="Fewer sizes, one process each.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def roofline(threads: tuple[str, ...], quick: bool, as_json: bool) -> None:
    """Measure the limits of this machine: peak FLOP/s per precision, bandwidth per memory level, shortest call.

    Takes some minutes (--quick: one). The limits are remembered and used by every run on this machine.
    """
    from deepbench.api.filters import thread_count
    from deepbench.api.machine import default_threads, describe_machine
    from deepbench.api.measuring import limit_tables, measure_limits

    machine = describe_machine()
    counts = [thread_count(t) for t in threads] or sorted({1, default_threads()})
    console = make_console(quiet=as_json)
    go_on_without_output("the limits are remembered all the same")
    print_machine(console, machine)
    with progress_bar(console) as bar:
        limits = measure_limits(counts, quick=quick, progress=bar)
    tables = limit_tables(limits, counts)
    if as_json:
        print_json({name: table.rows for name, table in tables.items()})
        return
    for table in tables.values():
        if table.rows:
            console.print()
            table.print(console)
