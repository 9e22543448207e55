"""Workbooks with the original's layout, Parquet and SQLite; hostile texts stay texts."""

import sqlite3

import pytest

from deepbench.core.case import parse_case
from deepbench.plan.suites import read_suite
from deepbench.report import database, workbook
from deepbench.results.file import ResultFile
from deepbench.results.summary import summarize
from tests.help import samples

openpyxl = pytest.importorskip("openpyxl", reason="a workbook needs openpyxl: pip install openpyxl")


def result_file(path, suite, texts, seconds=1e-3):
    records = []
    for i, text in enumerate(texts):
        record = samples.measured(seconds=seconds * (i + 1), text=text)
        wanted = parse_case(text).problem
        record["sources"] = [
            e.source | {"needed": True}
            for e in read_suite(suite)
            if e.source and e.pattern.op == record["op"] and e.pattern.problem == wanted
        ]
        records.append(record)
    return ResultFile(path, samples.header(texts), records)


def written(tmp_path, found):
    path = tmp_path / "w.xlsx"
    workbook.write(found, summarize(found.records, found.order), path)
    return openpyxl.load_workbook(path)


def test_a_training_sheet_has_its_numbers_in_the_cells_of_the_original(tmp_path):
    """As in the V100 workbook: conv begins in row 176, layers in 276, 292, 317, all-reduce in 341."""
    texts = [
        "gemm m=1760 n=16 k=1760 a_t=0 b_t=0 forward f32 mkl threads=2",
        "gemm m=512 n=8 k=500000 a_t=0 b_t=0 forward f32 mkl threads=2",
        "conv n=4 c=1 h=161 w=700 k=32 r=5 s=20 pad_h=0 pad_w=0 stride_h=2 stride_w=2 forward f32 onednn threads=2",
        "recurrent cell=lstm hidden=512 batch=16 timesteps=25 forward f32 onednn threads=2",
    ]
    sheet = written(tmp_path, result_file(None, "deepbench/train", texts))["Results FP32"]

    assert ("Precision", "Float") == (sheet["A1"].value, sheet["B1"].value)
    assert "Dense Matrix Multiplication" == sheet["A4"].value
    assert [1760, 16, 1760, "N", "N"] == [sheet[f"{c}5"].value for c in "CDEFG"]
    assert sheet["I5"].value == pytest.approx(1.0, rel=0.01)
    assert sheet["J5"].value == pytest.approx(2 * 1760 * 16 * 1760 / 1e-3 / 1e12, rel=0.01)
    assert ([512, 8, 500000], None) == ([sheet[f"{c}88"].value for c in "CDE"], sheet["C87"].value)
    assert sheet["I88"].value == pytest.approx(2.0, rel=0.01)
    assert [700, 161, 1, 4, 32, 20, 5] == [sheet[f"{c}176"].value for c in "CDEFGHI"]
    assert sheet["N176"].value == pytest.approx(3.0, rel=0.01)
    assert ["N/A*", 341, 79] == [sheet[f"{c}176"].value for c in ("O", "R", "S")]
    assert ([512, 16, 25], "Recurrent Layers - LSTM") == ([sheet[f"{c}292"].value for c in "CDE"], sheet["A291"].value)
    assert sheet["G292"].value == pytest.approx(4.0, rel=0.01)
    assert [100000, 2] == [sheet[f"{c}341"].value for c in "CD"]
    assert 169 == max(r for r in range(5, 173) if sheet.cell(r, 3).value)


def test_a_server_sheet_counts_non_zeros_and_names_the_precision(tmp_path):
    texts = [
        "gemm m=5124 n=700 k=2048 a_t=0 b_t=0 forward i8u8 onednn threads=2",
        "sparse_gemm m=7680 n=1 k=2560 sparsity=95 forward f32 mkl threads=2",
    ]
    sheet = written(tmp_path, result_file(None, "deepbench/server", texts))["Results - Mixed Precision"]

    assert sheet["B1"].value.startswith("GEMM: Int8 multiplication, 32 bit accumulation; Conv: single precision")
    assert [5124, 700, 2048] == [sheet[f"{c}4"].value for c in "CDE"]
    assert 0.95 == sheet["H83"].value
    assert sheet["L83"].value == pytest.approx(2 * 7680 * 2560 * 0.05 / 2e-3 / 1e12, rel=0.01)
    assert "Recurrent Layers - GRU" == sheet["A245"].value


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


def test_cases_with_other_settings_are_not_in_the_originals_sheets(tmp_path):
    text = "gemm m=1760 n=16 k=1760 a_t=0 b_t=0 forward f32 mkl threads=2"
    found = result_file(None, "deepbench/train", [text, f"{text} beta=0"])
    found.records[1]["measurement"]["samples_s"] = [1e-4] * 10

    assert 1.0 == pytest.approx(written(tmp_path, found)["Results FP32"]["I5"].value, rel=0.01)


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
