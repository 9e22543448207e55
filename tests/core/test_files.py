"""Outputs are written as a whole or not at all; a result file is never replaced. Suggested commands can be pasted."""

import errno
import os
import shlex
from pathlib import Path

import pytest

from deepbench.core.errors import BadInput
from deepbench.core.files import NotWritten, make_private_folder, replacing
from deepbench.core.json_lines import to_line
from deepbench.core.shell import command
from deepbench.fleets import file as fleet
from tests.help import samples


def write(path, text="new", **options):
    with replacing(path, **options) as draft:
        draft.write_text(text)


def test_an_output_appears_with_all_of_its_content_or_not_at_all(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), replacing(path) as draft:
        draft.write_text("half")
        raise KeyboardInterrupt

    assert "old" == path.read_text()
    write(path)
    assert "new" == path.read_text()
    assert [path] == list(tmp_path.iterdir())


def test_a_replaced_file_keeps_its_mode_and_links_to_it(tmp_path):
    path, link = tmp_path / "page.html", tmp_path / "link.html"
    path.write_text("old")
    path.chmod(0o600)
    link.symlink_to(path)
    write(link)

    assert link.is_symlink()
    assert ("new", 0o600) == (path.read_text(), path.stat().st_mode & 0o777)


def test_in_a_folder_of_ours_a_link_is_replaced_and_not_followed(tmp_path):
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "kept").symlink_to(tmp_path / "victim")
    write(tmp_path / "kept", ours=True)

    assert "precious" == (tmp_path / "victim").read_text()
    assert (False, "new") == ((tmp_path / "kept").is_symlink(), (tmp_path / "kept").read_text())


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a link of another user")
@pytest.mark.parametrize("exists", [True, False])
def test_a_link_of_another_user_in_a_folder_such_as_tmp_is_not_followed(tmp_path, exists):
    """The system would not follow it either."""
    if Path("/proc/sys/fs/protected_symlinks").read_text().strip() != "1":
        pytest.skip("this system follows such links (fs.protected_symlinks is not 1)")
    victim, shared = tmp_path / "victim", tmp_path / "shared"
    if exists:
        victim.write_text("precious")
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "page.html").symlink_to(victim)
    os.lchown(shared / "page.html", 65534, 65534)
    with pytest.raises(NotWritten, match="Permission denied"):
        write(shared / "page.html")

    assert exists == victim.exists()
    assert [shared / "page.html"] == list(shared.iterdir())


def test_a_link_that_the_system_does_not_follow_is_not_followed(tmp_path, monkeypatch):
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "page.html").symlink_to(tmp_path / "victim")
    opened = os.open

    def refusing(path, *arguments):
        if Path(path).is_symlink():
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return opened(path, *arguments)

    monkeypatch.setattr(os, "open", refusing)
    with pytest.raises(NotWritten, match="Permission denied"):
        write(tmp_path / "page.html")
    assert "precious" == (tmp_path / "victim").read_text()


def test_a_private_folder_is_new_or_ours(tmp_path):
    folder = tmp_path / "folder"
    make_private_folder(folder)
    (folder / "file").touch()
    make_private_folder(folder)

    assert 0o700 == folder.stat().st_mode & 0o777
    assert (folder / "file").exists()
    with pytest.raises(NotWritten, match="No such file or directory"):
        make_private_folder(tmp_path / "no" / "folder")


def test_a_private_folder_is_no_link_no_file_and_of_no_other_user(tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "other")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    (tmp_path / "file").touch()
    reasons = {"link": "is a link", "dangling": "is a link", "file": "is not a folder"}
    if os.getuid() == 0:
        (tmp_path / "theirs").mkdir()
        os.chown(tmp_path / "theirs", 65534, 65534)
        reasons["theirs"] = "belongs to another user"

    for name, reason in reasons.items():
        with pytest.raises(BadInput, match=f"{name} {reason}; wanted a folder of yours"):
            make_private_folder(tmp_path / name)
    assert not (tmp_path / "nothing").exists()


def test_a_new_file_may_be_read_as_the_user_allows(tmp_path):
    mask = os.umask(0o027)
    try:
        write(tmp_path / "page.html")
    finally:
        os.umask(mask)

    assert 0o640 == (tmp_path / "page.html").stat().st_mode & 0o777


def test_a_pipe_is_written_and_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write(tmp_path / "pipe")

    assert b"new" == os.read(reader, 100)
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.parametrize(
    ("name", "expected"),
    [("no/such/folder/x", "No such file or directory; choose another name"), (".", "Is a directory")],
)
def test_what_cannot_be_written_is_named_with_the_reason(tmp_path, name, expected):
    with pytest.raises(NotWritten, match=expected):
        write(tmp_path / name)


@pytest.mark.parametrize(
    "first",
    [
        to_line(samples.header()),
        to_line({"tool": "deepbench", "schema": "deepbench/2"}),
        to_line({"schema": fleet.SCHEMA, "expected": []}),
        to_line(samples.header())[:-20] + "\n",
        '{ "schema" : "deepbench/1"',
    ],
)
def test_a_result_file_is_never_replaced_under_whatever_name(tmp_path, first):
    """A damaged header protects its file too."""
    path = tmp_path / "mine.jsonl"
    path.write_text(first + "precious\n")
    os.link(path, tmp_path / "hard.html")
    (tmp_path / "soft.html").symlink_to(path)

    for name in ("mine.jsonl", "hard.html", "soft.html", "./mine.jsonl"):
        with pytest.raises(BadInput, match="is a result file and would be replaced; choose another name"):
            write(tmp_path / name)
    assert first + "precious\n" == path.read_text()
    write(path, ours=True)
    assert "new" == path.read_text()


@pytest.mark.parametrize("name", ["a b.jsonl", "it's.jsonl", "$(reboot).jsonl", "a;b", "-x.jsonl", "--full", "ä.jsonl"])
def test_a_suggested_command_names_the_same_file_in_a_shell(name):
    program, verb, path, option = shlex.split(command("show", Path(name), "--full"))

    assert ("deepbench", "show", "--full") == (program, verb, option)
    assert Path(name) == Path(path)
    assert not path.startswith("-")


def test_a_suggested_command_has_no_control_characters():
    assert "\x1b" not in command("show", Path("a\x1b[31m.jsonl"))
    assert "deepbench run --resume -o out.jsonl" == command("run", "--resume", "-o", Path("out.jsonl"))
