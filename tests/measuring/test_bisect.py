"""Bisection with a library that is slower by a known amount, over builds and over the commits of a repository."""

import shlex
import subprocess

import pytest

from tests.help import slowed

CASE = ["gemm", "m=64", "n=64", "k=64", "f32", "threads=1"]

pytestmark = [pytest.mark.programs, pytest.mark.costly]


@pytest.fixture
def libraries(tmp_path):
    return {percent: slowed.compiled(tmp_path / f"slow{percent}.so", percent) for percent in (0, 60)}


@pytest.mark.alone
@pytest.mark.parametrize(
    ("name", "codes"),
    [
        pytest.param("copy", (0, 125), marks=pytest.mark.long),  # a busy machine may not tell
        pytest.param("slow", (1,), marks=pytest.mark.long),
        ("broken", (125,)),
    ],
)
def test_a_step_exits_as_git_bisect_wants_it(deepbench, libraries, tmp_path, name, codes):
    """0 for a copy of the good library, 1 for one that takes 60 % longer, 125 for one that cannot be loaded."""
    library = tmp_path / f"{name}.so"
    library.write_bytes({"copy": libraries[0], "slow": libraries[60]}[name].read_bytes() if name != "broken" else b"no")
    words = ["bisect", "--step", "--of", "openblas", "--quick", "--margin", "20%"]
    words += ["--good-library", str(libraries[0]), "--library", str(library)]
    done = deepbench(*words, *CASE)

    assert "Traceback" not in done.stderr
    assert done.returncode in codes


def git(folder, *words):
    person = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    return subprocess.run(["git", *person, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.mark.long
def test_the_commit_that_made_a_library_slower_is_found(deepbench, tmp_path):
    """Of eight commits, the sixth adds 60 %. The third does not build."""
    repository = tmp_path / "repository"
    repository.mkdir()
    git(repository, "init", "-q", "-b", "main")
    for number in range(8):
        percent = "x" if number == 2 else 60 if number >= 5 else 0
        (repository / "percent").write_text(f"{percent}\n{number}\n")
        git(repository, "add", "percent")
        git(repository, "commit", "-q", "-m", f"change {number}")
    words = slowed.command("slowed.so", "$(head -1 percent)")
    build = " ".join(word if "$(head" in word else shlex.quote(word) for word in words)
    done = deepbench(
        *("bisect", "--of", "openblas", "--commits", "HEAD~7..HEAD", "--repository", str(repository), "--quick"),
        *("--margin", "20%", "--build", build, "--library", "slowed.so", *CASE),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].endswith("change 5")
    assert not git(repository, "status", "--short")
    assert len(git(repository, "worktree", "list").splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--of", "openblas"], "choose one of"),
        (["--of", "openblas", "--step"], "needs --good-library"),
        (["--of", "openblas", "--commits", "a..b"], "--commits needs --build"),
        (["--of", "openblas", "--commits", "a", "--build", "x", "--library", "y"], "--commits wants A..B"),
        (["--of", "openblas", "--commits", "--x..b", "--build", "x", "--library", "y"], "does not begin with -"),
        (["--of", "openblas", "--commits", "nope..b", "--build", "x", "--library", "y"], "nope is no commit"),
        (["--of", "reference", "--versions", "1..2"], "cannot be loaded from a path"),
        (["--of", "openblas", "--versions", "1"], "needs 2 to 200 versions"),
        (["--of", "nothing", "--versions", "1..2"], "unknown backend"),
    ],
)
def test_words_that_cannot_be_used_are_one_sentence(deepbench, tmp_path, words, reason):
    done = deepbench("bisect", *words)
    assert done.returncode == 64
    assert reason in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
