"""Pages of real documents: grey pictures of them, and the boxes of what is on them.

The documents are PDF files of Debian packages. A PDF file says which font every piece of text has and where it is, so
the boxes and their classes follow from the file itself, and nobody had to draw them.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deepbench.applications.datasets import Dataset, Package, digest_of, members, needed, own_folder
from deepbench.applications.training import checkpoint
from deepbench.core.errors import BadInput
from deepbench.core.files import NotWritten, replacing

R_LIBRARY = "usr/lib/R/site-library"

CLASSES = ("text", "heading", "code", "figure")
TEXT, HEADING, CODE, FIGURE = range(4)

SIDE = 300
"""Width and height of a picture. Pages are higher than wide, so a picture is wider than its page."""

# Increase it with every change of what follows from a file: older pictures and boxes are made anew.
VERSION = 1

# Part of the names of bold fonts. TeX's are called CMB10 or CMBX12, those of URW end in Medi.
BOLD = re.compile(r"bold|black|demi|medi|^(\w{6}\+)?(cmb|sfbx)", re.IGNORECASE)

# In points of 1/72 inch: the width and height of a figure, the distance of its parts and that of its labels, and the
# width and height of a box of text.
LEAST_FIGURE, FIGURE_GAP, LABEL_GAP = 36.0, 12.0, 30.0
LEAST_WIDTH, LEAST_HEIGHT = 24.0, 5.0

# A box of text is larger than its ink by this share of the font size on every side.
MARGIN = 0.25

# A figure without a picture has at least so many paths; fewer are rules and frames.
LEAST_PATHS = 8

# Shares of the font size: pieces of a line are nearer than the first and overlap by the second (the gap is negative),
# and lines of a block are nearer than the third.
WORD_GAP, SAME_LINE, LINE_GAP = 2.0, -0.25, 0.8

LARGER = 1.1
"""A heading is larger than the font that most text of its document has by this factor, or bold."""

Boxes = NDArray[np.float32]
"""Rows of left, top, right, bottom, as shares of the width and height of the page."""

Box = NDArray[np.float64]
"""Left, top, right, bottom in points, from the upper left corner of the page."""


class Pages(NamedTuple):
    """Pictures of pages, and the boxes on each."""

    pictures: NDArray[np.uint8]
    """Pages × `SIDE` × `SIDE`; 255 is white."""
    boxes: list[Boxes]
    """Of each page."""
    classes: list[NDArray[np.int64]]
    """Of each box: an index of `CLASSES`."""
    documents: list[str]
    """Of each page: the name of its file."""


class Piece(NamedTuple):
    """One object of a page."""

    box: Box
    kind: str
    """`text`, `path`, or `picture` for anything that is a figure by itself."""
    size: float = 0.0
    """Of the font, in points."""
    font: str = ""
    is_fixed: bool = False
    """Whether all letters of the font have the same width."""

    @property
    def width(self) -> float:
        """In points."""
        return float(self.box[2] - self.box[0])


class PagesOfDocuments(Dataset):
    """Manuals and vignettes of several layouts."""

    name = "pages"
    title = "Pages of documents"
    about = "869 pages of manuals and articles with the boxes of text, headings, code and figures"
    licence = "GPL-2 (R packages), GPL-3 (asymptote), BSD (reportlab)"
    packages = (
        Package(
            "debian",
            "r-cran-hsaur3",
            "1.0-13-1",
            3_167_284,
            "21221b89b0b61b4abfa8731f2b1f427858b9c3fa828137e2356d5d5b6c27c4b3",
        ),
        Package(
            "debian",
            "r-cran-flexmix",
            "2.3-18-1",
            1_678_588,
            "0e034e32acc37efe705db9a27dc0d1ae10358879442b1f749906171020e1ee2e",
        ),
        Package(
            "debian",
            "r-cran-multcomp",
            "1.4-22-1",
            707_672,
            "c60126df9eb74d61d6101163fd4ba3c7484c5773fd1013e95bae11ecfa1740b5",
            "multcomp",
        ),
        Package(
            "debian",
            "r-cran-sandwich",
            "3.0-2-1",
            1_437_668,
            "a90e7d3c69c70a6d73e4bc63d1f20eae3b4a73866d5266246dd5b3d980c60d79",
            "sandwich",
        ),
        Package(
            "debian",
            "r-cran-vcd",
            "1:1.4-11-1",
            1_251_456,
            "959639853b06a9056b4494e145bf84394a329805645e80c4384091323b6c6ae4",
        ),
        Package(
            "debian",
            "asymptote-doc",
            "2.85+ds-1",
            3_322_716,
            "b2ae6e97c64ede66c1e41cc913f790b01188d198557203a2b3c500ba3495e6ca",
            "asymptote",
        ),
        Package(
            "debian",
            "python-reportlab-doc",
            "3.6.12-1+deb12u1",
            708_312,
            "f7d27c209eb0c2063b604f34414681d0694a83280aa1668f0bccc685f607131c",
            "python-reportlab",
        ),
    )
    files = (
        *(f"{R_LIBRARY}/{name}/doc/*.pdf" for name in ("HSAUR3", "flexmix", "multcomp", "sandwich", "vcd")),
        "usr/share/doc/asymptote/asymptote.pdf",
        "usr/share/doc/python-reportlab-doc/reportlab-userguide.pdf",
    )
    digest = "cb0c4eab0f5018ad271c22b230b6b4515fe111ab89c1f34f8a71f299ec5bfd7f"

    def load(self, folder: Path) -> Pages:
        """All pages, in the order of the names of the files."""
        return _kept_or_made(folder, members(self, folder))


# ---- pictures and boxes are made once


def _kept_or_made(folder: Path, paths: list[Path]) -> Pages:
    """The pages of documents, from the file that an earlier call has left, if there is one."""
    pdfium = needed("pages", "pypdfium2")
    key = f"{digest_of(folder, paths)[0]} {pdfium.version.PYPDFIUM_INFO} {pdfium.version.PDFIUM_INFO} {VERSION}"
    kept = own_folder() / "made" / f"pages-{hashlib.sha256(key.encode()).hexdigest()[:16]}.npz"
    if (pages := _read(kept)) is not None:
        return pages
    pages = _made(folder, paths)
    with contextlib.suppress(OSError, NotWritten):  # without the file the next call takes longer, no more
        _write(kept, pages)
    return pages


def _write(path: Path, pages: Pages) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    state = {
        "pictures": pages.pictures,
        "boxes": np.concatenate(pages.boxes),
        "classes": np.concatenate(pages.classes),
        "counts": [len(boxes) for boxes in pages.boxes],
        "documents": pages.documents,
    }
    with replacing(path, ours=True) as draft:
        checkpoint.write(draft, state)


def _read(path: Path) -> Pages | None:
    """What `_write` has written; None if there is no such file or it is damaged."""
    try:
        found = checkpoint.read(path)
        pictures, documents, counts = found["pictures"], found["documents"], np.array(found["counts"], np.int64)
        ends = np.cumsum(counts)[:-1]
        boxes, classes = np.split(found["boxes"], ends), np.split(found["classes"], ends)
        fits = pictures.shape == (len(counts), SIDE, SIDE) and len(counts) == len(documents)
        fits &= all((len(b), 4) == b.shape and (len(b),) == c.shape for b, c in zip(boxes, classes, strict=True))
        return Pages(pictures, boxes, classes, documents) if fits else None
    except (BadInput, KeyError, TypeError, ValueError, AttributeError):
        return None


def _made(folder: Path, paths: Sequence[Path]) -> Pages:
    pictures, boxes, classes, documents = [], [], [], []
    for path in paths:
        for page in pages_of(path.read_bytes(), path.name):
            pictures.append(page[0])
            boxes.append(page[1])
            classes.append(page[2])
            documents.append(path.relative_to(folder).as_posix())
    return Pages(np.stack(pictures), boxes, classes, documents)


# ---- from a PDF file to pictures and boxes


def pages_of(content: bytes, name: str) -> Iterator[tuple[NDArray[np.uint8], Boxes, NDArray[np.int64]]]:
    """The picture, the boxes and their classes of each page of a PDF file. Pages without a box are left out.

    `BadInput` for what is no PDF file; `name` is what the message calls it.
    """
    pdfium = needed("pages", "pypdfium2")
    raw = pdfium.raw
    no_fonts = raw.FPDF_SYSFONTINFO(version=1)
    raw.FPDF_SetSystemFontInfo(no_fonts)  # fonts that a file lacks come from PDFium itself, not from the machine
    try:
        document = pdfium.PdfDocument(content)
        try:
            pages = [(_pieces(raw, page), page.get_size(), _picture(raw, page)) for page in document]
        finally:
            document.close()
    except pdfium.PdfiumError as error:
        raise BadInput(f"{name} of the data set pages cannot be read: {error}") from None
    finally:
        raw.FPDF_SetSystemFontInfo(None)
    all_pieces = [pieces for pieces, _, _ in pages]
    body, labels = _body_size(all_pieces), _label_fonts(all_pieces)
    for pieces, (width, height), picture in pages:
        found = list(_blocks(pieces, body, labels))
        if found:
            boxes = np.stack([box for box, _ in found]) / [width, height, width, height]
            yield picture, boxes.clip(0.0, 1.0).astype(np.float32), np.array([kind for _, kind in found], np.int64)


def _picture(raw: Any, page: Any) -> NDArray[np.uint8]:
    """A page as `SIDE` × `SIDE` bytes."""
    picture = np.full((SIDE, SIDE), 255, np.uint8)
    bitmap = raw.FPDFBitmap_CreateEx(SIDE, SIDE, raw.FPDFBitmap_Gray, picture.ctypes.data_as(ctypes.c_void_p), SIDE)
    raw.FPDF_RenderPageBitmap(bitmap, page, 0, 0, SIDE, SIDE, 0, 0)
    raw.FPDFBitmap_Destroy(bitmap)
    return picture


def _pieces(raw: Any, page: Any) -> list[Piece]:
    """The objects of a page that are visible on it."""
    kinds = {raw.FPDF_PAGEOBJ_TEXT: "text", raw.FPDF_PAGEOBJ_PATH: "path"}
    width, height = page.get_size()
    left, bottom, right, top = (ctypes.c_float() for _ in range(4))
    found = []
    for number in range(raw.FPDFPage_CountObjects(page)):
        thing = raw.FPDFPage_GetObject(page, number)
        if not raw.FPDFPageObj_GetBounds(thing, left, bottom, right, top):
            continue
        box = np.array([left.value, height - top.value, right.value, height - bottom.value])
        box = box.clip(0.0, [width, height] * 2)
        kind = kinds.get(raw.FPDFPageObj_GetType(thing), "picture")
        if kind == "text" and (box[2:] <= box[:2]).any():
            continue
        found.append(_text(raw, thing, box) if kind == "text" else Piece(box, kind))
    return found


def _text(raw: Any, thing: Any, box: Box) -> Piece:
    size, matrix, name = ctypes.c_float(), raw.FS_MATRIX(), ctypes.create_string_buffer(100)
    raw.FPDFTextObj_GetFontSize(thing, size)
    raw.FPDFPageObj_GetMatrix(thing, matrix)
    font = raw.FPDFTextObj_GetFont(thing)
    raw.FPDFFont_GetBaseFontName(font, name, len(name))
    scale = abs(matrix.a * matrix.d - matrix.b * matrix.c) ** 0.5
    text = name.value.decode("utf-8", "replace")
    is_fixed = bool(raw.FPDFFont_GetFlags(font) & 1) or bool(re.search("mono|courier|tt", text, re.IGNORECASE))
    return Piece(box, "text", size.value * scale, text, is_fixed)


# ---- from pieces to boxes with classes


def _body_size(pages: Sequence[Sequence[Piece]]) -> float:
    """The font size that most text of a document has, by width."""
    widths: defaultdict[float, float] = defaultdict(float)
    for piece in chain.from_iterable(pages):
        if piece.kind == "text":
            widths[round(piece.size, 1)] += piece.width
    return max(widths, key=lambda size: widths[size], default=0.0)


def _label_fonts(pages: Sequence[Sequence[Piece]]) -> set[str]:
    """The fonts that label figures: more than half of their text, by width, is in figures or near them."""
    near: defaultdict[str, float] = defaultdict(float)
    for pieces in pages:
        figures = _drawings(pieces)
        for piece in pieces:
            if piece.kind == "text":
                near[piece.font] += piece.width if _is_near(piece.box, figures) else -piece.width
    return {font for font, balance in near.items() if balance > 0}


def _blocks(pieces: Sequence[Piece], body: float, labels: set[str]) -> Iterator[tuple[Box, int]]:
    """The boxes of a page in points, each with its class."""
    figures = _figures(pieces, labels)
    yield from ((figure, FIGURE) for figure in figures)
    texts = [piece for piece in pieces if piece.kind == "text" and not any(_is_inside(piece.box, f) for f in figures)]
    lines = [[texts[i] for i in group] for group in _groups([t.box for t in texts], WORD_GAP * body, SAME_LINE * body)]
    kinds = [_kind(line, body) for line in lines]
    for kind in (TEXT, HEADING, CODE):
        of_kind = [_around([piece.box for piece in line]) for line, k in zip(lines, kinds, strict=True) if k == kind]
        for group in _groups(of_kind, 0.0, LINE_GAP * body):
            box = _around([of_kind[i] for i in group])
            if box[2] - box[0] >= LEAST_WIDTH and box[3] - box[1] >= LEAST_HEIGHT:
                yield box + MARGIN * body * np.array([-1.0, -1.0, 1.0, 1.0]), kind


def _kind(line: Sequence[Piece], body: float) -> int:
    """The class of a line: that of more than half of its width."""

    def share(chosen: Sequence[bool]) -> float:
        return sum(p.width for p, c in zip(line, chosen, strict=True) if c) / sum(p.width for p in line)

    bold = [bool(BOLD.search(piece.font)) and not piece.is_fixed for piece in line]
    if share([piece.size > LARGER * body or b for piece, b in zip(line, bold, strict=True)]) > 0.5:
        return HEADING
    return CODE if share([piece.is_fixed for piece in line]) > 0.5 else TEXT


def _figures(pieces: Sequence[Piece], labels: set[str]) -> list[Box]:
    """Boxes of drawings with their labels."""
    drawings = _drawings(pieces)
    words = [p.box for p in pieces if p.kind == "text" and p.font in labels and _is_near(p.box, drawings)]
    grown = []
    for drawing in drawings:
        own = [word for word in words if _is_near(word, [drawing])]
        grown.append(_around([drawing, *own]))
    return [_around([grown[i] for i in group]) for group in _groups(grown, 0.0, 0.0)]


def _drawings(pieces: Sequence[Piece]) -> list[Box]:
    """Boxes of pictures, and of paths that are near each other."""
    drawn = [piece for piece in pieces if piece.kind != "text"]
    found = []
    for group in _groups([piece.box for piece in drawn], FIGURE_GAP, FIGURE_GAP):
        box = _around([drawn[i].box for i in group])
        is_figure = len(group) >= LEAST_PATHS or any(drawn[i].kind == "picture" for i in group)
        if is_figure and min(box[2] - box[0], box[3] - box[1]) >= LEAST_FIGURE:
            found.append(box)
    return found


def _is_near(box: Box, drawings: Sequence[Box]) -> bool:
    gaps = (np.maximum(drawing[:2] - box[2:], box[:2] - drawing[2:]) for drawing in drawings)
    return any((gap <= LABEL_GAP).all() for gap in gaps)


def _is_inside(box: Box, outer: Box) -> bool:
    """Whether the centre of a box is in another one."""
    x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    return bool(outer[0] <= x <= outer[2] and outer[1] <= y <= outer[3])


def _around(boxes: Sequence[Box]) -> Box:
    """The smallest box that contains all boxes."""
    all_of = np.stack(boxes)
    return np.concatenate([all_of[:, :2].min(0), all_of[:, 2:].max(0)])


def _groups(boxes: Sequence[Box], across: float, down: float) -> list[list[int]]:
    """Indices of boxes that belong together: whose surrounding boxes are at most so far apart, until none are."""
    groups: list[list[int]] = []
    around = np.empty((0, 4))
    gap = np.array([across, down])
    for number, box in enumerate(boxes):
        members_of, own = [number], box
        while True:
            apart = np.maximum(around[:, :2] - own[2:], own[:2] - around[:, 2:])
            is_near = np.all(apart <= gap, axis=1)
            if not is_near.any():
                break
            members_of += [i for at in np.flatnonzero(is_near) for i in groups[at]]
            own = _around([own, *around[is_near]])
            groups = [group for group, near in zip(groups, is_near, strict=True) if not near]
            around = around[~is_near]
        groups.append(members_of)
        around = np.concatenate([around, own[None]])
    return groups


DATASET = PagesOfDocuments()
