"""What in a result file belongs to a person or a site and not to a measurement, and how a copy replaces it.

Names of hosts and users, home folders, addresses, e-mail, tokens and serial numbers. They may be in any text: words of
the command, paths of libraries, reasons of failures. A text that only informs people gets another word in their place.
A text that decides what a line means, such as that of a case, is never changed: what is found there is refused.

The rules find what has a known form. They do not know a person's name or the name of a project in a sentence.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from ipaddress import ip_address
from itertools import pairwise
from typing import Any, cast

from deepbench.core.errors import shorten
from deepbench.core.json_lines import printable
from deepbench.core.variables import HIDDEN
from deepbench.results.file import ResultFile
from deepbench.results.record import Record

# What stands in the place of each kind.
ADDRESS, E_MAIL, FOLDER, HOME, SERIAL, USER = "(address)", "(e-mail)", "(folder)", "~", "(serial)", "(user)"

HOST = "host name"

# Shorter names are words of many texts, and tell nobody apart.
LEAST_NAME = 4

# Names that every system has.
COMMON_NAMES = frozenset(
    (
        *("admin", "app", "build", "builder", "centos", "container", "debian", "default", "docker", "fedora", "github"),
        *("gitlab", "guest", "host", "jenkins", "jovyan", "kernel", "linux", "localhost", "localhost.localdomain"),
        *(
            "machine",
            "main",
            "node",
            "none",
            "nobody",
            "root",
            "runner",
            "server",
            "shared",
            "test",
            "ubuntu",
            "unknown",
        ),
        *("user", "users", "vagrant", "work", "worker"),
    )
)

# Fields that decide what a line means, or that programs compare. Nothing in them is replaced.
MEANING = frozenset(
    (
        *(
            "schema",
            "checksums",
            "crc32",
            "case",
            "status",
            "op",
            "direction",
            "precision",
            "backend",
            "device",
            "types",
        ),
        *("settings", "problem", "sweep_field", "variants", "baselines", "mode", "kind", "what", "started", "at", "id"),
        *("rivals", "round", "order_seed", "interleaved"),
    )
)

# Fields that have hashes and numbers of versions.
VERSIONS = frozenset(
    (
        *(
            "version",
            "build",
            "hash",
            "name",
            "library",
            "tool",
            "driver",
            "cpu_kernels",
            "microcode",
            "software",
            "cuda",
        ),
        *("cudnn"),
    )
)

# Fields whose keys are names of hosts.
OF_HOSTS = frozenset(("hosts", "interconnect"))

# A longer text is not searched, and so not accepted. Real ones are the outputs of compilers.
LONGEST_TEXT = 100_000

# Folders that systems have, and not persons.
SYSTEM = "usr|lib|lib32|lib64|opt|bin|sbin|etc|var|proc|sys|dev|run|nix|gnu|snap|boot|System|Library|Applications"

Rule = tuple[str, re.Pattern[str], str | Callable[[re.Match[str]], str]]
"""What it finds, how, and what takes its place."""

TOKEN = re.compile(
    r"(?<![A-Za-z0-9])(?:gh[opsru]_[A-Za-z0-9]{20,255}|github_pat_[A-Za-z0-9_]{20,255}|glpat-[\w-]{20,100}|"
    r"(?:AKIA|ASIA)[0-9A-Z]{16}|sk-(?=[\w-]{0,100}\d)[\w-]{16,200}|[sr]k_live_[A-Za-z0-9]{16,100}|"
    r"xox[abeoprs]-[A-Za-z0-9-]{10,200}|hf_[A-Za-z0-9]{20,100}|nvapi-[\w-]{10,200}|AIza[\w-]{35}|"
    r"npm_[A-Za-z0-9]{30,60}|pypi-[\w-]{50,300}|eyJ[\w-]{10,2000}\.eyJ[\w-]{10,2000}(?:\.[\w-]{0,2000})?)"
)
KEY = re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*", re.DOTALL)
IN_URL = re.compile(r"(?<=://)[^\s/@:]{1,100}:[^\s/@]{1,200}(?=@)")
ASSIGNED = re.compile(
    r"(?i)(?<![a-z])((?:password|passwd|secret|token|api[_-]?key|authorization)[\"']?\s?[=:]\s?)(?!\(hidden\))"
    r"(?:(?:bearer|basic) )?[^\s,;\"']{6,}"
)
MAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![\w@])")
UUID = re.compile(
    r"(?<![0-9A-Za-z])(?:(?:GPU|MIG)-)?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(?![0-9A-Za-z])",
    re.IGNORECASE,
)
MAC = re.compile(r"(?<![\w:-])(?:[0-9a-f]{2}([:-])(?:[0-9a-f]{2}\1){4,6}[0-9a-f]{2})(?![\w:-])", re.IGNORECASE)
GUID = re.compile(r"(?<![\w:])(?:[0-9a-f]{4}:){3}[0-9a-f]{4}(?![\w:])", re.IGNORECASE)
IP4 = re.compile(r"(?<![\w.-])\d{1,3}(?:\.\d{1,3}){3}(?![\w]|\.\d)")
IP6 = re.compile(r"(?<![\w:.])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?:%\w{1,15})?(?![\w:])")

HOMES = re.compile(r"(?<![\w./~-])(?:/[\w.+@-]{1,100}){0,8}?/(?:home|homes|Users|users)/(?P<user>[\w.@+-]{1,100})")
WINDOWS_HOMES = re.compile(r"(?<!\w)[A-Za-z]:\\{1,2}Users\\{1,2}(?P<user>[^\\/:\s\"']{1,100})")
ROOT_HOME = re.compile(r"(?<![\w./~-])/root(?![\w.-])")
OTHER_FOLDERS = re.compile(
    rf"(?<![\w./~)-])/(?!(?:{SYSTEM})/)[\w.+@~-]{{1,255}}(?:/[\w.+@~-]{{1,255}}){{0,60}}/(?=[\w.+@~-])"
)

# Words in which names are looked up.
HOST_WORD = re.compile(r"(?<![\w.-])[A-Za-z0-9][\w-]{0,62}(?:\.[A-Za-z][\w-]{0,62}){0,8}(?![\w-])")
USER_WORD = re.compile(r"[A-Za-z0-9]+(?:[._+-][A-Za-z0-9]+)*")
ALPHANUMERIC = re.compile("[A-Za-z0-9]+")

# A word of so many characters with capital and small letters and digits in no order is no word of a language. In
# names that compilers make, letters of one kind stand together.
RANDOM = re.compile(r"(?<![A-Za-z0-9+/_])(?=[A-Za-z0-9+/]{0,200}[0-9])[A-Za-z0-9+/]{32,512}={0,2}(?![A-Za-z0-9+/])")
LEAST_CHANGES = 0.4
HEX = re.compile(r"(?<![A-Za-z0-9])(?=[a-f]{0,63}[0-9])(?=[0-9]{0,63}[a-f])[0-9a-f]{32,128}(?![A-Za-z0-9])")


@dataclass(frozen=True)
class Replaced:
    """What a copy has other words for."""

    what: str
    by: str
    times: int

    @property
    def text(self) -> str:
        """Such as `home folder → ~ (12 times)`."""
        return f"{self.what} → {self.by} ({self.times} time{'s' * (self.times != 1)})"


@dataclass(frozen=True)
class Redacted:
    """A copy of a file without private texts."""

    file: ResultFile
    replaced: tuple[Replaced, ...]
    left: tuple[str, ...]
    """What could not be replaced, with its place and without the text itself."""


def redacted(file: ResultFile, title: str, word: str, homes: Iterable[str] = ()) -> Redacted:
    """A copy of a checked file of kernels in which private texts have others in their place.

    `title` stands for the name of the host; where a file format allows only letters, digits and dashes, `word` does,
    with a number behind it for each further host. `homes` are home folders that are known from elsewhere.
    """
    found = _Redaction(file, title, word, homes)
    header = found.value(file.header, "header", ())
    records = [found.value(r, f"record {n}", ()) for n, r in enumerate(file.records, 1)]
    limits = [found.value(line, f"limit {n}", ()) for n, line in enumerate(file.limits, 1)]
    copy = replace(file, header=header, records=cast(list[Record], records), limits=limits)
    replaced = tuple(Replaced(what, by, times) for (what, by), times in sorted(found.replaced.items()))
    return Redacted(copy, replaced, tuple(found.left))


def hosts_of(file: ResultFile) -> list[str]:
    """The names of hosts that a file states: the machine, and those of groups."""
    machine = cast(Mapping[str, Any], file.header["machine"])
    groups = [r["group"] for r in file.records if r["group"] is not None]
    stated = [machine.get("host"), *(file.header["plan"].get("hosts") or [])]
    stated += [name for group in groups for name in (*group["hosts"], *group.get("interconnect", {}))]
    return list(dict.fromkeys(name for name in stated if isinstance(name, str) and name))


class _Redaction:
    """Goes through the values of a file, and counts."""

    def __init__(self, file: ResultFile, title: str, word: str, homes: Iterable[str]) -> None:
        self.replaced: Counter[tuple[str, str]] = Counter()
        self.left: list[str] = []
        # What stands for a host is no host: a copy is not changed again.
        ours = re.compile(rf"{re.escape(word)}(?:-[1-9][0-9]*)?")
        names = [name for name in hosts_of(file) if name != title and not ours.fullmatch(name)]
        self._words = {name: word if n == 1 else f"{word}-{n}" for n, name in enumerate(names, 1)}
        self._title, self._host = title, names[0] if names else None
        self._users: dict[str, None] = {}
        self._homes = sorted({home.rstrip("/") for home in homes if _is_home(home)}, key=len, reverse=True)
        for home in self._homes:
            self._users[home.rpartition("/")[2]] = None
        _each_text(file, self._learn_user)
        self._names = self._rules_of_names()
        self._cleaned = lru_cache(maxsize=2**14)(self._clean)

    def _learn_user(self, text: str) -> None:
        if ("/" in text or "\\" in text) and len(text) <= LONGEST_TEXT:
            for pattern in (HOMES, WINDOWS_HOMES):
                for match in pattern.finditer(text):
                    self._users[match["user"]] = None

    def _rules_of_names(self) -> Sequence[Rule]:
        known: dict[str, str] = {}
        for name, word in self._words.items():
            by = self._title if name == self._host else word
            # The first part of a full name is one, too; what follows it in a text belongs to it.
            known |= {text: by for text in (name.split(".")[0], name) if is_telling(text)}
        users = {user for user in self._users if is_telling(user)}

        def host(match: re.Match[str]) -> str:
            return known.get(match[0]) or known.get(match[0].split(".")[0]) or match[0]

        def user(match: re.Match[str]) -> str:
            if match[0] in users:
                return USER
            return ALPHANUMERIC.sub(lambda part: USER if part[0] in users else part[0], match[0])

        return ((HOST, HOST_WORD, host),) * bool(known) + (("user name", USER_WORD, user),) * bool(users)

    def value(self, value: Any, place: str, path: tuple[str, ...]) -> Any:
        """The same value, or a copy with other texts. `place` and `path` say where it is."""
        if isinstance(value, float | int) or value is None:
            return value
        if isinstance(value, str):
            return self._text(value, place, path)
        if isinstance(value, dict):
            changed = {self._key(key, place, path): self.value(v, place, (*path, key)) for key, v in value.items()}
            same = all(a is b for a, b in zip(changed.values(), value.values(), strict=False))
            return value if same and list(changed) == list(value) else changed
        if isinstance(value, list) and any(isinstance(v, str | dict | list) for v in value):
            items = [self.value(v, place, path) for v in value]
            return value if all(a is b for a, b in zip(items, value, strict=True)) else items
        return value

    def _key(self, key: str, place: str, path: tuple[str, ...]) -> str:
        if path[-1:] and path[-1] in OF_HOSTS and key in self._words:
            self.replaced[HOST, self._words[key]] += 1
            return self._words[key]
        self._refuse(key, place, (*path, "a name"))
        return key

    def _text(self, text: str, place: str, path: tuple[str, ...]) -> str:
        last = path[-1] if path else ""
        if len(text) > LONGEST_TEXT:
            self._leave(f"a text of {len(text):,} characters, which is too long to be searched", place, path)
            return text
        if path == ("machine", "host"):
            if text != self._title:
                self.replaced[HOST, self._title] += 1
            return self._title
        if last in OF_HOSTS and text in self._words:
            self.replaced[HOST, self._words[text]] += 1
            return self._words[text]
        if not MEANING.isdisjoint(path):
            self._refuse(text, place, path)
            return text
        cleaned, counts = self._cleaned(text, last in VERSIONS)
        self.replaced.update(counts)
        return cleaned

    def _refuse(self, text: str, place: str, path: tuple[str, ...]) -> None:
        if (what := _private(text[:LONGEST_TEXT])) is not None:
            self._leave(what, place, path)

    def _leave(self, what: str, place: str, path: tuple[str, ...]) -> None:
        names = [shorten(printable(name)) for name in path]
        where = ".".join(HIDDEN if _private(path[i][:LONGEST_TEXT]) else name for i, name in enumerate(names))
        self.left.append(f"{place}, field {where}: {what}")

    def _clean(self, text: str, is_version: bool) -> tuple[str, Counter[tuple[str, str]]]:
        counts: Counter[tuple[str, str]] = Counter()
        for home in self._homes:
            if home in text:
                pattern = re.compile(rf"(?<![\w./~-]){re.escape(home)}(?![\w-])")
                text = _counted("home folder", pattern, HOME, text, counts)
        rules = [*SECRETS, *HOME_RULES, *(FOLDER_RULES if not is_version else ())]
        rules += [*self._names, *(() if is_version else NUMBERS)]
        for what, pattern, by in rules:
            text = _counted(what, pattern, by, text, counts)
        return text, counts


def _counted(
    what: str,
    pattern: re.Pattern[str],
    by: str | Callable[[re.Match[str]], str],
    text: str,
    counts: Counter[tuple[str, str]],
) -> str:
    def other(match: re.Match[str]) -> str:
        word = by(match) if callable(by) else by
        if word != match[0]:
            counts[what, _shown(what, word)] += 1
        return word

    return pattern.sub(other, text)


def _shown(what: str, word: str) -> str:
    """What took the place, without what stays around it."""
    if what == "user name":
        return USER
    return HIDDEN if what in ("password", "long random word") else word


def is_telling(name: str) -> bool:
    """Whether the name of a host or a user tells it apart, and is no word of many texts."""
    return len(name) >= LEAST_NAME and name.lower() not in COMMON_NAMES and not name.isdigit()


def _is_home(path: str) -> bool:
    return path.startswith("/") and path.count("/") > 1 and not re.match(rf"/(?:{SYSTEM}|tmp)(?:/|$)", path)


def _each_text(file: ResultFile, call: Callable[[str], None]) -> None:
    """Call a function with each text of the header and the records."""
    left: list[Any] = [file.header, *file.records, *file.limits]
    known: set[int] = set()
    while left:
        value = left.pop()
        if isinstance(value, str):
            call(value)
        elif isinstance(value, dict | list) and id(value) not in known:  # records share equal parts
            known.add(id(value))
            left += (
                value.values() if isinstance(value, dict) else [v for v in value if isinstance(v, str | dict | list)]
            )


# ---- rules


def _assigned(match: re.Match[str]) -> str:
    return f"{match[1]}{HIDDEN}"


def _random(match: re.Match[str]) -> str:
    """A long word where its characters change their kind often; others stay."""
    word = match[0].rstrip("=")
    kinds = [c.isupper() + 2 * c.isdigit() for c in word]
    changes = sum(a != b for a, b in pairwise(kinds))
    is_mixed = any(c.isupper() for c in word) and any(c.islower() for c in word)
    return HIDDEN if is_mixed and changes >= LEAST_CHANGES * len(word) else match[0]


def _address(match: re.Match[str]) -> str:
    """An address that is not that of every machine."""
    try:
        found = ip_address(match[0].partition("%")[0])
    except ValueError:
        return match[0]
    return match[0] if found.is_loopback or found.is_unspecified else ADDRESS


@lru_cache(maxsize=2**14)
def _private(text: str) -> str | None:
    """What a text has that is never part of the meaning of a line."""
    return next((what for what, pattern, _ in (*SECRETS, *HOME_RULES) if pattern.search(text)), None)


SECRETS: Sequence[Rule] = (
    ("token", TOKEN, HIDDEN),
    ("private key", KEY, HIDDEN),
    ("password", IN_URL, HIDDEN),
    ("password", ASSIGNED, _assigned),
    ("e-mail address", MAIL, E_MAIL),
)
HOME_RULES: Sequence[Rule] = (
    ("home folder", HOMES, HOME),
    ("home folder", WINDOWS_HOMES, HOME),
    ("home folder", ROOT_HOME, HOME),
)
FOLDER_RULES: Sequence[Rule] = (("folder outside of the system", OTHER_FOLDERS, f"{FOLDER}/"),)
NUMBERS: Sequence[Rule] = (
    ("serial number", UUID, SERIAL),
    ("hardware address", MAC, ADDRESS),
    ("hardware address", GUID, ADDRESS),
    ("network address", IP4, _address),
    ("network address", IP6, _address),
    ("long random word", RANDOM, _random),
    ("long random word", HEX, HIDDEN),
)
