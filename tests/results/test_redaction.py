"""Private texts of a file have others in a copy, which has the same numbers; what cannot be replaced is named."""

import pytest

from deepbench.results.file import lines_of, read_results
from deepbench.results.redaction import is_telling, redacted
from deepbench.results.summary import summarize
from tests.help import samples

TITLE, WORD = "Big Box", "big-box"
TOKEN = "ghp_" + "a1B2" * 9


def copy_of(tmp_path, *texts, host="node17", homes=(), **fields):
    """The copy of a file with these texts as the reasons of records; what was replaced, and what is left."""
    records = [samples.measured(round_number=n) for n, _ in enumerate(texts, 1)]
    for record, text in zip(records, texts, strict=True):
        record |= {"status": "unchecked", "reason": text, "check": {"before": None, "after": None}}
    header = samples.header([r["case"] for r in records[:1]])
    header["machine"]["host"] = host
    header |= fields
    return redacted(read_results(samples.write(tmp_path / "r.jsonl", records, header)), TITLE, WORD, homes)


def text_of(tmp_path, text, **options):
    return copy_of(tmp_path, text, **options).file.records[0]["reason"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("cannot open /home/jdoe/venv/lib/libdnnl.so", "cannot open ~/venv/lib/libdnnl.so"),
        ("cannot open /Users/jdoe/lib.so of jdoe", "cannot open ~/lib.so of (user)"),
        ("/export/home/jdoe/a, /home/jdoe", "~/a, ~"),
        (r"C:\Users\jdoe\lib.dll", r"~\lib.dll"),
        ("/root/.cache/x", "~/.cache/x"),
        ("/scratch/projects/jdoe/lib/libmkl_rt.so.3 is missing", "(folder)/libmkl_rt.so.3 is missing"),
        ("/tmp/pip-abc/lib.so", "(folder)/lib.so"),
        ("node17: timeout; node17.corp.example.com too", "Big Box: timeout; Big Box too"),
        ("mail jane.doe+x@mail.example.com now", "mail (e-mail) now"),
        ("connect to 10.3.4.5:29500 failed", "connect to (address):29500 failed"),
        ("connect to fe80::1ff:fe23:4567:890a%eth0 failed", "connect to (address) failed"),
        ("device 00:1A:2b:3c:4d:5e is down", "device (address) is down"),
        ("port ec0d:9a03:0078:9910", "port (address)"),
        ("GPU-3f2504e0-4f89-11d3-9a0c-0305e82c3301 is lost", "(serial) is lost"),
        (f"refused {TOKEN}.", "refused (hidden)."),
        ("AKIA0123456789ABCDEF", "(hidden)"),
        ("key sk-proj-abc123def456ghi789", "key (hidden)"),
        ("https://me:hunter2@example.org/x", "https://(hidden)@example.org/x"),
        ("password=hunter2x and api_key: abcdef12", "password=(hidden) and api_key: (hidden)"),
        ("word q7R2m9Xv4Kz8Lp3Nw6Jt1Hs5Gd0Fb2Yc", "word (hidden)"),
        ("id 9f86d081884c7d659a2feaa0c55ad015", "id (hidden)"),
        ("-----BEGIN OPENSSH PRIVATE KEY----- abc", "(hidden)"),
    ],
)
def test_a_private_text_is_replaced(tmp_path, text, wanted):
    assert wanted == text_of(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        "/usr/lib/x86_64-linux-gnu/libopenblas.so.0 and /opt/intel/oneapi/mkl/lib/libmkl_rt.so.2",
        "listens at 127.0.0.1:4000 and ::1",
        "cuBLAS 13.2 at 12:34:56, 2026-11-22T23:38:41+00:00",
        "ampere_sgemm_128x64_nn of std::vector and c10::Half, jit:avx512_core_vnni",
        "_ZN4dnnl4impl3cpu3x6430brgemm1x1convolutionfwdtILNS1E",
        "task-list sk-learn and/or 3/4 of 1.2.3",
        "this build of OpenBLAS has no sbgemm; export OPENBLAS_CORETYPE=Haswell",
        "the user of the node at /home alone",
    ],
)
def test_a_text_that_tells_nobody_apart_stays(tmp_path, text):
    assert text == text_of(tmp_path, text)


def test_versions_and_hashes_of_builds_stay(tmp_path):
    record = samples.measured()
    build = "40112196287e8866a7259df35f817229454d0c96"
    record["library"] = {"name": "cuBLAS", "version": "12.8.3.14", "path": "/home/jdoe/lib.so", "build": build}
    found = redacted(read_results(samples.write(tmp_path / "r.jsonl", [record])), TITLE, WORD).file.records[0]

    assert ("12.8.3.14", build, "~/lib.so") == tuple(found["library"][name] for name in ("version", "build", "path"))


def test_hosts_of_groups_have_words_that_the_format_allows(tmp_path):
    record = samples.measured(text="all_reduce n=8 ranks=2 forward f32 ring threads=1")
    record["group"] = {
        "launcher": "ssh",
        "hosts": {"node17": 1, "node18": 1},
        "oversubscribed": False,
        "interconnect": {"node18": {"numa_nodes": 1, "networks_mbit_per_s": {}, "infiniband": []}},
    }
    header = samples.header([record["case"]])
    header["machine"]["host"], header["plan"]["hosts"] = "node17", ["node17", "node18"]
    path = samples.write(tmp_path / "r.jsonl", [record], header)
    found = redacted(read_results(path), TITLE, WORD)
    (tmp_path / "copy.jsonl").write_bytes(b"".join(lines_of(found.file)))
    copy = read_results(tmp_path / "copy.jsonl")

    assert (TITLE, ["big-box", "big-box-2"]) == (copy.header["machine"]["host"], copy.header["plan"]["hosts"])
    assert {"big-box": 1, "big-box-2": 1} == copy.records[0]["group"]["hosts"]
    assert ["big-box-2"] == list(copy.records[0]["group"]["interconnect"])
    assert b"node1" not in (tmp_path / "copy.jsonl").read_bytes()
    assert () == redacted(copy, TITLE, WORD).replaced


def test_the_command_and_known_homes_are_cleaned_and_the_input_stays(tmp_path):
    command = ["run", "--ab", "mkl=/srv/jane/lib.so,x", "-o", "/home/jdoe/x.jsonl"]
    found = copy_of(tmp_path, "see jane", command=command, homes=["/srv/jane"])

    assert ["run", "--ab", "mkl=~/lib.so,x", "-o", "~/x.jsonl"] == found.file.header["command"]
    assert "see (user)" == found.file.records[0]["reason"]
    assert "see jane" == read_results(tmp_path / "r.jsonl").records[0]["reason"]
    assert ["home folder → ~ (2 times)", "host name → Big Box (1 time)", "user name → (user) (1 time)"] == [
        r.text for r in found.replaced
    ]


def test_the_copy_has_the_same_numbers_and_nothing_is_found_in_it(tmp_path):
    found = copy_of(tmp_path, "/home/jdoe/x", "10.3.4.5", TOKEN, "jane@example.org", "node17")
    (tmp_path / "copy.jsonl").write_bytes(b"".join(lines_of(found.file)))
    copy, given = read_results(tmp_path / "copy.jsonl"), read_results(tmp_path / "r.jsonl")

    assert summarize(given.records)[0].estimate == summarize(copy.records)[0].estimate
    assert ((), ()) == (redacted(copy, TITLE, WORD).replaced, redacted(copy, TITLE, WORD).left)


def test_what_decides_the_meaning_of_a_line_is_refused_with_its_place_and_not_shown(tmp_path):
    record = samples.measured()
    record["op"] = record["backend"] = TOKEN
    record["case"] = record["case"].replace("gemm", TOKEN).replace("mkl", TOKEN)
    record["notes"] = {"/home/jdoe": 1}
    found = redacted(read_results(samples.write(tmp_path / "r.jsonl", [record])), TITLE, WORD)

    assert [
        "record 1, field case: token",
        "record 1, field op: token",
        "record 1, field backend: token",
        "record 1, field notes.a name: home folder",
    ] == list(found.left)
    assert TOKEN not in repr(found.left)


@pytest.mark.parametrize("name", ["vm", "localhost", "runner", "ubuntu", "12345", "node"])
def test_a_common_name_tells_nobody_apart(tmp_path, name):
    assert not is_telling(name)
    assert f"the {name} is busy" == text_of(tmp_path, f"the {name} is busy", host=name)


@pytest.mark.parametrize("piece", ["/a", "a@", "aB3", "1.", "::", "a:", "/home/", "0a", "eyJ", "password=", "-"])
def test_a_long_text_is_searched_in_time(tmp_path, piece):
    import time

    begin = time.process_time()
    text_of(tmp_path, piece * (100_000 // len(piece)))

    assert time.process_time() - begin < 4


def test_a_text_that_is_too_long_is_refused_and_many_names_are_found_in_time(tmp_path):
    import time

    long = copy_of(tmp_path, "x" * 100_001)
    assert ["record 1, field reason: a text of 100,001 characters, which is too long to be searched"] == [*long.left]

    (tmp_path / "r.jsonl").unlink()
    begin = time.process_time()
    paths = [" ".join(f"/home/person{n}/x" for n in range(i * 1000, i * 1000 + 1000)) for i in range(20)]
    found = copy_of(tmp_path, *paths, "person19999")
    assert "(user)" == found.file.records[-1]["reason"]
    assert time.process_time() - begin < 4
