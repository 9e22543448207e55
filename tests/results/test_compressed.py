"""Result files that gzip compressed are read like others; damaged and huge ones are refused in one sentence."""

import gzip
from pathlib import Path

import pytest

from deepbench.core.errors import BadInput
from deepbench.core.files import require_no_results
from deepbench.reporting import site
from deepbench.results import file
from deepbench.results.file import Store, read_results
from tests.conftest import ROOT

PLAIN = ROOT / "tests" / "data" / "quick-epyc-2cores.jsonl"


@pytest.fixture
def compressed(tmp_path):
    path = tmp_path / "mine.jsonl.gz"
    path.write_bytes(gzip.compress(PLAIN.read_bytes()))
    return path


def test_a_compressed_file_has_the_same_content(compressed):
    plain, same = read_results(PLAIN), read_results(compressed)

    assert plain.header == same.header
    assert plain.records == same.records
    assert not same.truncated


@pytest.mark.parametrize("keep", [0.5, 0.999])
def test_a_file_that_was_cut_off_is_refused(compressed, keep):
    content = compressed.read_bytes()
    compressed.write_bytes(content[: int(keep * len(content))])

    with pytest.raises(BadInput, match="damaged or cut off"):
        read_results(compressed)


def test_damaged_data_are_refused(compressed):
    content = bytearray(compressed.read_bytes())
    content[2000:2100] = bytes(100)
    compressed.write_bytes(content)

    with pytest.raises(BadInput, match=r"mine\.jsonl\.gz"):
        read_results(compressed)


@pytest.mark.parametrize("line", [b"", b"\n"])
def test_a_small_file_that_decompresses_to_a_huge_one_is_refused(monkeypatch, compressed, line):
    monkeypatch.setattr(file, "LARGEST_GROWN_BYTES", 2 * PLAIN.stat().st_size)
    monkeypatch.setattr(file, "MOST_GROWTH", 8)
    assert read_results(compressed).records
    bomb = PLAIN.read_bytes() + (b" " * 1023 + line) * (1 + PLAIN.stat().st_size // 1024) * 2
    compressed.write_bytes(gzip.compress(bomb))

    with pytest.raises(BadInput, match=r"has more than [0-9]+ bytes once it is decompressed, from [0-9]+; expected"):
        read_results(compressed, skip_damaged=True)


def test_results_are_neither_written_nor_appended_compressed(compressed, tmp_path):
    with pytest.raises(BadInput, match=r"leave out \.gz"):
        Store.create(tmp_path / "new.jsonl.gz", {})
    with pytest.raises(BadInput, match="gunzip "):
        Store.reopen(compressed)


def test_no_output_replaces_a_compressed_result_file(compressed):
    with pytest.raises(BadInput, match="would be replaced"):
        require_no_results(compressed)


def test_a_site_reads_compressed_files(compressed, tmp_path):
    (tmp_path / "mine.jsonl").write_bytes(PLAIN.read_bytes())
    built = site.build(tmp_path, tmp_path / "public", with_published=False)

    assert 2 == built.machines
    assert [] == built.refused
    assert 2 == len([*Path(tmp_path, "public", "machines").iterdir()])
