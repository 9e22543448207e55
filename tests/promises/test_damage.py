"""Damaged lines: each has a checksum, so that no changed bit changes a number, and the others can still be read."""

import json
import random
import re

import pytest

from deepbench.core.errors import BadInput
from deepbench.core.json_lines import from_line, to_line, with_checksum, without_checksum
from deepbench.fleets import file as fleet
from deepbench.reporting import export
from deepbench.reporting.page import content
from deepbench.results import file as result_file
from deepbench.results.file import Store, damage_text, read_results
from deepbench.results.summary import summarize
from tests.conftest import ROOT
from tests.help import samples

REAL = ROOT / "tests" / "data" / "quick-epyc-2cores.jsonl"
TEXTS = [f"gemm m={m} n=3 k=4 a_t=0 b_t=0 forward f32 mkl threads=1" for m in (2, 3, 4)]
FLIPS = 400


def written(path, *lines, header=None):
    store = Store.create(path, samples.header(TEXTS) if header is None else header)
    for line in lines:
        store.append(line)
    store.close()
    return path


@pytest.fixture
def path(tmp_path):
    """A file of three cases, in lines 2, 3 and 4."""
    return written(tmp_path / "r.jsonl", *(samples.measured(text=text) for text in TEXTS))


def damage(path, *numbers):
    """Change one digit in each of these lines."""
    lines = path.read_bytes().splitlines(keepends=True)
    for number in numbers:
        lines[number - 1] = lines[number - 1].replace(b'"round":1', b'"round":3')
    path.write_bytes(b"".join(lines))


def test_every_line_ends_in_the_checksum_of_what_precedes_it(path):
    for line in path.read_bytes().splitlines():
        body, value = re.fullmatch(rb'(.*),"crc32":"([0-9a-f]{8})"\}', line).groups()
        assert with_checksum(body + b"}") == line
        assert from_line(line)["crc32"] == value.decode()
    assert "crc32" == read_results(path).header["checksums"]
    assert all("crc32" not in record for record in read_results(path).records)


@pytest.mark.parametrize("line", [b"", b"}", b"{}", b'{"a":1}'])
def test_a_line_without_a_checksum_stays_unless_one_is_required(line):
    assert line == without_checksum(line, False)
    with pytest.raises(ValueError, match="no checksum"):
        without_checksum(line, True)


def test_a_file_without_checksums_is_read_as_before_and_resumed_without_them(tmp_path):
    path = samples.write(tmp_path / "old.jsonl", [samples.measured(text=TEXTS[0])])

    again = Store.reopen(path)
    again.append_after(read_results(path))
    again.append(samples.measured(text=TEXTS[1]))
    again.close()

    assert TEXTS[:2] == [r["case"] for r in read_results(path).records]
    assert b"crc32" not in path.read_bytes()


def test_a_file_with_checksums_is_resumed_with_them(path):
    path.write_bytes(path.read_bytes() + b'{"case":"gemm m=1')
    again = Store.reopen(path)
    again.append_after(read_results(path))
    again.append(samples.measured(text=TEXTS[0], round_number=2))
    again.close()

    assert [1, 1, 1, 2] == [r["round"] for r in read_results(path).records]
    assert 5 == path.read_bytes().count(b',"crc32":"')


def test_one_damaged_line_is_named_with_its_reason(path):
    damage(path, 3)

    with pytest.raises(BadInput, match=r"r\.jsonl, line 3: its checksum does not match.*--skip-damaged"):
        read_results(path)


def test_all_damaged_lines_are_named_in_one_sentence(path):
    damage(path, 2, 4)

    with pytest.raises(
        BadInput, match=r"2 damaged lines \(2, 4\); line 2: its checksum does not match.*--skip-damaged"
    ):
        read_results(path)


def test_many_damaged_lines_are_counted():
    assert "12 damaged lines (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …)" == damage_text(range(1, 13))
    assert "1 damaged line (7)" == damage_text([7])


@pytest.mark.parametrize("bad", [b"\x7fELF\x00", b'{"case":"gemm', to_line({"case": 1}).encode()[:-1], b"[]", b"{}"])
def test_the_other_lines_are_read_on_request(tmp_path, bad):
    """Also in files without checksums: a line that is not JSON, or does not match the schema."""
    path = samples.write(tmp_path / "r.jsonl", [samples.measured(text=text) for text in TEXTS])
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([*lines[:2], bad, *lines[3:]]) + b"\n")

    with pytest.raises(BadInput, match="line 3: "):
        read_results(path)
    file = read_results(path, skip_damaged=True)

    assert [TEXTS[0], TEXTS[2]] == [r["case"] for r in file.records]
    assert [3] == file.damaged


def test_a_line_that_lost_its_checksum_is_damaged(path):
    lines = path.read_bytes().splitlines()
    lines[1] = without_checksum(lines[1], True)
    path.write_bytes(b"\n".join(lines) + b"\n")

    with pytest.raises(BadInput, match="line 2: no checksum"):
        read_results(path)
    assert [2] == read_results(path, skip_damaged=True).damaged


@pytest.mark.parametrize(
    "change", [(b'"A CPU"', b'"B CPU"'), (b'"checksums"', b'"checksumr"'), (b'"crc32":"', b'"crc33":"')]
)
def test_a_damaged_header_cannot_be_skipped(path, change):
    header, rest = path.read_bytes().split(b"\n", 1)
    at = header.rfind(change[0])
    path.write_bytes(header[:at] + change[1] + header[at + len(change[0]) :] + b"\n" + rest)

    with pytest.raises(BadInput, match="line 1: "):
        read_results(path, skip_damaged=True)


def test_a_page_and_the_json_export_say_what_was_left_out(path):
    damage(path, 3)
    file = read_results(path, skip_damaged=True)

    assert "Left out: 1 damaged line (3) of the file." == content.of_file(file, "mine")["sentences"][-1]
    assert [3] == json.loads(export.to_json(file, summarize(file.records, file.order)))["damaged_lines"]


def test_every_changed_bit_of_a_real_file_is_found_or_changes_nothing(tmp_path):
    """400 bits at random places, among them line ends, checksums and the header."""
    lines = [json.loads(line) for line in REAL.read_text().splitlines()]
    short = [line for line in lines[1:] if "case" not in line] + [line for line in lines if "case" in line][:10]
    path = written(tmp_path / "real.jsonl", *short, header=lines[0])
    whole, rng = path.read_bytes(), random.Random(17)

    def shown():
        file = read_results(path)
        return file, export.to_csv(file, summarize(file.records, file.order))

    _, expected = shown()
    ends = [i for i, byte in enumerate(whole) if byte == ord("\n")]
    places = [*ends, *(end - 1 - i for end in ends for i in range(20))]
    places += [rng.randrange(len(whole)) for _ in range(FLIPS)]
    detected = 0
    for place in places:
        changed = bytearray(whole)
        changed[place] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
        try:
            file, found = shown()
        except BadInput:
            detected += 1
            continue
        assert file.truncated or expected == found, f"byte {place}"

    assert detected > 0.9 * len(places)


def test_a_damaged_line_of_a_fleet_file_is_named_and_skipped_on_request(tmp_path):
    lines = [samples.header(), samples.measured()]
    runs = [fleet.HostRun("a", run, "ok", None, lines) for run in (1, 2)]
    header = {"schema": fleet.SCHEMA, "expected": ["a"]}
    path = written(tmp_path / "fleet.jsonl", *map(vars, runs), header=header)
    assert runs == fleet.read_fleet(path).runs
    path.write_bytes(path.read_bytes().replace(b'"run":1,', b'"run":3,'))

    with pytest.raises(BadInput, match=r"line 2: not a line of a fleet file \(its checksum does not match"):
        fleet.read_fleet(path)
    file = fleet.read_fleet(path, skip_damaged=True)

    assert [2] == [run.run for run in file.runs]
    assert [2] == file.damaged == file.results_of("a").damaged


def test_a_damaged_header_of_a_fleet_file_cannot_be_skipped(tmp_path):
    path = written(tmp_path / "fleet.jsonl", header={"schema": fleet.SCHEMA, "expected": ["a"]})
    path.write_bytes(path.read_bytes().replace(b'"checksums"', b'"checksumr"'))

    with pytest.raises(BadInput, match="line 1: not a line of a fleet file"):
        fleet.read_fleet(path, skip_damaged=True)


def test_lines_of_a_host_lose_their_checksums_after_they_were_compared(tmp_path):
    record = samples.measured()
    text = written(tmp_path / "r.jsonl", record, header=samples.header()).read_text()

    assert [samples.header(), record] == fleet.lines_of(text)
    with pytest.raises(ValueError, match="its checksum does not match"):
        fleet.lines_of(text.replace('"round":1', '"round":2'))


def test_a_file_of_damaged_lines_is_refused_soon_also_on_request(path, monkeypatch):
    monkeypatch.setattr(result_file, "MOST_DAMAGED", 3)
    path.write_bytes(path.read_bytes() + b"\n" * 3)
    assert [5, 6, 7] == read_results(path, skip_damaged=True).damaged
    path.write_bytes(path.read_bytes() + b"\n")

    for skip_damaged in (False, True):
        with pytest.raises(BadInput, match="has more than 3 damaged lines; expected a result file"):
            read_results(path, skip_damaged=skip_damaged)


def test_a_line_that_is_longer_than_any_is_not_read(path, monkeypatch):
    monkeypatch.setattr(result_file, "LONGEST_LINE_BYTES", max(map(len, path.read_bytes().splitlines(keepends=True))))
    assert 3 == len(read_results(path).records)
    path.write_bytes(path.read_bytes() + b"[" * result_file.LONGEST_LINE_BYTES + b"\n")

    with pytest.raises(BadInput, match=r"r\.jsonl, line 5: it has more than [0-9]+ bytes; expected a result file"):
        read_results(path, skip_damaged=True)
