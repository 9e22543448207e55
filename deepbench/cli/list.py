"""`deepbench list`: print cases without running them."""

from __future__ import annotations

import json
from typing import Any

import click

from deepbench.api.text import BadInput, sanitized
from deepbench.cli.options import case_options, choices_of
from deepbench.cli.root import HELP, cli
from deepbench.cli.streams import print_for_programs

TITLES = {
    "deepbench": "The original's problems",
    "other": "Chosen problems",
    "llm": "Language models",
    "mlperf": "Models of MLPerf, from 2018 to today",
    "sparse": "Sparse weights",
    "speech": "Speech",
    "text": "Text",
    "vision": "Images",
}


@cli.command(name="list", context_settings=HELP)
@click.argument("words", nargs=-1, metavar="[SUITE|FILE|CASE]...")
@case_options
@click.option("--suites", is_flag=True, help="Print the names of all suites instead of cases.")
@click.option(
    "--coverage", is_flag=True, help="Print the definitions of a folder or file: their operation, or why there is none."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per case, or per definition.")
def list_cases(words: tuple[str, ...], suites: bool, coverage: bool, as_json: bool, **filters: Any) -> None:
    """Print cases without running them. Each line, after `deepbench run`, measures that case.

    \b
    Examples:
      deepbench list deepbench/server --precision i8,i8u8 --backend onednn
      deepbench list flashinfer-trace --coverage
    """
    from deepbench.api.filters import plan_cases

    if suites:
        if words or as_json or coverage or any(filters.values()):
            raise BadInput("--suites prints the names of all suites; leave out cases, filters, --coverage and --json")
        _print_suites()
        return
    if coverage:
        if len(words) != 1 or any(filters.values()):
            raise BadInput("--coverage wants one folder or file of definitions, and no filters")
        _print_coverage(words[0], as_json)
        return
    for planned in plan_cases(words or "quick", choices_of(filters)):
        if as_json:
            line = sanitized({"case": planned.case.text, "sources": planned.sources})
            print_for_programs(json.dumps(line, ensure_ascii=False) + "\n")
        else:
            print(planned.case.text)


def _print_suites() -> None:
    """One line per suite: how many problems it has, and of a model its phases, each with its parameters."""
    from deepbench.api.filters import suites

    group = None
    for suite in suites():
        if suite["group"] != group:
            print(f"{'' if group is None else chr(10)}{TITLES.get(suite['group'], suite['group'])}")
            group = suite["group"]
        print(f"  {suite['name']:29} {suite['problems']:4} problems  {', '.join(suite['phases'])}".rstrip())
    print(
        "\nTo print the cases of one phase:\n  deepbench list mlperf/llama31_8b --set phase=decode,batch=8,context=4096"
    )


def _print_coverage(name: str, as_json: bool) -> None:
    """One line per definition: how many workloads it has, and which operation computes it or why none does."""
    from deepbench.api.filters import coverage_report
    from deepbench.cli.console import make_console

    report = coverage_report(name)
    if as_json:
        print_for_programs(report.text("json"))
    else:
        report.print(make_console())
