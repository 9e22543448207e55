"""Pages: boxes and classes follow from a PDF file."""

import numpy as np
import pytest

from deepbench.applications.datasets import pages
from deepbench.applications.datasets.pages import CODE, FIGURE, HEADING, TEXT, pages_of
from deepbench.core.errors import BadInput, Unavailable


def pdf(*contents, fonts=("Helvetica", "Helvetica-Bold", "Courier")):
    """A PDF file with pages of 600 × 800 points; F0, F1, … are its fonts."""
    names = " ".join(f"/F{i} << /Type /Font /Subtype /Type1 /BaseFont /{font} >>" for i, font in enumerate(fonts))
    numbers = [3 + 2 * i for i in range(len(contents))]
    kids = " ".join(f"{number} 0 R" for number in numbers)
    things = ["<< /Type /Catalog /Pages 2 0 R >>", f"<< /Type /Pages /Kids [{kids}] /Count {len(contents)} >>"]
    for number, content in zip(numbers, contents, strict=True):
        things.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents {number + 1} 0 R"
            f" /Resources << /Font << {names} >> >> >>"
        )
        things.append(f"<< /Length {len(content)} >>\nstream\n{content}\nendstream")
    text, places = "%PDF-1.4\n", []
    for number, thing in enumerate(things, 1):
        places.append(len(text))
        text += f"{number} 0 obj\n{thing}\nendobj\n"
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    size = len(things) + 1
    table = f"xref\n0 {size}\n0000000000 65535 f \n{table}trailer << /Size {size} /Root 1 0 R >>\n"
    return (text + table + f"startxref\n{len(text)}\n%%EOF\n").encode()


def line(x, y, text, font=0, size=10):
    return f"BT /F{font} {size} Tf {x} {y} Td ({text}) Tj ET\n"


PARAGRAPH = "".join(line(100, 600 - 12 * i, "a line of several words that is long enough for text") for i in range(5))


def found(content, **names):
    pytest.importorskip("pypdfium2")
    ((picture, boxes, classes),) = pages_of(pdf(content, **names), "a.pdf")
    points = [[round(float(v)) for v in box * [600, 800, 600, 800]] for box in boxes]
    return picture, sorted(zip(classes.tolist(), points, strict=True))


def test_lines_of_a_paragraph_are_one_box_around_their_ink():
    picture, [(kind, (left, top, right, bottom))] = found(PARAGRAPH)

    assert TEXT == kind
    # The first line stands at 600 points from below, which is 200 from above; the last one 48 lower.
    assert (97, 99) <= (left, left) <= (99, 101)
    assert 188 <= top <= 193
    assert 248 <= bottom <= 254
    assert 315 <= right <= 330
    ink = picture < 128
    assert ink.any()
    rows, columns = np.flatnonzero(ink.any(1)) * 800 / 300, np.flatnonzero(ink.any(0)) * 600 / 300
    assert top - 4 <= rows.min() <= rows.max() <= bottom + 4
    assert left - 4 <= columns.min() <= columns.max() <= right + 4


def test_larger_and_bold_lines_are_headings_and_fixed_ones_are_code():
    content = PARAGRAPH + line(100, 650, "Large", size=14) + line(100, 700, "All bold", 1)
    content += line(100, 500, "print(1)", 2) + line(100, 488, "print(2)", 2)

    kinds = [kind for kind, _ in found(content)[1]]

    assert [TEXT, HEADING, HEADING, CODE] == kinds


def test_a_word_in_another_font_does_not_change_the_class_of_its_line():
    content = PARAGRAPH + line(100, 540, "some words of the body and then") + line(244, 540, "code()", 2)

    kinds = [kind for kind, _ in found(content)[1]]

    assert [TEXT] == kinds


def test_two_columns_are_two_boxes():
    right = "".join(line(380, 600 - 12 * i, "the right column has lines too") for i in range(5))

    boxes = [box for _, box in found(PARAGRAPH + right)[1]]

    assert 2 == len(boxes)
    assert boxes[0][2] < boxes[1][0]


BARS = "".join(f"{200 + 20 * i} 300 10 {30 + 10 * i} re f\n" for i in range(8))


def test_paths_near_each_other_are_a_figure_with_its_labels():
    # A tick at the left and one below are in a font that stands at figures only.
    labels = line(180, 320, "30", 1, 8) + line(240, 285, "bars", 1, 8)

    boxes = found(PARAGRAPH + BARS + labels)[1]

    assert [TEXT, FIGURE] == [kind for kind, _ in boxes]
    left, top, right, bottom = boxes[1][1]
    assert (180, 350) == (left, right)
    assert 800 - 300 - 100 == top
    assert 513 <= bottom <= 517


def test_rules_and_frames_are_no_figure():
    rules = "100 620 300 1 re f\n100 530 300 1 re f\n100 530 300 90 re S\n"

    assert [TEXT] == [kind for kind, _ in found(PARAGRAPH + rules)[1]]


def test_pages_without_a_box_are_left_out():
    pytest.importorskip("pypdfium2")

    assert 1 == len(list(pages_of(pdf("", PARAGRAPH, "10 10 5 5 re f"), "a.pdf")))


def test_pictures_are_grey_and_the_same_each_time():
    first, second = (found(PARAGRAPH + BARS)[0] for _ in range(2))

    assert (300, 300) == first.shape
    assert (0, 255) == (first.min(), first.max())
    assert (first == second).all()


@pytest.mark.parametrize("content", [b"", b"no PDF", pdf(PARAGRAPH)[:100]])
def test_a_damaged_file_is_a_sentence(content):
    pytest.importorskip("pypdfium2")

    with pytest.raises(BadInput, match=r"a\.pdf of the data set pages cannot be read"):
        list(pages_of(content, "a.pdf"))


def test_without_pypdfium2_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pypdfium2", None)

    with pytest.raises(Unavailable, match="pip install pypdfium2"):
        list(pages_of(pdf(PARAGRAPH), "a.pdf"))


@pytest.fixture
def folder(monkeypatch, tmp_path):
    pytest.importorskip("pypdfium2")
    monkeypatch.setenv("DEEPBENCH_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(pages.DATASET, "files", ("*.pdf",))
    for name in "ab":
        (tmp_path / f"{name}.pdf").write_bytes(pdf(PARAGRAPH, PARAGRAPH + BARS))
    return tmp_path


def same(a, b):
    pairs = zip(a.boxes + a.classes, b.boxes + b.classes, strict=True)
    return (a.pictures == b.pictures).all() and a.documents == b.documents and all((x == y).all() for x, y in pairs)


def test_pictures_and_boxes_are_kept(folder, monkeypatch):
    made = pages.DATASET.load(folder)
    monkeypatch.setattr(pages, "pages_of", None)  # the second time nothing is rendered

    assert same(made, pages.DATASET.load(folder))
    assert ["a.pdf", "a.pdf", "b.pdf", "b.pdf"] == made.documents
    assert [1, 2, 1, 2] == [len(boxes) for boxes in made.boxes]


def test_what_is_kept_belongs_to_the_bytes_of_the_files(folder):
    pages.DATASET.load(folder)
    (folder / "a.pdf").write_bytes(pdf(PARAGRAPH))

    assert 3 == len(pages.DATASET.load(folder).pictures)


@pytest.mark.parametrize("content", [b"", b"damaged", None])
def test_what_is_kept_is_made_again_where_it_is_damaged(folder, content):
    made = pages.DATASET.load(folder)
    (kept,) = (folder / "data" / "made").iterdir()
    kept.write_bytes(kept.read_bytes()[:1000] if content is None else content)

    assert same(made, pages.DATASET.load(folder))
    assert len(kept.read_bytes()) > 1000


def test_a_folder_that_cannot_be_written_is_no_failure(folder, monkeypatch):
    (folder / "file").write_text("")
    monkeypatch.setenv("DEEPBENCH_DATA", str(folder / "file"))

    assert 4 == len(pages.DATASET.load(folder).pictures)
