"""`deepbench list`: print cases without running them."""

from __future__ import annotations

import json
from typing import Any

import click

from deepbench.cli.options import case_options, choices_of
from deepbench.cli.root import HELP, cli
from deepbench.cli.streams import print_for_programs
from deepbench.core.errors import BadInput
from deepbench.core.json_lines import sanitized


@cli.command(name="list", context_settings=HELP)
@click.argument("words", nargs=-1, metavar="[SUITE|FILE|CASE]...")
@case_options
@click.option("--suites", is_flag=True, help="Print the names of all suites instead of cases.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per case.")
def list_cases(words: tuple[str, ...], suites: bool, as_json: bool, **filters: Any) -> None:
    """Print cases without running them. Each line, after `deepbench run`, measures that case.

    \b
    Example: deepbench list deepbench/server --precision i8,i8u8 --backend onednn
    """
    from deepbench.api import plan_cases
    from deepbench.plan.suites import read_suite, suite_files

    if suites:
        if words or as_json or any(filters.values()):
            raise BadInput("--suites prints the names of all suites; leave out cases, filters and --json")
        for name in suite_files():
            rows = {(e.pattern.op, e.source["row"]) for e in read_suite(name) if e.source}
            print(f"{name:24} {len(rows):4} problems")
        return
    for planned in plan_cases(words or "quick", choices_of(filters)):
        if as_json:
            line = sanitized({"case": planned.case.text, "sources": planned.sources})
            print_for_programs(json.dumps(line, ensure_ascii=False) + "\n")
        else:
            print(planned.case.text)
