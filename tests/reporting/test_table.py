"""One table for every output: nothing is cut, nothing is markup, nothing is a formula."""

import io
import json

import pytest
from rich.console import Console

from deepbench.core import units
from deepbench.reporting.table import Column, Note, Strong, Table, footnotes, number

ROWS = [
    {"problem": "a long problem of many words", "library": Strong("=MKL"), "time": 1.2e-3},
    {"problem": "[red]short|", "library": "OpenBLAS", "time": None},
]
TABLE = Table(
    [Column("problem"), Column("library"), number("time", units.seconds), Column("empty")], ROWS, ["a *note*"]
)


def printed(table, width):
    text = io.StringIO()
    table.print(Console(file=text, width=width, force_terminal=True, color_system=None, highlight=False))
    return text.getvalue().splitlines()


@pytest.mark.parametrize("width", [10, 40, 200])
def test_on_any_terminal_numbers_are_whole_and_no_text_is_lost(width):
    lines = printed(TABLE, width)

    assert any("1.20 ms" in line for line in lines)
    assert all(word in " ".join(lines) for word in ("long", "problem", "many", "words", "[red]short|"))


def test_markdown_escapes_texts_and_emphasizes_the_fastest():
    lines = TABLE.markdown().splitlines()

    assert "|---|---|---:|---|" == lines[1]
    assert r"| a long problem of many words | **=MKL** | 1.20 ms | – |" == lines[2]
    assert r"| \[red\]short\| | OpenBLAS | – | – |" == lines[3]
    assert r"- a \*note\*" == lines[-1]


def test_csv_and_json_have_plain_values():
    assert ["problem,library,time,empty", "a long problem of many words,'=MKL,0.0012,"] == TABLE.csv().splitlines()[:2]
    assert ROWS == json.loads(TABLE.json())


def test_empty_columns_can_be_left_out():
    assert ["problem", "library", "time"] == [column.name for column in TABLE.without_empty_columns().columns]


def test_each_note_is_explained_once():
    loop = Note("loop", "Python loop", "Python loop: slow.")

    assert ["Python loop: slow."] == footnotes([loop, Note("energy", "3 J"), loop])


def test_a_narrow_terminal_shows_fewer_columns_and_says_so():
    columns = [Column("problem"), number("time"), number("rate", narrow=1), number("undisturbed", narrow=2)]
    row = {"problem": "backward_weights of a layer", "time": "1.20 ms", "rate": "0.3", "undisturbed": "98 %"}
    table = Table(columns, [row], ["rate: per second."])

    lines = printed(table, 30)

    assert ["problem", "time"] == lines[0].split()
    assert "backward_weights" in lines[1], "words are whole"
    assert "Not shown at this width: undisturbed, rate." == " ".join(line.strip() for line in lines[-2:])
    assert "undisturbed" in printed(table, 80)[0]
    assert printed(table, 80)[-1].startswith("rate:")
