"""A file of others neither starts programs on hosts nor many at once, unless a person says so."""

import pytest

from deepbench.core.case import parse_case
from deepbench.measuring import sides, trust
from deepbench.measuring.trust import NotTrusted, ranks_of, require_hosts, require_ranks
from deepbench.results.file import ResultFile, read_results
from tests.help import samples

GROUP = "all_reduce n=64 ranks={} forward f32 gloo threads=1"


@pytest.fixture
def file(tmp_path):
    header = samples.header()
    header["plan"]["hosts"] = ["evil.invalid", "other.invalid"]
    return ResultFile(tmp_path / "a b.jsonl", header)


def test_hosts_come_from_the_user(file):
    with pytest.raises(NotTrusted, match=r"names hosts .*: evil.invalid other.invalid; name them .*--hostfile FILE"):
        require_hosts(file, [])
    with pytest.raises(NotTrusted, match=r"if you trust it, add --trust '.*a b\.jsonl'$"):
        require_hosts(file, [])
    require_hosts(file, ["evil.invalid"])
    file.header["plan"]["hosts"] = []
    require_hosts(file, [])


def test_ranks_are_no_more_than_cores_unless_the_user_has_started_them(file, monkeypatch):
    monkeypatch.setattr(trust.describe, "default_threads", lambda: 4)
    for ranks, hosts, started in ((4, [], 0), (8, ["a", "b"], 0), (9, [], 9)):
        require_ranks(file, ranks, hosts, started)
        with pytest.raises(NotTrusted, match=rf"starts {ranks + 1} processes at once, and .* cores for {ranks};"):
            require_ranks(file, ranks + 1, hosts, started)
    monkeypatch.setattr(trust.describe, "default_threads", lambda: 1)
    require_ranks(file, 2)  # the smallest group of all


def test_the_largest_group_counts():
    cases = [samples.TEXT.format(backend="mkl"), GROUP.format(2), GROUP.format(64)]

    assert 64 == ranks_of(map(parse_case, cases))
    assert 1 == ranks_of(map(parse_case, cases[:1]))


@pytest.mark.parametrize(
    ("ranks", "hosts", "words"), [(64, [], "starts 64 processes at once"), (2, ["h"], "names hosts")]
)
def test_the_gate_measures_no_group_of_a_file_again_that_nobody_trusts(tmp_path, monkeypatch, ranks, hosts, words):
    monkeypatch.setattr(sides, "require_same_machine", lambda *_: None)
    monkeypatch.setattr(sides, "remeasure", None)
    text = GROUP.format(ranks)
    header = samples.header([text])
    header["plan"]["hosts"] = hosts
    files = [read_results(samples.write(tmp_path / name, [], header)) for name in ("a.jsonl", "b.jsonl")]

    with pytest.raises(NotTrusted, match=words):
        sides.measure_again(*files, [text], trusted=False, on_load=print)
