"""Workbooks, Parquet and SQLite; hostile texts stay texts."""

import sqlite3

import pytest

from deepbench.reporting import database
from deepbench.results.file import ResultFile
from deepbench.results.summary import summarize
from tests.help import samples

openpyxl = pytest.importorskip("openpyxl", reason="a workbook needs openpyxl: pip install openpyxl")


def written(tmp_path, found):
    path = tmp_path / "w.xlsx"
    database.xlsx(found, summarize(found.records, found.order), path)
    return openpyxl.load_workbook(path)


def test_a_workbook_has_one_row_per_case_with_the_numbers_of_the_summaries(tmp_path):
    records = [samples.measured(b, s) for b, s in (("mkl", 1e-3), ("openblas", 2e-3))]
    (sheet,) = written(tmp_path, ResultFile(None, samples.header(), records))
    head, *rows = sheet.iter_rows(values_only=True)

    assert [r["case"] for r in records] == [row[head.index("case")] for row in rows]
    assert [s.estimate.time_s for s in summarize(records)] == [row[head.index("time_s")] for row in rows]


def test_a_workbook_without_cases_is_a_workbook(tmp_path):
    assert ["All cases"] == written(tmp_path, ResultFile(None, samples.header(), [])).sheetnames


HOSTILE = [
    "=cmd|' /C calc'!A0",
    "+1",
    "-1+2",
    "@SUM(A1)",
    "<script>alert(1)</script>",
    "\u202eevil",
    "'; drop table cases; --",
]


def test_hostile_texts_are_texts_in_every_file(tmp_path):
    pyarrow = pytest.importorskip("pyarrow.parquet", reason="Parquet needs PyArrow: pip install pyarrow")
    records = []
    for text in HOSTILE:
        record = samples.measured(text="gemm m=2 n=3 k=4 a_t=0 b_t=0 forward f32 mkl threads=1")
        record["case"] = record["backend"] = text
        record["problem"] = {**record["problem"], text: text}
        record["sources"] = [{"suite": text, "row": 1, "application": text}]
        records.append(record)
    header = samples.header()
    header["machine"]["cpu"] = "=HYPERLINK(1)"
    found = ResultFile(None, header, records)
    summaries = summarize(records)
    book = written(tmp_path, found)
    database.parquet(found, summaries, tmp_path / "p.parquet")
    database.sqlite(found, summaries, tmp_path / "s.db")

    cells = [c for sheet in book for row in sheet.iter_rows() for c in row if c.value is not None]
    assert not [c.coordinate for c in cells if c.data_type == "f"]
    assert any("script" in str(c.value) for c in cells)
    table = pyarrow.read_table(tmp_path / "p.parquet").to_pydict()
    assert HOSTILE == table["case"]
    with sqlite3.connect(tmp_path / "s.db") as connection:
        rows = connection.execute('select "case" from cases').fetchall()
    connection.close()
    assert HOSTILE == [row[0] for row in rows]


def test_a_database_without_cases_and_with_names_that_differ_in_case_only(tmp_path):
    one = samples.measured()
    one["problem"] = {"n": 1, "N": 2}
    database.sqlite(ResultFile(None, samples.header(), []), [], tmp_path / "none.db")
    database.sqlite(ResultFile(None, samples.header(), [one]), summarize([one]), tmp_path / "s.db")

    with sqlite3.connect(tmp_path / "none.db") as connection:
        assert 0 == connection.execute("select count(*) from cases").fetchone()[0]
    connection.close()
    with sqlite3.connect(tmp_path / "s.db") as connection:
        assert (1, 2) == tuple(map(int, connection.execute('select "n", "N_2" from cases').fetchone()))
    connection.close()


def test_sqlite_and_parquet_have_the_numbers_of_the_summaries(tmp_path):
    pyarrow = pytest.importorskip("pyarrow.parquet", reason="Parquet needs PyArrow: pip install pyarrow")
    records = [samples.measured(b, s) for b, s in (("mkl", 1e-3), ("openblas", 2e-3))]
    found, summaries = ResultFile(None, samples.header(), records), summarize(records)
    database.parquet(found, summaries, tmp_path / "p.parquet")
    database.sqlite(found, summaries, tmp_path / "s.db")
    wanted = [s.estimate.time_s for s in summaries]

    assert wanted == pyarrow.read_table(tmp_path / "p.parquet")["time_s"].to_pylist()
    with sqlite3.connect(tmp_path / "s.db") as connection:
        assert wanted == [row[0] for row in connection.execute("select time_s from cases")]
        assert 20 == connection.execute("select count(*) from samples").fetchone()[0]
    connection.close()
