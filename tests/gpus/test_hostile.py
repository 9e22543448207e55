"""Packages of tables whose files are damaged, or made to do harm: each ends in a sentence, soon."""

import json
import os
import resource

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from deepbench.core.errors import BadInput
from deepbench.gpus import package, times
from deepbench.gpus.serving.deployments import deployments
from deepbench.gpus.sheet import sheet
from deepbench.gpus.table import table
from tests.gpus import small_tables
from tests.gpus.small_tables import DEPLOYMENT, forget, write, write_deployments, write_sheet
from tests.gpus.test_commands import refused
from tests.help.command import run_here

SHOW = ("published", "show", "h100_sxm", "--op", "linear")
COLUMNS = ("gemm_dtype", "m", "n", "k", "latency")

# Characters that a terminal would obey.
RED = "\x1b[31mred\x07\r\n\u202e"


def products(count=3, **columns):
    """A table of products, some of whose columns are others."""
    plain = {
        "gemm_dtype": ["bfloat16"] * count,
        **{name: list(range(1, count + 1)) for name in "mnk"},
        "latency": [0.01] * count,
    }
    return pa.table({**plain, **columns})


@pytest.fixture
def path(folder):
    """Where the table of products of the only GPU lies."""
    write_sheet(folder, "h100_sxm")
    return write(folder, "h100_sxm", "gemm/vllm/1/gemm", products())


def used_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# ---- tables


def test_the_good_table_is_shown(path):
    assert 0 == run_here(SHOW).code


# Bytes in the place of a table, made of a good one.
CONTENTS = {
    "empty": lambda good: b"",
    "not Parquet": lambda good: b"m,n,k\n1,2,3\n" * 100,
    "magic alone": lambda good: b"PAR1",
    "magic twice": lambda good: b"PAR1PAR1",
    "half": lambda good: good[: len(good) // 2],
    "without its end": lambda good: good[:-8],
    "without its start": lambda good: good[100:],
    "a footer longer than the file": lambda good: good[:-8] + (2**31 - 1).to_bytes(4, "little") + b"PAR1",
    "encrypted": lambda good: b"PARE" + good[4:-4] + b"PARE",
    "pointer of Git LFS": lambda good: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n",
    "zeros at 4": lambda good: zeros_at(good, 4),
    "zeros at 30": lambda good: zeros_at(good, 30),
    "zeros at 60": lambda good: zeros_at(good, 60),
}


def zeros_at(good, place):
    return good[:place] + bytes(200) + good[place + 200 :]


def good_table():
    sink = pa.BufferOutputStream()
    parquet.write_table(products(1000), sink)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("name", CONTENTS)
def test_a_damaged_table(path, name):
    path.write_bytes(CONTENTS[name](good_table()))
    assert "gemm_perf.parquet" in refused(*SHOW)


def test_bytes_changed_anywhere(path):
    """The footer, the pages and their headers: a sentence, or a table."""
    good = path.read_bytes()
    random = np.random.default_rng(0)
    refusals = 0
    for _ in range(300):
        bad = bytearray(good)
        for place in random.integers(0, len(good), 3):
            bad[place] = random.integers(0, 256)
        path.write_bytes(bytes(bad))
        forget()
        try:
            table("h100_sxm", "linear")
        except BadInput:
            refusals += 1
    assert 50 < refusals < 300


ODD = [
    ("m", pa.array(["1", "2", "3"])),
    ("m", pa.array([1.0, 2.0, 3.0])),
    ("m", pa.array([[1], [2], [3]])),
    ("m", pa.array([{"x": 1}] * 3)),
    ("m", pa.array([True, False, True])),
    ("m", pa.array([b"1", b"2", b"3"])),
    ("m", pa.array([1, 2, 3], pa.timestamp("s"))),
    ("m", pa.array([None] * 3, pa.null())),
    ("m", pa.DictionaryArray.from_arrays([0, 1, 0], ["a", "b"])),
    ("k", pa.array([1, 2, 3]).cast(pa.decimal128(30, 2))),
    ("latency", pa.array(["1", "2", "3"])),
    ("latency", pa.array([1, 2, 3]).cast(pa.decimal128(30, 2))),
    ("latency", pa.array([1, 2, 3], pa.duration("ms"))),
    ("latency", pa.array([[1.0]] * 3)),
    ("gemm_dtype", pa.array([1, 2, 3])),
    ("gemm_dtype", pa.array([["bfloat16"]] * 3)),
    ("gemm_dtype", pa.array([{"a": "bfloat16"}] * 3)),
    ("gemm_dtype", pa.array([b"bfloat16"] * 3)),
    ("gemm_dtype", pa.DictionaryArray.from_arrays([0, 1, 0], pa.array([1, 2]))),
]


@pytest.mark.parametrize(("column", "values"), ODD, ids=lambda value: value if type(value) is str else str(value.type))
def test_a_column_of_another_type_is_named(path, column, values):
    parquet.write_table(products(**{column: values}), path)
    said = refused(*SHOW)
    assert f"the column {column} has the type " in said


@pytest.mark.parametrize(
    "values",
    [
        [2**62, 2**63 - 1, -(2**63)],
        [2**40, 2**40 + 1, 2**41],
        [-1, 0, -7],
        pa.array([2**32 - 1] * 3, pa.uint32()),
        pa.array([2**63 - 1] * 3, pa.uint64()),
    ],
    ids=str,
)
def test_huge_and_negative_sizes(path, values):
    """They are no kernels, or such whose work is a finite number."""
    parquet.write_table(products(m=values, n=values), path)
    found = table("h100_sxm", "linear")
    assert np.isfinite(found.family.work(found.kernels).flop).all()
    assert len(found) + found.unmapped == 3
    run_here(SHOW)


def test_a_whole_number_above_that_of_the_machine(path):
    parquet.write_table(products(m=pa.array([2**64 - 1] * 3, pa.uint64())), path)
    assert "cannot be read as a table in Parquet" in refused(*SHOW)


@pytest.mark.parametrize("name", ["comm/nccl/1/nccl", "moe/vllm/1/moe", "attention/vllm/1/generation_attention"])
def test_huge_sizes_of_other_families(folder, name):
    write_sheet(folder, "h100_sxm")
    rows_of = {"nccl": small_tables.nccl, "moe": small_tables.moe}.get(name.rpartition("/")[2])
    good = next(rows_of("h100_sxm", *([1.0] * (rows_of is small_tables.moe)))) if rows_of else None
    good = good or next(small_tables.generation_attention("h100_sxm", 1.0))
    rows = []
    for value in (2**62, 2**63 - 1, -(2**63), -1, 0, 2**40):
        for column, own in good.items():
            if isinstance(own, int):
                rows.append({**good, column: value})
    write(folder, "h100_sxm", name, rows)
    family = {"comm": "collectives", "moe": "experts", "attention": "attention_decode"}[name.partition("/")[0]]
    with np.errstate(all="ignore"):
        found = table("h100_sxm", family)
        work = found.family.work(found.kernels)
        assert found.marks.shape == (len(found),)
    assert all((values >= 0).all() for values in found.kernels.values())
    assert np.isfinite(work.bytes).all()


def test_texts_that_a_terminal_would_obey(path):
    long = RED * 100_000
    table_of = products(gemm_dtype=[RED, long, "bfloat16"], kernel_source=[RED] * 3)
    parquet.write_table(table_of, path)
    done = run_here((*SHOW, "--csv"))
    assert 0 == done.code
    assert not set("\x1b\x07\u202e") & set(done.output)

    forget()
    parquet.write_table(table_of.rename_columns([RED, "m", "n", "k", long, "y"]), path)
    said = refused(*SHOW)
    assert "has no column gemm_dtype" in said
    assert len(said) < 2000


@pytest.mark.parametrize("names", [("m", "m", "n", "k", "latency"), ("M", "m.x", "n", "k", "latency")])
def test_columns_with_one_name(path, names):
    parquet.write_table(products().rename_columns(list(names)), path)
    assert "has no column" in refused(*SHOW)


def test_a_table_of_nothing_that_we_know(path):
    parquet.write_table(products(gemm_dtype=["float7"] * 3), path)
    assert "none of the 3 rows of fully connected layers is like a kernel of ours" in refused(*SHOW)


def test_texts_that_are_no_text(path):
    bad = pa.Array.from_buffers(
        pa.string(), 3, [None, pa.py_buffer(np.array([0, 2, 4, 6], np.int32)), pa.py_buffer(b"\xff\xfe" * 3)]
    )
    parquet.write_table(products(gemm_dtype=bad), path)
    assert "cannot be read as a table in Parquet" in refused(*SHOW)


def test_too_many_different_texts(path):
    parquet.write_table(products(20_000, gemm_dtype=[str(i) for i in range(20_000)]), path)
    assert "20000 different texts; at most 10000 are read" in refused(*SHOW)


def test_too_many_columns(path):
    parquet.write_table(products(**{f"c{i}": [1, 2, 3] for i in range(300)}), path)
    assert "305 columns" in refused(*SHOW)


def test_more_rows_than_are_read(path):
    count = 10**7
    zeros = np.zeros(count, np.int8)
    columns = {name: pa.array(zeros) for name in ("m", "n", "k", "latency")}
    columns["gemm_dtype"] = pa.DictionaryArray.from_arrays(pa.array(zeros), ["bfloat16"])
    parquet.write_table(pa.table(columns), path)
    before = used_bytes()
    assert f"has {count} rows" in refused(*SHOW)
    assert "at most 1000000" in refused("published", "list")
    assert used_bytes() - before < 50e6


def test_texts_that_would_need_terabytes(path):
    """A text of 4 MB is stored once; 1,000,000 rows have it."""
    count = 1_000_000
    codes = pa.array(np.zeros(count, np.int32))
    ones = pa.array(np.ones(count, np.int8))
    kinds = pa.DictionaryArray.from_arrays(codes, ["x" * 4_000_000])
    columns = dict.fromkeys(("m", "n", "k", "latency"), ones)
    parquet.write_table(pa.table({**columns, "gemm_dtype": kinds}), path, compression="zstd")
    assert path.stat().st_size < 100_000
    before = used_bytes()
    assert count == table("h100_sxm", "linear").unmapped
    assert used_bytes() - before < 600e6


@pytest.mark.parametrize("kind", ["fifo", "folder", "loop", "missing", "device", "unreadable"])
@pytest.mark.parametrize("what", ["table", "sheet", "deployments"])
def test_what_is_no_file(path, folder, kind, what):
    if kind == "unreadable" and os.geteuid() == 0:
        pytest.skip("root reads everything")
    place = {"table": path, "sheet": folder / "h100_sxm.yaml", "deployments": write_deployments(folder, {})}[what]
    place.unlink()
    if kind == "fifo":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    elif kind == "loop":
        place.symlink_to(place)
    elif kind == "missing":
        place.symlink_to(folder / "nowhere")
    elif kind == "device":
        place.symlink_to("/dev/zero")
    else:
        place.touch(mode=0)
    if what == "deployments":
        with pytest.raises(BadInput, match=r"silicon_sample\.csv"):
            deployments()
    else:
        assert refused(*SHOW)
        done = run_here(("published", "list"))
        assert (0 == done.code) != ("deepbench: " in done.errors)


def test_folders_of_folders(path, folder):
    """Links to the folder itself give no endless names, and names that a terminal would obey are left out."""
    data = folder / "data"
    for place in (data / "loop", data / "h100_sxm" / "up", path.parent / "up"):
        place.symlink_to(data)
    write(folder, "h100_sxm", f"{RED.replace('/', '')}/vllm/1/gemm".replace("\n", ""), products())
    write(folder, "h100_sxm", "gemm/vllm/\x1b[2J/gemm", products(9))
    forget()

    assert ("h100_sxm",) == package.machines()
    assert {("vllm", "1")} == {(file.framework, file.version) for file in package.tables("h100_sxm")}
    done = run_here(("published", "list"))
    assert 0 == done.code
    assert "\x1b" not in done.output


def test_a_folder_with_a_name_that_a_terminal_would_obey(tmp_path, monkeypatch):
    root = tmp_path / "\x1b[31msystems"
    write_sheet(root, "h100_sxm")
    path = write(root, "h100_sxm", "gemm/vllm/1/gemm", products())
    good = path.read_bytes()
    path.write_bytes(b"")
    monkeypatch.setenv("DEEPBENCH_GPU_TABLES", str(root))
    forget()
    assert "gemm_perf.parquet" in refused(*SHOW)
    path.write_bytes(good)
    forget()
    (root / "h100_sxm.yaml").write_text("gpu: {mem_bw: x}")
    assert "h100_sxm.yaml" in refused("published", "show", "h100_sxm")
    forget()


# ---- data sheets

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12)
)
MERGE = "a0: &a0 {x: 1}\n" + "".join(f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 10)}]}}\n" for i in range(1, 12))
GOOD = "gpu: {mem_bw: 1e12, bfloat16_tc_flops: 1e14}\n"

SHEETS = [
    b"",
    b"\x00\x01\x02\xff",
    b"\xff\xfe\x00\x00",
    b"- 1\n- 2\n",
    b"gpu: 3\n",
    b"gpu: {}\n",
    b"[" * 10_000,
    b"{a: " * 3_000,
    b"- " * 5_000,
    b"? " * 5_000,
    b'"\\UFFFFFFFF"\n',
    b"%YAML 9999999999999999999999999999999.1\n---\n",
    b"!!python/object/apply:os.system [false]\n",
    b"!!bool x\n",
    b"!!timestamp x\n",
    b"!!int ''\n",
    b"--- 1\n--- 2\n",
    b"gpu: {mem_bw: 2001-99-99}\n",
    f"gpu: {{mem_bw: 0x{'f' * 10_000}}}\n".encode(),
    f"gpu: {{mem_bw: {'9' * 10_000}}}\n".encode(),
    f"gpu: {{mem_bw: {':'.join(['59'] * 3_000)}}}\n".encode(),
    f"{BOMB}gpu: {{mem_bw: *a11, bfloat16_tc_flops: 1e14}}\n".encode(),
    f"{BOMB}? *a11\n: 1\n".encode(),
    f"{MERGE}gpu: {{<<: *a11}}\n".encode(),
    b"a: &a [*a]\ngpu: {mem_bw: *a}\n",
    *(
        f"gpu: {{mem_bw: {value}, bfloat16_tc_flops: 1e14}}\n".encode()
        for value in (
            ".nan",
            "nan",
            ".inf",
            "inf",
            "-1",
            "0",
            "true",
            "yes",
            "[1]",
            "{a: 1}",
            "1e21",
            '"\\e[31m"',
            "'1 '' 2'",
        )
    ),
    *(f"gpu: {{mem_bw: 1e12, bfloat16_tc_flops: {value}}}\n".encode() for value in ("-1", "true", "~", "''")),
    *(f"{GOOD}node: {{num_gpus_per_node: {value}}}\n".encode() for value in ("nan", "-8", "[8]")),
    GOOD.encode() + b"#" * 20_000,
]


@pytest.mark.parametrize("content", SHEETS, ids=lambda content: repr(content[:40]))
def test_a_hostile_data_sheet(path, folder, content):
    (folder / "h100_sxm.yaml").write_bytes(content)
    said = refused(*SHOW)
    assert "h100_sxm.yaml" in said
    assert len(said) < 1000


def test_bombs_of_aliases_beside_what_is_read_do_no_harm(path, folder):
    (folder / "h100_sxm.yaml").write_text(BOMB + GOOD)
    assert 1e12 == sheet("h100_sxm").bytes_per_s


# ---- deployments

HEAD = ",".join(DEPLOYMENT) + "\n"
ROW = ",".join(DEPLOYMENT.values()) + "\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "has no column backend"),
        (b"\x00" * 1000, "has no column backend"),
        (b"\xff" * 1000, "has no column backend"),
        (b'"' + b"x" * 200_000, r"row 1 is no CSV|field larger"),
        (HEAD.encode() + b'"' + b"x" * 10_000_000 + b'"\n', "row 1 is no CSV"),
        ((HEAD + ROW).encode() + b"y" * 10_000_000, "row 2 is no CSV"),
        ((HEAD + "x\n" * 200_001).encode(), "more than 200000 rows"),
    ],
    ids=lambda value: repr(value[:30]),
)
def test_a_hostile_list_of_deployments(path, folder, content, said):
    (folder / "silicon_sample.csv").write_bytes(content)
    with pytest.raises(BadInput, match=said):
        deployments()


def test_odd_rows_of_deployments_are_skipped_or_harmless(path, folder):
    """Each row cut anywhere, with quotes, NUL, and values of any size."""
    values = list(DEPLOYMENT.values())
    rows = [",".join(values[:count]) for count in range(len(values))]
    for i in range(len(values)):
        for odd in (
            "",
            '"',
            '""',
            "\0",
            "-1",
            "1e308",
            "9" * 400,
            "nan",
            RED.replace("\r\n", ""),
            "../../x",
            "1.5",
            "٣",
        ):
            rows.append(",".join([*values[:i], odd, *values[i + 1 :]]))
    rows.append(",".join([*values, "more", "and more"]))
    (folder / "silicon_sample.csv").write_text(HEAD + "\n".join(rows) + "\n")
    for row in deployments():
        assert "h100_sxm" == row.machine
        assert all(character.isprintable() for character in f"{row.name}{row.framework}{row.precision}")
        assert 0 < row.token_s < 1e9
        assert 0 < row.batch < 2**31
        assert row.devices <= 8


# ---- remembered indexes


def test_an_index_from_elsewhere_does_not_reach_the_terminal(path, folder):
    assert 0 == run_here(("published", "list")).code
    (index,) = (folder.parent / "state" / "gpus").glob("index-*.json")
    kept = json.loads(index.read_text())
    for odd in ({"families": {RED: 3}}, {"other": {RED: 3}}, {"sources": [RED]}):
        index.write_text(json.dumps([{**kept[0], **odd}]))
        for words in (("published", "list"), ("published", "list", "--csv"), ("published", "show", "h100_sxm")):
            forget()
            done = run_here(words)
            assert (0, "") == (done.code, done.errors)
            assert not set("\x1b\x07\u202e") & set(done.output), words


def test_times_of_tables_with_any_sizes_are_found(path):
    """A look-up for a kernel whose numbers no table has."""
    asked = times.as_arrays([{"m": 2**40, "n": 2**40, "k": 2**40, "type": 0}], ("m", "n", "k", "type"))
    found = times.times("h100_sxm", "linear", asked, "vllm")
    assert np.isnan(found.seconds).all()
