"""Send a result: check a file by the rules of a round, and write the folder that goes to a results repository."""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from deepbench.api.results import Results, kind_of, load_kernels
from deepbench.core.errors import BadInput, shorten
from deepbench.core.files import new_folder, read_regular
from deepbench.core.json_lines import from_line, printable, sanitized
from deepbench.core.kinds import KERNELS
from deepbench.core.shell import command
from deepbench.core.version import VERSION
from deepbench.judge import submission as judging
from deepbench.judge.submission import Judged
from deepbench.plan import results_rounds
from deepbench.plan.results_rounds import ResultsRound
from deepbench.reporting import submission as words
from deepbench.reporting.output import Report
from deepbench.results.file import GZIP, JSONL, ResultFile, lines_of
from deepbench.results.redaction import Replaced, redacted

__all__ = ["Submission", "rounds_of", "rounds_report", "submit"]

SCHEMA = "deepbench-submission/1"
FORM, README = "submission.json", "README.md"

MOST_FORM_BYTES, MOST_README_BYTES = 2**20, 2**20
LARGEST_DATA_BYTES = 64 * 2**20
"""Of the compressed file: repositories and their hosts refuse much larger ones."""

MOST_TITLE = 80
UNNAMED = "An unnamed machine"
"""Stands for a machine while it is checked what its file lacks."""

# Places that sentences name.
MOST_LEAKS = 10

FIELDS = ("schema", "tool", "round", "mark", "title", "data", "readme_sha256", "facts", "numbers", "replaced")


@dataclass(frozen=True)
class Submission:
    """What became of a file or of a submitted folder."""

    path: Path
    """What was checked."""
    round: str
    mark: str
    """`measured`, or `published` by the original."""
    lacks: Sequence[str]
    """What it lacks, one sentence each, with what to do; nothing if it passes."""
    findings: Sequence[str] = ()
    """What readers should know, and what is no reason to refuse it."""
    replaced: Sequence[str] = ()
    """What the copy has other words for, or would have."""
    suites: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The suites that count, each with its precisions."""
    folder: Path | None = None
    """What was written."""

    @property
    def passes(self) -> bool:
        """Whether it lacks nothing."""
        return not self.lacks


def submit(
    file: str | Path,
    output: str | Path = "results",
    *,
    round: str | Path | None = None,
    machine: str | None = None,
    check: bool = False,
    replace: bool = False,
) -> Submission:
    """Check a result file by the rules of a round; where it passes, write a folder that can be sent.

    Args:
        file: a result file of kernels; with `check` also a folder that this function wrote.
        output: the folder `results` of a results repository. The new folder in it is named after round and machine.
        round: its name, such as `2026`, or a TOML file that describes one; None: the newest with a suite of the file.
        machine: a title of the machine for people, which also takes the place of the host's name; None: its processor.
        check: write nothing.
        replace: write in place of an earlier folder of this machine.

    `BadInput` for what is no file of kernels and no submitted folder, and where the folder exists or cannot be written.
    The file itself is never changed.
    """
    path = Path(file)
    chosen = results_rounds.find_round(round) if round is not None else None
    if path.is_dir():
        if not check:
            raise BadInput(f"{_shown(path)} is a folder; check it with --check (Python: check=True), or name a file")
        return _check_folder(path, chosen)
    results = _read(path)
    chosen = chosen or judging.choose_round(results.file, results_rounds.known_rounds())
    judged = judging.judge(results.file, results.summaries, chosen, _now())
    title = _title(machine, results.file)
    copy = redacted(results.file, title, _slug(title), _homes())
    lacks = [*(lack.text for lack in judged.lacks), *_leaks(copy.left)]
    found = Submission(
        path,
        chosen.name,
        judged.mark,
        lacks,
        judged.findings,
        [replaced.text for replaced in copy.replaced],
        judged.suites,
    )
    if check or lacks:
        return found
    if title == UNNAMED:
        raise BadInput(_no_name(str(cast(Mapping[str, Any], results.header["machine"]).get("cpu") or "")))
    replaced = [{"what": r.what, "by": r.by, "times": r.times} for r in copy.replaced]
    folder = _write(Path(output), title, chosen, results, copy.file, replaced, replace)
    return dataclasses.replace(found, folder=folder)


def rounds_report() -> Report:
    """The rounds and their rules."""
    known = results_rounds.known_rounds()
    return Report.of_parts(words.rounds_parts(known), lambda: words.rounds_values(known))


def rounds_of(paths: Iterable[Path]) -> list[str]:
    """The rounds of those files that lie in submitted folders, each once."""
    found: dict[str, None] = {}
    for path in paths:
        with contextlib.suppress(BadInput):
            if _is_file(form := path.parent / FORM):
                found[_read_form(form)["round"]] = None
    return list(found)


# ---- what is read


def _now() -> datetime:
    return datetime.now(UTC)


def _read(path: Path) -> Results:
    kind = kind_of(path)
    if kind is not KERNELS:
        raise BadInput(
            f"{_shown(path)} has {kind.noun}; a submission takes files of kernels: those of deepbench run, and of "
            "deepbench import of the original DeepBench"
        )
    return load_kernels(path, skip_damaged=True)


def _shown(path: Path) -> str:
    return shorten(printable(str(path)), 300)


def _leaks(places: Sequence[str]) -> list[str]:
    """A sentence for each private text that cannot be replaced; of many, how many more there are."""
    remedy = "measure again without it in names and settings"
    found = [
        f"wanted no private text that cannot be replaced, found one in {place}; {remedy}"
        for place in places[:MOST_LEAKS]
    ]
    more = len(places) - len(found)
    return found + [f"wanted no private text that cannot be replaced, found {more} more; {remedy}"] * bool(more)


def _homes() -> list[str]:
    """The home folder of this user: on the machine that measured, the file may name it in a form of no known kind."""
    home = os.environ.get("HOME", "")
    return [home] if os.path.isabs(home) else []


def _title(machine: str | None, file: ResultFile) -> str:
    facts = cast(Mapping[str, Any], file.header["machine"])
    cores = facts.get("cores_allowed")
    known = facts.get("name") or facts.get("cpu")
    text = known if isinstance(known, str) else ""
    if isinstance(cores, int) and not facts.get("name"):
        text += f", {cores} core{'s' * (cores != 1)}"
    title = " ".join(printable(text if machine is None else machine).split())
    if machine is not None and (not title.isprintable() or len(title) > MOST_TITLE or title != machine.strip()):
        raise BadInput(
            f"--machine must be one line of at most {MOST_TITLE} printable characters, found {shorten(title)!r}"
        )
    title = shorten(title, MOST_TITLE)
    if machine is not None and not _slug(title):
        raise BadInput(_no_name(title))
    return title if _slug(title) else UNNAMED


def _no_name(title: str) -> str:
    return (
        f"the folder is named after the machine, and {shorten(title)!r} has no letter from a to z and no digit; "
        'choose a title: --machine "My machine"'
    )


def _slug(title: str) -> str:
    """The name of the folder of a machine: small letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower())[:60].strip("-")


# ---- what is written


def _write(
    output: Path,
    title: str,
    chosen: ResultsRound,
    results: Results,
    copy: ResultFile,
    replaced: list[dict[str, Any]],
    replaces: bool,
) -> Path:
    """Write the folder of a machine; its path. The copy is read again, and must give the same numbers."""
    slug = _slug(title)
    folder = output / chosen.name / slug
    if os.path.lexists(folder) and not replaces:
        raise BadInput(
            f"{_shown(folder)} already exists; --replace writes in its place (Python: replace=True), and --machine "
            "names another machine"
        )
    with new_folder(folder, _is_ours) as draft:
        name = f"{slug}{JSONL}{GZIP}"
        content = gzip.compress(b"".join(lines_of(copy)), mtime=0)
        if len(content) > LARGEST_DATA_BYTES:
            raise BadInput(
                f"the compressed file has {len(content)} bytes, and at most {LARGEST_DATA_BYTES} are sent; "
                "submit the suites one by one"
            )
        (draft / name).write_bytes(content)
        written = _read(draft / name)
        _require_same(results, written)
        judged = judging.judge(written.file, written.summaries, chosen, _now())
        form = _form(title, chosen, written, judged, content, name, replaced)
        page = words.readme(form, written.summaries, _command(written.file))
        form["readme_sha256"] = hashlib.sha256(page.encode()).hexdigest()
        (draft / README).write_text(page, encoding="utf-8")
        (draft / FORM).write_text(_json(form), encoding="utf-8")
    return folder


def _command(file: ResultFile) -> list[str]:
    return list(file.header["command"])


def _json(form: Mapping[str, Any]) -> str:
    return json.dumps(sanitized(form), ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def _form(
    title: str,
    chosen: ResultsRound,
    results: Results,
    judged: Judged,
    content: bytes,
    name: str,
    replaced: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """What `submission.json` has, but for the checksum of the README."""
    file, summaries = results.file, results.summaries
    return {
        "schema": SCHEMA,
        "tool": f"deepbench {VERSION}",
        "round": chosen.name,
        "mark": judged.mark,
        "title": title,
        "data": {"file": name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()},
        "readme_sha256": "",
        "facts": words.facts_of(file, summaries, judged),
        "numbers": words.numbers_of(file, summaries, judged),
        "replaced": list(replaced),
    }


def _require_same(before: Results, after: Results) -> None:
    """`BadInput` unless both have the same cases with the same numbers."""

    def numbers(results: Results) -> list[object]:
        return [(s.record["case"], s.status, len(s.rounds), s.estimate) for s in results.summaries]

    if numbers(before) != numbers(after) or len(before.file.limits) != len(after.file.limits):
        raise BadInput(
            f"{_shown(before.path)}: without its private texts the copy has other numbers, so nothing was written; "
            "a name of a host or a user is part of what was measured: choose another name there, and measure again"
        )


def _is_ours(folder: Path) -> bool:
    """Whether a folder has nothing but what `submit` writes: then it may be replaced."""
    names = {entry.name for entry in folder.iterdir()}
    data = {name for name in names if name.endswith(JSONL + GZIP)}
    are_files = all(not entry.is_symlink() and entry.is_file() for entry in folder.iterdir())
    return names == {FORM, README, *data} and len(data) == 1 and are_files


# ---- what is checked again


def _check_folder(folder: Path, chosen: ResultsRound | None) -> Submission:
    """A submitted folder: its files, checksums, the data by the rules of the round, and what its texts say of them."""
    where = _shown(folder)
    if not _is_file(folder / FORM):
        raise BadInput(f"{where} has no {FORM}; wanted a folder that deepbench submit wrote")
    form = _read_form(folder / FORM)
    chosen = chosen or results_rounds.known_round(form["round"])
    found = [_lack_of_place(folder, form, chosen), *_lacks_of_files(folder, form)]
    lacks = [text for text in found if text is not None]
    data = form["data"]["file"]
    if not _is_file(folder / data):
        return Submission(folder, chosen.name, form["mark"], lacks)
    results = _read(folder / data)
    judged = judging.judge(results.file, results.summaries, chosen, _now())
    lacks += [lack.text for lack in judged.lacks]
    copy = redacted(results.file, form["title"], _slug(form["title"]))
    remedy = f"write the folder again: {command('submit', data, '--replace')}"
    lacks += [f"wanted a file without private texts, found a {r.what}; {remedy}" for r in copy.replaced]
    lacks += _leaks(copy.left)
    lacks += _lacks_of_form(folder, form, chosen, results, judged, remedy)
    replaced = [Replaced(**r).text for r in form["replaced"]]
    return Submission(folder, chosen.name, judged.mark, lacks, judged.findings, replaced, judged.suites)


def _read_form(path: Path) -> dict[str, Any]:
    """The checked content of a `submission.json`; `BadInput` says what is wrong with it."""
    where = _shown(path)
    try:
        form = sanitized(from_line(read_regular(path, MOST_FORM_BYTES, f"a {FORM} of deepbench submit")))
    except (ValueError, RecursionError):
        raise BadInput(f"{where} is not JSON; write the folder again with deepbench submit") from None
    if not isinstance(form, dict) or form.get("schema") != SCHEMA:
        schema = shorten(str(form.get("schema") if isinstance(form, dict) else None))
        raise BadInput(
            f"{where} has the schema {schema}, but this version reads {SCHEMA}; use the version that wrote it"
        )
    if not _has_fields(form):
        raise BadInput(f"{where} lacks a field, or has one of another type; write the folder again: deepbench submit")
    if form["data"]["file"] != f"{_slug(form['title'])}{JSONL}{GZIP}" or len(form["title"]) > MOST_TITLE:
        raise BadInput(f"{where}: the data must be called after the title; write the folder again: deepbench submit")
    return cast(dict[str, Any], form)


def _has_fields(form: Mapping[str, Any]) -> bool:
    """Whether a form has the fields that are used before they are compared, each with its type."""
    data, replaced = form.get("data"), form.get("replaced")
    if set(form) != set(FIELDS) or not isinstance(data, dict) or not isinstance(replaced, list):
        return False
    texts = [form[name] for name in ("tool", "round", "mark", "title", "readme_sha256")]
    texts += [data.get(name) for name in ("file", "sha256")]
    known = {f.name for f in dataclasses.fields(Replaced)}
    are_known = all(isinstance(r, dict) and set(r) == known and type(r["times"]) is int for r in replaced)
    texts += [r[name] for r in replaced for name in ("what", "by")] if are_known else []
    return are_known and set(data) == {"file", "bytes", "sha256"} and all(isinstance(t, str) and t for t in texts)


def _lack_of_place(folder: Path, form: Mapping[str, Any], chosen: ResultsRound) -> str | None:
    real = folder.resolve()
    wanted = f"{chosen.name}/{_slug(form['title'])}"
    if form["round"] == chosen.name and f"{real.parent.name}/{real.name}" == wanted:
        return None
    found = shorten(printable(f"{real.parent.name}/{real.name}"))
    return f"wanted the folder {wanted}, as round and machine say, found {found}; move it: git mv"


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _lacks_of_files(folder: Path, form: Mapping[str, Any]) -> list[str]:
    data = form["data"]["file"]
    names = sorted(entry.name for entry in folder.iterdir())
    wanted, lacks = sorted((FORM, README, data)), []
    if names != wanted or not all(_is_file(folder / name) for name in names):
        others = [shorten(printable(name)) for name in names if name not in wanted or not _is_file(folder / name)]
        found = f"also {', '.join(others[:3])}" if others else f"only {', '.join(names)}"
        lacks.append(f"wanted the files {', '.join(wanted)}, found {found}; send what deepbench submit wrote")
    for name, most, digest in (
        (data, LARGEST_DATA_BYTES, form["data"]["sha256"]),
        (README, MOST_README_BYTES, form["readme_sha256"]),
    ):
        if _is_file(folder / name):
            content = read_regular(folder / name, most, "a file of a submission")
            actual = hashlib.sha256(content).hexdigest()
            if actual != digest:
                lacks.append(
                    f"wanted {name} with the SHA-256 {shorten(digest, 64)}, found {actual}; send the folder as it was "
                    "written, and change nothing by hand"
                )
    return lacks


def _lacks_of_form(
    folder: Path,
    form: Mapping[str, Any],
    chosen: ResultsRound,
    results: Results,
    judged: Judged,
    remedy: str,
) -> list[str]:
    """What the form and the README say, and the data do not.

    What is computed and how it is worded may differ in another version, so only facts are compared then.
    """
    name = form["data"]["file"]
    content = read_regular(folder / name, LARGEST_DATA_BYTES, "the data of a submission")
    made = sanitized(_form(form["title"], chosen, results, judged, content, name, form["replaced"]))
    is_same_version = form["tool"] == made["tool"]
    compared = ["mark", "data", "facts", *(["numbers"] if is_same_version else [])]
    # JSON has no tuples, and no numbers other than its own.
    plain = json.loads(json.dumps(made))
    lacks = []
    if wrong := [part for part in compared if form[part] != plain[part]]:
        lacks.append(f"wanted a {FORM} that fits the data, found other {' and '.join(map(_part, wrong))}; {remedy}")
    page = words.readme(plain, results.summaries, _command(results.file)).encode()
    is_comparable = is_same_version and not lacks and _is_file(folder / README)
    if is_comparable and read_regular(folder / README, MOST_README_BYTES, "the README of a submission") != page:
        lacks.append(f"wanted a {README} that fits the data, found another text; {remedy}")
    return lacks


def _part(name: str) -> str:
    return {"mark": "marks", "data": "checksums", "facts": "facts", "numbers": "numbers"}[name]
