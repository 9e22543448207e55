"""`deepbench submit`: what it prints and writes, and what it finds in a folder that somebody sent."""

import gzip
import hashlib
import json
import shutil

import pytest

from deepbench.api.submitting import submit
from deepbench.results import published
from deepbench.results.file import read_results
from deepbench.results.summary import summarize
from tests.conftest import ROOT
from tests.help.command import run_here
from tests.help.submissions import ROUND, SUITE, Parts

HOST, HOME, USER = "lab-pc-17", "/home/jdoe", "jdoe"
TITLE, SLUG = "Jane's *fast* <b>box</b>", "jane-s-fast-b-box-b"
TEXTS = ROOT / "tests" / "data" / "imports"


def private_parts():
    parts = Parts()
    parts.machine["host"] = HOST
    parts.header["command"] = ["run", SUITE, "--ab", f"mkl={HOME}/lib.so", "-o", f"{HOME}/mine.jsonl"]
    for record in parts.records:
        record["library"] = {**record["library"], "path": f"{HOME}/venv/lib/lib{record['backend']}.so"}
    parts.fail(0, "crashed", f"cannot reach {HOST}.example.org at 10.1.2.3 as {USER}")
    return parts


@pytest.fixture(scope="module")
def sent(tmp_path_factory):
    """The folder `results` with one submission, and the file that it was made of."""
    folder = tmp_path_factory.mktemp("sent")
    path = private_parts().write(folder / "mine.jsonl")
    before = path.read_bytes()
    found = submit(path, folder / "results", machine=TITLE)
    assert before == path.read_bytes()
    return folder, path, found


@pytest.fixture
def folder(sent, tmp_path):
    """A copy of the submitted folder, free to be changed."""
    place = tmp_path / "results" / ROUND / SLUG
    shutil.copytree(sent[0] / "results" / ROUND / SLUG, place)
    return place


def form_of(folder):
    return json.loads((folder / "submission.json").read_text())


def change_form(folder, change):
    form = form_of(folder)
    change(form)
    (folder / "submission.json").write_text(json.dumps(form))


def checked(folder):
    return submit(folder, check=True).lacks


# ---- what is written


def test_the_folder_has_the_data_a_page_and_a_form(sent):
    folder, _, found = sent
    place = folder / "results" / ROUND / SLUG

    assert (True, place, {SUITE: ["f32"]}) == (found.passes, found.folder, found.suites)
    assert ["README.md", f"{SLUG}.jsonl.gz", "submission.json"] == sorted(p.name for p in place.iterdir())
    assert [] == checked(place)


def test_the_copy_has_no_private_text_and_the_same_numbers(sent):
    folder, path, found = sent
    data = folder / "results" / ROUND / SLUG / f"{SLUG}.jsonl.gz"
    content = gzip.decompress(data.read_bytes()).decode()
    given, copy = (read_results(p) for p in (path, data))

    assert [] == [word for word in (HOST, HOME, USER, "10.1.2.3") if word in content]
    assert TITLE == copy.header["machine"]["host"]
    assert f"cannot reach {TITLE} at (address) as (user)" in [r["reason"] for r in copy.records]
    assert [s.estimate for s in summarize(given.records)] == [s.estimate for s in summarize(copy.records)]
    assert "home folder → ~ (" in " ".join(found.replaced)


def test_the_page_says_what_was_measured_and_escapes_everything(sent):
    folder, _, _ = sent
    text = (folder / "results" / ROUND / SLUG / "README.md").read_text()

    assert text.startswith("# Jane's \\*fast\\* \\<b\\>box\\</b\\>\n")
    assert f"| {SUITE} | f32 | 40 of 41 |" in text
    assert "| oneDNN | 3.2.0 |" in text
    assert "95 % intervals: half of them within" in text
    assert "    deepbench run deepbench/device --ab mkl=~/lib.so" in text.replace("'", "")
    assert [] == [word for word in (HOST, HOME, USER, "<b>") if word in text]
    assert all(len(line) <= 2000 for line in text.splitlines())


def test_the_form_is_for_programs(sent):
    folder, _, found = sent
    place = folder / "results" / ROUND / SLUG
    form = form_of(place)
    data = (place / form["data"]["file"]).read_bytes()

    assert ("deepbench-submission/1", ROUND, "measured", TITLE) == tuple(
        form[name] for name in ("schema", "round", "mark", "title")
    )
    assert hashlib.sha256(data).hexdigest() == form["data"]["sha256"]
    assert hashlib.sha256((place / "README.md").read_bytes()).hexdigest() == form["readme_sha256"]
    assert {"ok": 43, "crashed": 1} == form["facts"]["statuses"]
    assert len(found.replaced) == len(form["replaced"])


def test_the_command_prints_the_verdict_and_what_it_wrote(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Parts().write(tmp_path / "mine.jsonl.gz")
    done = run_here(["submit", "mine.jsonl.gz", "--machine", "Big Box"])

    assert (0, "") == (done.code, done.errors)
    assert [
        "mine.jsonl.gz: passes the round 2026 as measured",
        f"{SUITE}: f32",
        "replaced: host name → Big Box (1 time)",
        "wrote results/2026/big-box; look at its README.md, then send it as a pull request",
    ] == done.output.splitlines()

    again = run_here(["submit", "mine.jsonl.gz", "--machine", "Big Box"])
    assert 64 == again.code
    assert "results/2026/big-box already exists; --replace writes in its place" in again.errors
    assert 0 == run_here(["submit", "mine.jsonl.gz", "--machine", "Big Box", "--replace"]).code
    assert 0 == run_here(["submit", "--check", "results/2026/big-box", "mine.jsonl.gz"]).code


def test_the_command_prints_what_is_missing_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parts = Parts()
    parts.machine["load_1min"] = 1.9
    parts.write(tmp_path / "mine.jsonl")
    done = run_here(["submit", "mine.jsonl"])

    assert (1, ["mine.jsonl"]) == (done.code, [p.name for p in tmp_path.iterdir()])
    assert [
        "mine.jsonl: does not pass the round 2026 as measured",
        "- wanted at most 0.5 waiting programs per core when the run began, found 0.95; stop other programs, then "
        f"measure again: deepbench run {SUITE} -o new.jsonl",
    ] == done.output.splitlines()


def test_the_rounds_are_printed_for_people_and_for_programs():
    done = run_here(["submit", "--rounds"])
    values = json.loads(run_here(["submit", "--rounds", "--json"]).output)

    assert 0 == done.code
    assert "Round 2026: measured results, from 2026-01-01 to 2026-12-31" in done.output
    assert ["2026", "published"] == [value["name"] for value in values]
    assert {"name": SUITE, "required": True} == {n: values[0]["suites"][0][n] for n in ("name", "required")}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "name a result file, such as: deepbench submit mine.jsonl"),
        (["no.jsonl"], "no.jsonl does not exist; expected a result file that `deepbench run` wrote"),
        (["{quick}"], "has no suite of a round (deepbench/device, deepbench/server"),
        (["{quick}", "--round", "1999"], "there is no round '1999'; there are 2026, published"),
        (["{quick}", "{quick}", "--machine", "x"], "--machine is for one file"),
        (["{quick}", "--json"], "--json is for --rounds"),
        (["{folder}"], "is a folder; check it with --check"),
        (["--check", "{folder}"], "has no submission.json; wanted a folder that deepbench submit wrote"),
        (["{good}", "--machine", "…"], "has no letter from a to z and no digit; choose a title: --machine"),
        (["{good}", "--machine", "a\nb"], "--machine must be one line of at most 80 printable characters"),
        (["{good}", "--machine", "\x1b[31mred"], "--machine must be one line of at most 80 printable characters"),
        (["{good}", "--machine", "x" * 81], "--machine must be one line of at most 80 printable characters"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path, words, sentence):
    good = Parts().write(tmp_path / "good.jsonl") if "{good}" in words else None
    places = {"{quick}": ROOT / "tests" / "data" / "quick-epyc-2cores.jsonl", "{folder}": tmp_path, "{good}": good}
    done = run_here(["submit", "-o", str(tmp_path / "out"), *(str(places.get(word, word)) for word in words)])

    assert (64, "") == (done.code, done.output)
    assert sentence in done.errors
    assert 1 == len(done.errors.splitlines())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("mode", "noun"),
    [("training", "trained applications"), ("steps", "kernels of a network and its step")],
)
def test_files_of_other_kinds_are_refused(tmp_path, mode, noun):
    parts = Parts()
    parts.plan["mode"] = mode
    done = run_here(["submit", str(parts.write(tmp_path / "other.jsonl"))])

    assert 64 == done.code
    assert (
        f"other.jsonl has {noun}; a submission takes files of kernels: those of deepbench run, and of deepbench import "
        "of the original DeepBench"
    ) in done.errors


def test_files_of_fleets_are_refused(tmp_path):
    (tmp_path / "fleet.jsonl").write_text('{"schema": "deepbench-fleet/1", "expected": ["a"], "command": []}\n')
    done = run_here(["submit", str(tmp_path / "fleet.jsonl")])

    assert 64 == done.code
    assert "fleet.jsonl has results of many hosts; a submission takes files of kernels" in done.errors


# ---- published results


SMALL_MACHINES = ("iPhone 6", "iPhone 7", "Raspberry Pi 3")


# Files of GPUs have a thousand cases.
@pytest.mark.costly
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in SMALL_MACHINES else pytest.mark.long) for n in published.machines()]
)
def test_a_machine_of_the_original_passes_as_published(name):
    found = submit(published.path_of(name), check=True)

    assert ("published", "published", []) == (found.round, found.mark, found.lacks)


def test_small_machines_of_the_original_have_the_same_form(tmp_path):
    small = [submit(published.path_of(name), tmp_path).folder for name in SMALL_MACHINES]
    forms = [form_of(folder) for folder in small]

    assert len(published.machines()) >= 11
    assert {("intervals", "what disturbed the times", "limits of the machine", "whether answers are right")} == {
        tuple(form["facts"]["unknown"]) for form in forms
    }
    assert {None} == {form["numbers"]["half_interval_median"] for form in forms}
    assert [[]] * 3 == [checked(folder) for folder in small]


def test_output_of_the_original_passes_once_machine_and_library_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = str(TEXTS / "text_nvidia_gemm_train_float.txt")
    assert 0 == run_here(["import", text, "-o", "bare.jsonl"]).code
    bare = submit("bare.jsonl", check=True)
    words = ["--machine", "NVIDIA M40", "--library", "cuBLAS 7.5"]
    assert 0 == run_here(["import", text, "-o", "named.jsonl", *words]).code
    named = submit("named.jsonl")

    assert [
        "wanted the name of the machine, found none; import the results again with --machine: deepbench import TEXT "
        "--machine NAME",
        "wanted the library and its version, found an unknown library; import the results again with --library: "
        "deepbench import TEXT --library 'cuDNN 7.6'",
    ] == list(bare.lacks)
    assert ("published", [], "nvidia-m40") == (named.mark, named.lacks, named.folder.name)
    assert "Unknown: intervals, what disturbed the times" in (named.folder / "README.md").read_text()


# ---- what is checked again


def other_data(folder):
    """Data that were written anew, with a form that fits their checksum."""
    path = folder / f"{SLUG}.jsonl.gz"
    lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    path.write_bytes(gzip.compress(b"".join(line for line in lines if b'"round":3,' not in line), mtime=0))
    content = path.read_bytes()
    digest = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    change_form(folder, lambda form: form["data"].update(digest))


def other_page(folder):
    """A page that somebody praised, with a form that fits its checksum."""
    page = folder / "README.md"
    page.write_text(page.read_text() + "The fastest of all.\n")
    digest = hashlib.sha256(page.read_bytes()).hexdigest()
    change_form(folder, lambda form: form.update(readme_sha256=digest))


def private_data(folder):
    """The file as it was measured, with the name of its host."""
    private_parts().write(folder / f"{SLUG}.jsonl.gz")


CHANGES = {
    "other data": (other_data, "wanted at least 3 processes for each time, found 32 with fewer:"),
    "data that do not fit the form": (other_data, "wanted a submission.json that fits the data, found other facts"),
    "another page": (other_page, "wanted a README.md that fits the data, found another text; write the folder again"),
    "a page by hand": (
        lambda folder: (folder / "README.md").write_text("Buy it.\n"),
        "wanted README.md with the SHA-256 ",
    ),
    "private data": (private_data, "wanted a file without private texts, found a home folder; write the folder again"),
    "a faster form": (
        lambda folder: change_form(folder, lambda form: form["numbers"].update(half_interval_median=0.001)),
        "wanted a submission.json that fits the data, found other numbers; write",
    ),
    "another mark": (
        lambda folder: change_form(folder, lambda form: form.update(mark="published")),
        "wanted a submission.json that fits the data, found other marks; write",
    ),
    "another processor": (
        lambda folder: change_form(folder, lambda form: form["facts"]["machine"].update(cpu="Better CPU")),
        "wanted a submission.json that fits the data, found other facts; write",
    ),
    "a file more": (
        lambda folder: (folder / "run.sh").touch(),
        f"wanted the files README.md, {SLUG}.jsonl.gz, submission.json, found also run.sh; send what deepbench submit",
    ),
    "a file less": (
        lambda folder: (folder / "README.md").unlink(),
        f"wanted the files README.md, {SLUG}.jsonl.gz, submission.json, found only {SLUG}.jsonl.gz, submission.json",
    ),
    "a link": (
        lambda folder: ((folder / "README.md").unlink(), (folder / "README.md").symlink_to("/etc/passwd")),
        "found also README.md; send what deepbench submit wrote",
    ),
    "another place": (
        lambda folder: folder.rename(folder.parent / "other"),
        f"wanted the folder 2026/{SLUG}, as round and machine say, found 2026/other; move it: git mv",
    ),
    "another title": (
        lambda folder: change_form(folder, lambda form: form.update(title=TITLE.upper())),
        "wanted a file without private texts, found a host name; write the folder again",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_folder_does_not_pass(folder, name):
    change, sentence = CHANGES[name]
    change(folder)
    place = folder if folder.exists() else folder.parent / "other"

    assert any(sentence in text for text in checked(place)), checked(place)


def test_a_folder_of_an_earlier_version_is_judged_by_its_facts(folder):
    def change(form):
        form["tool"] = "deepbench 0.0.1"
        form["numbers"] = {"times": 1}

    change_form(folder, change)

    assert [] == checked(folder)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is not JSON"),
        (b"[1]", "has the schema None, but this version reads deepbench-submission/1"),
        (b'{"schema": "deepbench-submission/2"}', "has the schema deepbench-submission/2"),
        (b'{"schema": "deepbench-submission/1"}', "lacks a field, or has one of another type"),
        (b"[" * 100_000, "is not JSON"),
        (b"{" + b'"a":' * 10, "is not JSON"),
    ],
)
def test_a_form_of_a_stranger_is_refused_in_one_sentence(folder, content, sentence):
    (folder / "submission.json").write_bytes(content)
    done = run_here(["submit", "--check", str(folder)])

    assert 64 == done.code
    assert sentence in done.errors
    assert 1 == len(done.errors.splitlines())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("title", "../../evil"),
        ("title", ["x"]),
        ("round", "../2026"),
        ("round", str(ROOT / "deepbench" / "suites" / "rounds" / "2026.toml")),
        ("data", {"file": "../../../etc/passwd", "bytes": 1, "sha256": "0"}),
        ("data", {"file": "/etc/passwd", "bytes": 1, "sha256": "0"}),
        ("data", 7),
        ("replaced", [{"what": 1, "by": 2, "times": 3}]),
        ("replaced", {"a": 1}),
        ("readme_sha256", None),
    ],
)
def test_no_field_of_a_form_leads_elsewhere(folder, field, value):
    change_form(folder, lambda form: form.update({field: value}))
    done = run_here(["submit", "--check", str(folder)])

    assert 64 == done.code
    assert 1 == len(done.errors.splitlines())


def test_a_form_that_is_a_link_is_not_read(folder, tmp_path):
    (folder / "submission.json").rename(tmp_path / "elsewhere.json")
    (folder / "submission.json").symlink_to(tmp_path / "elsewhere.json")
    done = run_here(["submit", "--check", str(folder)])

    assert 64 == done.code
    assert "has no submission.json" in done.errors


@pytest.mark.parametrize(("measured", "round_"), [(True, "published"), (False, ROUND)])
def test_a_round_of_the_other_mark_is_refused(tmp_path, measured, round_):
    path = Parts().write(tmp_path / "mine.jsonl") if measured else published.path_of("iPhone 6")
    wanted, found = ("published", "measured with deepbench run")
    if not measured:
        wanted, found = ("measured", "published by the original DeepBench")

    assert [f"wanted {wanted} results in the round {round_}, found results {found}; leave out --round"] == [
        text for text in submit(path, check=True, round=round_).lacks if "leave out --round" in text
    ]


def test_a_repository_may_have_a_round_of_its_own(tmp_path):
    text = (ROOT / "deepbench" / "suites" / "rounds" / "2026.toml").read_text()
    (tmp_path / "own.toml").write_text(text.replace('"2026"', '"lab"').replace("= 3", "= 4"))
    path = Parts().write(tmp_path / "mine.jsonl")

    assert "wanted at least 4 processes for each time, found" in submit(path, round=tmp_path / "own.toml").lacks[0]
    (tmp_path / "own.toml").write_text(text.replace('"2026"', '"lab"'))
    folder = submit(path, tmp_path, machine="Box", round=tmp_path / "own.toml").folder
    assert tmp_path / "lab" / "box" == folder
    assert [] == submit(folder, check=True, round=tmp_path / "own.toml").lacks


def test_a_ranking_of_files_from_several_rounds_has_a_warning(sent, folder, tmp_path):
    place = sent[0] / "results" / ROUND / SLUG / f"{SLUG}.jsonl.gz"
    other = folder.parent / "other.jsonl.gz"
    alone = run_here(["rank", str(place), str(shutil.copy(place, other))])
    change_form(folder, lambda form: form.update(round="2027\x1b[31m"))
    both = run_here(["rank", str(place), str(folder / f"{SLUG}.jsonl.gz")])

    assert "rounds" not in alone.errors
    assert "files of the rounds 2026 and 2027\N{REPLACEMENT CHARACTER}[31m: their rules differ" in both.errors


def test_a_site_is_built_of_submitted_folders(tmp_path):
    pytest.importorskip("jinja2", reason="a page needs Jinja2: pip install jinja2")
    submit(published.path_of("iPhone 6"), tmp_path / "results")
    done = run_here(["site", str(tmp_path / "results"), "-o", str(tmp_path / "public"), "--no-published"])
    (page,) = (tmp_path / "public" / "machines").iterdir()

    assert (0, "") == (done.code, done.errors)
    assert "<title>published/iphone-6</title>" in page.read_text()
