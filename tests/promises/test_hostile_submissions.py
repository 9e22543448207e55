"""Files, titles, folders and rounds of strangers: a sentence, nothing written elsewhere, nothing half written."""

import gzip
import os
import re
import resource
import time

import pytest

from deepbench.api import submitting
from deepbench.core.errors import BadInput
from deepbench.plan.results_rounds import FOLDER, read_round
from deepbench.reporting import submission as words
from deepbench.results import published
from deepbench.results.file import read_results
from tests.help import samples
from tests.help.command import run_here
from tests.help.mutations import try_mutations
from tests.help.submissions import ROUND, Parts
from tests.promises.test_resources import run_limited

TOKEN = "ghp_" + "a1B2" * 9
HOSTILE = (
    "\x1b]0;owned\x07\x1b[31m <script>alert(1)</script> [x](javascript:y) ![i](http://e.example/p.png) | `a` @you #1"
)


def run_in(folder, *words):
    done = run_here(["submit", *map(str, words), "-o", str(folder / "out")])
    assert "Traceback" not in done.errors
    return done


def everything_in(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_a_bomb_is_refused_before_it_takes_memory(tmp_path):
    bomb = tmp_path / "bomb.jsonl.gz"
    with gzip.open(bomb, "wb", compresslevel=1) as file:
        for _ in range(100):
            file.write(b" " * 2**20)
    begin = time.process_time()
    done = run_in(tmp_path, bomb)

    assert 64 == done.code
    assert time.process_time() - begin < 4
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "line",
    [
        b'{"case":' + b"[" * 5000 + b"}\n",
        b'{"limit":1e999}\n',
        b'{"case":"x","case":"y"}\n',
        b"\xff\xfe\x00\n",
        b'{"case":"' + b"\\u001b[2J" * 1000 + b'"}\n',
        b"null\n",
    ],
)
def test_a_hostile_line_is_damage_and_no_traceback(tmp_path, line):
    path = Parts().write(tmp_path / "mine.jsonl")
    path.write_bytes(path.read_bytes() + line)
    done = run_in(tmp_path, path)

    assert 1 == done.code
    assert "wanted a file whose lines have their checksums, found 1 damaged line (" in done.output
    assert "\x1b" not in done.output
    assert not (tmp_path / "out").exists()


def test_no_text_of_a_file_is_obeyed_by_a_terminal_or_a_page(tmp_path):
    parts = Parts()
    parts.header["machine"] |= {"cpu": HOSTILE, "system": HOSTILE, "kernel": HOSTILE}
    parts.header["command"] = ["run", HOSTILE, "\n```\n# heading"]
    for record in parts.records:
        record["library"] = {**record["library"], "name": HOSTILE}
    for answer in parts.header["libraries"].values():
        answer["library"]["name"] = HOSTILE
    parts.fail(0, "crashed", HOSTILE)
    done = run_in(tmp_path, parts.write(tmp_path / "mine.jsonl"), "--machine", "Box")
    page = (tmp_path / "out" / ROUND / "box" / "README.md").read_text()
    outside_of_code = "\n".join(line for line in page.splitlines() if not line.startswith("    "))

    assert 0 == done.code, done.output
    assert "\x1b" not in done.output + page
    assert [] == re.findall(r"(?<!\\)(?:<script|\]\(java|!\[i|`a`|@you|#1|://e\.)", outside_of_code)
    assert "# heading" not in page.splitlines()
    assert all(line.count("|") - line.count("\\|") in (0, 3, 4) for line in outside_of_code.splitlines())


@pytest.mark.parametrize("title", ["../../evil", "/etc/passwd", "..", "a/../b", "-rf", "CON.", "a" * 80, "été ~ $(x)"])
def test_a_title_leads_nowhere_else(tmp_path, title):
    path = Parts().write(tmp_path / "mine.jsonl")
    done = run_in(tmp_path, path, "--machine", title)
    outside = [name for name in everything_in(tmp_path) if not name.startswith("out/2026/") and name != "mine.jsonl"]

    assert (64 if title == ".." else 0) == done.code, done.errors
    assert ([] if done.code else ["out", "out/2026"]) == outside


@pytest.mark.parametrize("place", ["out/2026", "out/2026/box"])
def test_a_link_at_the_place_of_the_folder_is_not_followed(tmp_path, place):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / place).parent.mkdir(parents=True)
    (tmp_path / place).symlink_to(tmp_path / "elsewhere")
    path = Parts().write(tmp_path / "mine.jsonl")

    for more in ([], ["--replace"]):
        done = run_in(tmp_path, path, "--machine", "Box", *more)
        assert 64 == done.code
        assert [] == everything_in(tmp_path / "elsewhere")


@pytest.mark.parametrize("name", ["notes.txt", ".git"])
def test_a_folder_with_anything_else_is_never_replaced(tmp_path, name):
    place = tmp_path / "out" / ROUND / "box"
    place.mkdir(parents=True)
    (place / name).write_text("mine")
    done = run_in(tmp_path, Parts().write(tmp_path / "mine.jsonl"), "--machine", "Box", "--replace")

    assert 64 == done.code
    assert "mine" == (place / name).read_text()
    assert [name] == everything_in(place)


@pytest.mark.programs
def test_a_full_disk_leaves_nothing(tmp_path):
    Parts().write(tmp_path / "mine.jsonl")
    words = ("submit", "mine.jsonl", "--machine", "Box")
    done = run_limited(tmp_path, words, (resource.RLIMIT_FSIZE, 3000))

    assert (64, ["mine.jsonl"]) == (done.returncode, everything_in(tmp_path))
    assert "cannot write results/2026/box: File too large; free some space" in done.stderr
    assert 1 == len(done.stderr.splitlines())


def test_an_error_while_replacing_keeps_the_earlier_folder(tmp_path, monkeypatch):
    path = Parts().write(tmp_path / "mine.jsonl")
    assert 0 == run_in(tmp_path, path, "--machine", "Box").code
    monkeypatch.setattr(submitting, "_json", lambda form: (_ for _ in ()).throw(OSError(28, os.strerror(28))))
    done = run_in(tmp_path, path, "--machine", "Box", "--replace")

    assert 64 == done.code
    assert "No space left on device; free some space" in done.errors
    assert ["2026", "2026/box", "2026/box/README.md", "2026/box/box.jsonl.gz", "2026/box/submission.json"] == (
        everything_in(tmp_path / "out")
    )
    assert [] == submitting.submit(tmp_path / "out" / ROUND / "box", check=True).lacks


def test_a_file_where_the_folder_should_be_is_a_sentence(tmp_path):
    (tmp_path / "out").write_text("x")
    done = run_in(tmp_path, Parts().write(tmp_path / "mine.jsonl"), "--machine", "Box")

    assert 64 == done.code
    assert "cannot write" in done.errors
    assert "x" == (tmp_path / "out").read_text()


def test_a_fifo_does_not_block(tmp_path):
    os.mkfifo(tmp_path / "pipe.jsonl")

    assert 64 == run_in(tmp_path, tmp_path / "pipe.jsonl").code


def test_a_secret_in_a_setting_is_refused_with_its_place_and_not_printed(tmp_path):
    parts = Parts()
    for record in parts.of(0):
        record["notes"] = {**record["notes"], TOKEN: 1}
    done = run_in(tmp_path, parts.write(tmp_path / "mine.jsonl"))

    assert 1 == done.code
    assert TOKEN not in done.output + done.errors
    assert re.search(r"found one in record \d+, field notes\.a name: token; measure again without it", done.output)


def test_many_secrets_are_a_few_sentences(tmp_path):
    parts = Parts()
    for record in parts.records:
        record["notes"] = {**record["notes"], TOKEN: 1}
    found = submitting.submit(parts.write(tmp_path / "mine.jsonl"), check=True).lacks

    assert 11 == len(found)
    assert found[-1].startswith("wanted no private text that cannot be replaced, found ")
    assert " more; " in found[-1]


def test_a_copy_with_other_numbers_is_not_written(tmp_path, monkeypatch):
    path = Parts().write(tmp_path / "mine.jsonl")
    real = submitting.lines_of
    monkeypatch.setattr(submitting, "lines_of", lambda file: list(real(file))[:-2])

    with pytest.raises(BadInput, match="the copy has other numbers, so nothing was written"):
        submitting.submit(path, tmp_path / "out", machine="Box")
    assert ["mine.jsonl"] == everything_in(tmp_path)


def test_a_host_that_is_called_like_a_word_of_a_case_changes_no_case(tmp_path):
    parts = Parts()
    parts.machine["host"] = "onednn"
    found = submitting.submit(parts.write(tmp_path / "mine.jsonl"), tmp_path / "out", machine="Box")
    copy = read_results(found.folder / "box.jsonl.gz")

    assert [p["case"] for p in parts.plan["cases"]] == copy.order


ROUNDS = {
    "no table": ("x", "is not valid TOML"),
    "a name more": ("{good}\nextra = 1", "in a suite of a round there is no 'extra'"),
    "no suites": (
        'name = "a"\nmark = "published"',
        "wanted year, first_day, schema, oldest_tool, suites in a round, found nothing; add it",
    ),
    "a path as the name": ("{../x}", "name must have small letters, digits and dashes"),
    "a file as a suite": ("{/etc/passwd.csv}", "is no suite of this version"),
    "many dots": ("a." * 100 + "b = 1", "has a line with"),
}


@pytest.mark.parametrize("name", ROUNDS)
def test_a_round_of_a_stranger_is_one_sentence(tmp_path, name):
    text, sentence = ROUNDS[name]
    good = (
        'name = "NAME"\nyear = 2026\nmark = "published"\nfirst_day = 2026-01-01\nschema = "deepbench/1"\n'
        'oldest_tool = "0.1.0"\n[[suites]]\nname = "SUITE"\nrequired = false'
    )
    names = {"{../x}": ("../x", "quick"), "{/etc/passwd.csv}": ("a", "/etc/passwd.csv")}
    chosen, suite = names.get(text, ("a", "quick"))
    filled = good.replace("NAME", chosen).replace("SUITE", suite)
    (tmp_path / "r.toml").write_text(filled if text in names else text.replace("{good}", filled))
    done = run_in(tmp_path, Parts().write(tmp_path / "mine.jsonl"), "--round", tmp_path / "r.toml")

    assert 64 == done.code
    assert sentence in done.errors
    assert 1 == len(done.errors.splitlines())


@pytest.fixture
def small(tmp_path):
    """A submitted folder whose data are small."""
    return submitting.submit(published.path_of("iPhone 6"), tmp_path / "small").folder


def check_form(folder):
    def read(content):
        (folder / "submission.json").write_bytes(content)
        submitting.submit(folder, check=True)

    return read


def test_damaged_forms_end_with_a_result_or_a_sentence(small, tmp_path):
    content = (small / "submission.json").read_bytes()

    assert {"read", "refused"} == set(try_mutations([content], check_form(small), 150, tmp_path / "kept"))


def test_damaged_rounds_end_with_a_result_or_a_sentence(tmp_path):
    def read(content):
        (tmp_path / "r.toml").write_bytes(content)
        words.rounds_values([read_round(tmp_path / "r.toml")])

    content = [(FOLDER / f"{name}.toml").read_bytes() for name in ("2026", "published")]
    assert {"read", "refused"} == set(try_mutations(content, read, 200, tmp_path / "kept"))


def test_damaged_files_end_with_what_they_lack_or_a_sentence(tmp_path):
    def read(content):
        (tmp_path / "r.jsonl").write_bytes(content)
        found = submitting.submit(tmp_path / "r.jsonl", check=True, round=ROUND)
        assert found.lacks

    records = [samples.measured(round_number=n) for n in (1, 2, 3)]
    header = {**samples.header([records[0]["case"]]), "command": ["run", "--ab", "mkl=/home/jdoe/x.so,y"]}
    header["machine"]["host"] = "node17.example.org"
    content = samples.write(tmp_path / "good.jsonl", records, header).read_bytes()

    assert {"read", "refused"} == set(try_mutations([content], read, 150, tmp_path / "kept"))
