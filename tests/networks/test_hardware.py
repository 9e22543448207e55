"""Files of hardware: what they may say, what is refused, and what knobs do to them."""

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given, strategies

from deepbench.core.errors import BadInput
from deepbench.judge.limits import Limits
from deepbench.networks.what_if.hardware import Hardware, MemoryLevel, Overhead
from deepbench.networks.what_if.knobs import Knob
from tests.conftest import ROOT

TEXT = """
schema = "deepbench-hardware/1"
name = "an accelerator"
origin = "hypothetical"
units = 80
tiles = [[128, 128], [64, 32]]

[peak]
f32 = 1.5e13
bf16 = 1.25e14

[[memory]]
name = "L2"
bytes = 6_000_000
bytes_per_s = 2e12

[[memory]]
name = "HBM"
bytes_per_s = 9e11

[overhead]
call_s = 5e-6
"""

HARDWARE = Hardware.parse(TEXT)


def test_a_file_has_every_value():
    assert ("an accelerator", "hypothetical", 80, ((128, 128), (64, 32))) == (
        HARDWARE.name,
        HARDWARE.origin,
        HARDWARE.units,
        HARDWARE.tiles,
    )
    assert {"f32": 1.5e13, "bf16": 1.25e14} == HARDWARE.peak
    assert (MemoryLevel("L2", 6e6, 2e12), MemoryLevel("HBM", None, 9e11)) == HARDWARE.memory
    assert Overhead(5e-6, None) == HARDWARE.overhead


def test_writing_and_reading_keeps_every_value():
    assert Hardware.parse(HARDWARE.toml()) == HARDWARE
    assert Hardware.parse(MEASURED.toml()) == MEASURED


def test_text_of_a_stranger_is_quoted():
    named = Hardware.parse(TEXT.replace("an accelerator", 'a \\" [peak] \\\\'))

    assert 'a " [peak] \\' == named.name
    assert Hardware.parse(named.toml()) == named


def test_every_data_sheet_of_the_benchmark_can_be_read():
    sheets = [Hardware.load(path) for path in sorted((ROOT / "benchmarks" / "hardware").glob("*.toml"))]

    assert 11 == len(sheets)
    assert all(sheet.origin == "datasheet" and sheet.source for sheet in sheets)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('schema = "deepbench-hardware/1"', "", 'wanted schema = "deepbench-hardware/1"'),
        ("deepbench-hardware/1", "deepbench-hardware/9", "wanted schema"),
        ('name = "an accelerator"', "", "has no name"),
        ("hypothetical", "rumoured", "origin is one of measured, datasheet, hypothetical, found 'rumoured'"),
        ("[peak]\nf32 = 1.5e13\nbf16 = 1.25e14", "[peak]", "peak is empty"),
        ("f32 = 1.5e13", "fp32 = 1.5e13", "peak has no 'fp32'; it has f32, .*did you mean f32"),
        ("f32 = 1.5e13", "f32 = -1", "peak.f32 must be a number above 0 in SI units, such as 9e11; found -1"),
        ("f32 = 1.5e13", "f32 = inf", "peak.f32 must be a number above 0"),
        ("f32 = 1.5e13", "f32 = nan", "peak.f32 must be a number above 0"),
        ("f32 = 1.5e13", "f32 = true", "peak.f32 must be a number above 0"),
        ("f32 = 1.5e13", 'f32 = "15 TFLOP/s"', "peak.f32 must be a number above 0"),
        ("units = 80", "units = 0", "units must be a whole number from 1 on, found 0"),
        ("units = 80", "unit = 80", "the file has no 'unit'; .*did you mean units"),
        ("[[128, 128], [64, 32]]", "[[128]]", "tiles must be a list of pairs"),
        ("[[128, 128], [64, 32]]", '"128x128"', "tiles must be a list of pairs"),
        ('name = "L2"', 'name = "L2 cache"', "level 1 of memory needs a name of letters and digits, such as L2"),
        ('name = "L2"', 'name = "all"', "level 1 of memory needs a name"),
        ('name = "L2"', 'name = "HBM"', "two levels of memory have the same name"),
        ("bytes = 6_000_000\n", "", "memory.L2 needs bytes"),
        (
            "bytes_per_s = 9e11",
            "bytes_per_s = 9e11\ngather_bytes = 8",
            "memory.HBM has gather_bytes, which only the innermost level has",
        ),
        ("bytes_per_s = 9e11", "bytes = 9e11", "wanted its bytes_per_s"),
        ("bytes_per_s = 9e11", "bytes_per_s = 9e11\nbytes = 1e6", "levels of memory begin with the innermost"),
        ("call_s = 5e-6", "launch_s = 5e-6", "overhead has no 'launch_s'; it has call_s, operator_s"),
        ("units = 80", "units = 1.5", "units must be a whole number"),
        ("[overhead]", "[overhead", "is not valid TOML"),
    ],
)
def test_what_is_wrong_is_said(old, new, sentence):
    assert old in TEXT
    with pytest.raises(BadInput, match=sentence):
        Hardware.parse(TEXT.replace(old, new, 1))


@pytest.mark.parametrize("text", ["memory = 3", "peak = 3", "overhead = 3", "tiles = 3", "memory = [3]", "name = 3"])
def test_values_of_other_kinds_are_refused(text):
    name = text.partition(" ")[0]
    table = {"schema": '"deepbench-hardware/1"', "name": '"x"', "origin": '"measured"', "peak": "{f32 = 1}"}
    table["memory"] = '[{name = "m", bytes_per_s = 1}]'
    table[name] = text.partition("= ")[2]
    with pytest.raises(BadInput, match=name):
        Hardware.parse("\n".join(f"{key} = {value}" for key, value in table.items()))


def test_a_file_that_is_no_file_of_hardware(tmp_path):
    with pytest.raises(BadInput, match="does not exist; expected a file of hardware"):
        Hardware.load(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(BadInput, match="is not text in UTF-8"):
        Hardware.load(tmp_path / "bytes.toml")


# ---- measured


def limit(what, **fields):
    return {"what": what, "case": "", "threads": 2, "at": "2026-11-23T00:00:00+00:00", "seconds": 1e-3, **fields}


def read(size, rate, **fields):
    return limit("memory", device="cpu", kind="read", bytes=size, bytes_per_s=rate, case=f"read {size}", **fields)


LINES = [
    limit("compute", precision="f32", device="cpu", flop_per_s=3e11, library="x"),
    limit("compute", precision="bf16", device="cpu", flop_per_s=2e12, library="x"),
    limit(
        "call", backend="mkl", library="x", case="gemm m=1 n=1 k=1 a_t=0 b_t=0 forward f32 mkl threads=2", seconds=1e-7
    ),
    limit(
        "call",
        backend="onednn",
        library="x",
        case="gemm m=1 n=1 k=1 a_t=0 b_t=0 forward f32 onednn threads=2",
        seconds=5e-7,
    ),
    limit(
        "call",
        backend="onednn",
        library="x",
        case="gemm m=1 n=1 k=1 a_t=0 b_t=0 forward f32 onednn threads=1",
        seconds=9.0,
    ),
    *(read(size, rate) for size, rate in ((2**14, 5e11), (2**19, 2e11), (2**22, 1e11), (2**29, 3e10))),
]
CACHES = {"caches": [{"level": 1, "bytes": 2**15}, {"level": 2, "bytes": 2**20}, {"level": 3, "bytes": 2**23}]}
MEASURED = Hardware.measured(Limits(LINES, CACHES), "here", 2)


def test_measured_hardware_has_what_a_file_knows():
    assert {"f32": 3e11, "bf16": 2e12} == MEASURED.peak
    assert 3e-7 == pytest.approx(MEASURED.overhead.call_s)
    assert ["L1", "L2", "L3", "main"] == [level.name for level in MEASURED.memory]
    assert [5e11, 2e11, 1e11, 3e10] == [level.bytes_per_s for level in MEASURED.memory]
    assert (2, "cpu", "measured") == (MEASURED.threads, MEASURED.device, MEASURED.origin)


def test_a_peak_that_other_programs_disturbed_is_said():
    lines = [{**line, "disturbed": line["what"] == "compute"} for line in LINES]

    assert ["Other programs disturbed the measurement of the peak rate of f32, bf16."] == [
        remark for remark in Hardware.measured(Limits(lines, CACHES), "here", 2).remarks if "disturbed" in remark
    ]


def test_a_level_that_was_not_measured_does_not_count():
    lines = [line for line in LINES if line.get("bytes") != 2**14]
    hardware = Hardware.measured(Limits(lines, CACHES), "here", 2)

    assert ["L2", "L3", "main"] == [level.name for level in hardware.memory]
    (remark,) = hardware.remarks
    assert remark.startswith("L1 was not measured: what it holds counts as read from the next level.")


def test_a_file_without_limits_says_what_lacks():
    with pytest.raises(BadInput, match=r"has no peak rate of cpu with 2 threads.*--hardware"):
        Hardware.measured(Limits(LINES[2:], CACHES), "here", 2)
    with pytest.raises(BadInput, match="has no bandwidth of main memory"):
        Hardware.measured(Limits(LINES[:2], CACHES), "here", 2)


def test_a_device_has_its_peak_and_its_memory():
    size, rate = 2**30, 2e12
    lines = [
        limit("compute", precision="f16", device="cuda", flop_per_s=1e14, library="x") | {"threads": 1},
        limit("memory", device="cuda", kind="copy", bytes=size, bytes_per_s=rate, case="copy") | {"threads": 1},
    ]
    device = Hardware.measured(Limits([*LINES, *lines]), "a card", 1, "cuda")

    assert {"f16": 1e14} == device.peak
    assert (MemoryLevel("main", None, rate),) == device.memory
    assert (None, "cuda") == (device.overhead.call_s, device.device)


@given(strategies.text(), strategies.integers(0, len(TEXT)))
def test_no_text_is_a_file_of_hardware_by_chance(text, place):
    """Damaged files are refused in a sentence, and never with another error."""
    for damaged in (text, TEXT[:place] + text + TEXT[place:]):
        with contextlib.suppress(BadInput):
            Hardware.parse(damaged)


# ---- knobs


def test_a_precision_without_a_peak_has_that_of_f32():
    assert 1.5e13 == HARDWARE.peak_of("f16")
    assert 3e13 == HARDWARE.replace("peak.f16*2").peak_of("f16")


def test_knobs_change_one_value_or_all():
    twice = HARDWARE.replace("memory.bytes_per_s*2", "peak.bf16*1.5", "overhead.call_s/2", "units=100")

    assert (9e11 * 2, 2e12) == (twice.main.bytes_per_s, twice.memory[0].bytes_per_s)
    assert (1.5e13, 1.25e14 * 1.5) == (twice.peak["f32"], twice.peak["bf16"])
    assert (2.5e-6, 100, "hypothetical") == (twice.overhead.call_s, twice.units, twice.origin)
    every = HARDWARE.replace("memory.all.bytes_per_s*2", "peak*2")
    assert [4e12, 1.8e12] == [level.bytes_per_s for level in every.memory]
    assert [3e13, 2.5e14] == list(every.peak.values())
    assert 1.2e7 == HARDWARE.replace("memory.L2.bytes*2").memory[0].bytes
    assert HARDWARE.replace() is HARDWARE


@pytest.mark.parametrize(
    ("knob", "sentence"),
    [
        ("memory.L3.bytes*2", "has no value 'memory.L3.bytes'; it has .*memory.L2.bytes.*did you mean"),
        ("memory.bytes*2", "has no memory.HBM.bytes, so there is nothing to compare"),
        ("overhead.operator_s/2", "has no overhead.operator_s, so .*--write-hardware"),
        ("peak.f64*2", "has no value 'peak.f64'"),
        ("clock*2", "has no value 'clock'"),
        ("peak.bf16=1e30", "wanted a value from"),
        ("peak.bf16", "wanted a knob such as"),
        ("peak.bf16*-2", "wanted a knob such as"),
        ("peak.bf16*nan", "wanted a knob such as"),
        ("peak.bf16*0", "must be from 1e-9 to 1e9"),
        ("peak..bf16*2", "wanted a knob such as"),
        ("peak.bf16*2 where n<=8", "only times have conditions"),
    ],
)
def test_knobs_that_cannot_be_turned(knob, sentence):
    with pytest.raises(BadInput, match=sentence):
        HARDWARE.replace(knob)


@pytest.mark.parametrize("knobs", [("peak.f32*2", "peak.f16*2"), ("peak*2", "peak.f16*3"), ("peak.bf16/2", "peak*2")])
def test_the_order_of_knobs_of_peaks_does_not_count(knobs):
    one, other = HARDWARE.replace(*knobs), HARDWARE.replace(*reversed(knobs))

    assert dict(one.peak) == dict(other.peak)


def test_a_peak_that_is_that_of_f32_is_scaled_from_its_value_before_the_change():
    assert 3e13 == HARDWARE.replace("peak.f32*2", "peak.f16*2").peak_of("f16")


@pytest.mark.parametrize("knob", ["units=2", "overhead.operator_s=1e-6", "memory.HBM.bytes=1e9"])
def test_a_value_that_is_unknown_before_a_change_cannot_be_compared(knob):
    with pytest.raises(BadInput, match="so there is nothing to compare a change with"):
        replace(HARDWARE, units=None).changed(Knob.parse(knob))


def test_a_peak_that_is_that_of_f32_may_be_set():
    assert 1e14 == HARDWARE.changed(Knob.parse("peak.f16=1e14")).peak_of("f16")


def test_every_named_knob_can_be_turned():
    for name in (*HARDWARE.knobs, *MEASURED.knobs):
        hardware = HARDWARE if name in HARDWARE.knobs else MEASURED
        assert hardware.replace(f"{name}*2") != hardware


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("units = 80", "units = 0x" + "f" * 4000, "has a whole number of 16000 bits; at most 64 are read"),
        ("f32 = 1.5e13", "f32 = 0x" + "f" * 4000, "has a whole number of 16000 bits"),
        ("bytes = 6_000_000", "bytes = " + "9" * 5000, "a number has thousands of digits"),
        ("call_s = 5e-6", "call_s" + ".a" * 20_000 + " = 1", "has a line with 20000 dots outside of texts"),
        ("tiles = [[128, 128], [64, 32]]", "tiles = " + "[" * 5000, "nested too deeply"),
        ('name = "an accelerator"', "name = 0x" + "f" * 4000, "has a whole number of 16000 bits"),
    ],
)
def test_numbers_and_names_that_take_long_are_refused(old, new, sentence):
    with pytest.raises(BadInput) as found:
        Hardware.parse(TEXT.replace(old, new))

    assert sentence in str(found.value)
    assert len(str(found.value)) < 300
