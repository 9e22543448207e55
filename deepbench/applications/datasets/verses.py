"""The verses of the Bible in Spanish (Reina-Valera 1909) and in English (King James), in the same order."""

from __future__ import annotations

import re
import struct
import zlib
from html import unescape
from pathlib import Path

from deepbench.applications.datasets import Dataset, Package
from deepbench.core.errors import BadInput

TEXTS = "usr/share/sword/modules/texts/ztext"
SPANISH, ENGLISH = "spaRV1909eb", "engKJV2006eb"

# Notes and headings are not part of a verse; of all other marks the text between them is.
LEFT_OUT = re.compile(r"<(note|title)\b.*?</\1>", re.DOTALL)
MARK = re.compile(r"<[^>]*>")

# A book is far smaller; a damaged one must not fill the memory.
MOST_BOOK_BYTES = 16 * 2**20


class Verses(Dataset):
    """Two modules of the SWORD project with the same numbering of verses."""

    name = "verses"
    title = "Spanish and English verses"
    about = "31,000 verses of the Bible in Spanish (1909) and English (King James)"
    licence = "public domain"
    terms = "In the United Kingdom the King James version is under letters patent of the Crown."
    packages = (
        Package(
            "debian",
            "sword-text-sparv",
            "2.60-1",
            2_722_332,
            "5c87f9b2bc97457e8a872f5bae7ea7ce59cb3de1dcee73e4d4740451863694cf",
        ),
        Package(
            "debian",
            "sword-text-kjv",
            "14.3-1",
            2_800_476,
            "9f463f28ce665f6f528fc723179722bced880a4c5485f7a41bf742838315de57",
        ),
    )
    files = tuple(f"{TEXTS}/{module}/*t.bz*" for module in (SPANISH, ENGLISH))
    digest = "3a3ec1e9b2a3fd8550286521ff00f8cfb2b06a65df5258eebd39d17e751319d3"

    def load(self, folder: Path) -> list[tuple[str, str]]:
        """Pairs of a Spanish and an English verse, in the order of the books."""
        both = zip(*(_module(folder / TEXTS / name) for name in (SPANISH, ENGLISH)), strict=True)
        return [(spanish, english) for spanish, english in both if spanish and english]


def _module(folder: Path) -> list[str]:
    """The texts of a module of the format zText: an index of books, an index of verses, and compressed books.

    Numbers are of 32 bits, and lengths of 16 bits, least significant byte first.
    """
    found = []
    for testament in ("ot", "nt"):
        books, verses, content = ((folder / f"{testament}.bz{kind}").read_bytes() for kind in "svz")
        texts = [_book(content[at : at + size]) for at, size, _ in struct.iter_unpack("<III", books)]
        found += [_plain(texts[book][at : at + size]) for book, at, size in struct.iter_unpack("<IIH", verses)]
    return found


def _book(compressed: bytes) -> bytes:
    try:
        return zlib.decompressobj().decompress(compressed, MOST_BOOK_BYTES) if compressed else b""
    except zlib.error as error:
        raise BadInput(f"a book of the data set verses is damaged: {error}") from None


def _plain(verse: bytes) -> str:
    text = MARK.sub("", LEFT_OUT.sub("", verse.decode("utf-8", "replace")))
    return " ".join(unescape(text).replace("¶", " ").split())


DATASET = Verses()
