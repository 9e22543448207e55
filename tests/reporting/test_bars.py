"""Bars of times as SVG: widths are proportional, texts are escaped, intervals and marks are drawn."""

import re
import xml.etree.ElementTree as ET

import pytest

from deepbench.reporting.bars import LEFT, WIDE, StackedBar, svg

SVG = "{http://www.w3.org/2000/svg}"


def rectangles(text):
    """Of bars: x, width and the first line of the tooltip."""
    found = []
    for r in ET.fromstring(text).iter(f"{SVG}rect"):
        title = r.find(f"{SVG}title")
        if title is not None:
            found.append((float(r.get("x")), float(r.get("width")), title.text.split(":")[0]))
    return found


def test_parts_follow_each_other_and_the_longest_bar_is_full():
    text = svg(
        "steps", [StackedBar("a", {"products": 3.0, "other": 1.0}, "4 s"), StackedBar("b", {"products": 2.0}, "2 s")]
    )

    first, second, third = rectangles(text)
    assert first == (LEFT, WIDE * 0.75, "products")
    assert second == (LEFT + WIDE * 0.75, WIDE * 0.25, "other")
    assert third == (LEFT, WIDE * 0.5, "products")


def test_an_interval_and_a_mark_are_inside_the_scale():
    text = svg("steps", [StackedBar("a", {"products": 2.0}, "", (1.0, 4.0), 3.0)])
    (x, width, _), (mark, _, title) = rectangles(text)

    assert (x, width) == (LEFT, WIDE * 0.5)
    assert (mark + 1.5, title) == (pytest.approx(LEFT + WIDE * 0.75), "measured")
    (path,) = ET.fromstring(text).iter(f"{SVG}path")
    assert f"H{LEFT + WIDE:.1f}" in path.get("d")


def test_names_of_others_are_escaped_and_get_a_colour_each():
    text = svg("<b>", [StackedBar("<i>", {"a&b": 1.0, "c": 1.0}, "</svg>")])
    colors = {r.get("fill") for r in ET.fromstring(text).iter(f"{SVG}rect") if r.find(f"{SVG}title") is not None}

    assert "&lt;b&gt;" in text
    assert 2 == len(colors)


def test_a_long_legend_takes_several_rows():
    many = {f"a rather long name {i}": 1.0 for i in range(9)}
    root = ET.fromstring(svg("", [StackedBar("", many, "")]))
    places = [(float(t.get("x")), float(t.get("y"))) for t in root.iter(f"{SVG}text")]

    assert all(x < 860 for x, _ in places)
    assert len({y for _, y in places}) >= 4


def test_nothing_is_no_error():
    ET.fromstring(svg("nothing", []))
    ET.fromstring(svg("zero", [StackedBar("a", {"products": 0.0}, "")]))


def test_a_picture_is_as_wide_as_its_longest_text():
    text = "98.2 ms, from 93.1 ms to 104 ms (disturbed)" * 2
    picture = svg("a title", [StackedBar("predicted", {"products": 1.0}, text, (0.9, 1.0))])
    width = int(re.search(r'viewBox="0 0 ([0-9]+) ', picture)[1])
    start = float(re.findall(r'<text x="([0-9.]+)"', picture)[-1])

    assert width >= start + 7 * len(text)
    assert f'<rect width="{width}"' in picture


def test_notes_are_lines_below_the_bars():
    bars = [StackedBar("a", {"products": 2.0}, "")]
    plain, noted = svg("steps", bars), svg("steps", bars, ["Source: <them>.", "Unchecked."])
    heights = [float(ET.fromstring(text).get("viewBox").split()[3]) for text in (plain, noted)]
    lines = [t for t in ET.fromstring(noted).iter(f"{SVG}text") if t.get("font-size") == "12"]

    assert ["Source: <them>.", "Unchecked."] == [t.text for t in lines]
    assert all(heights[0] <= float(t.get("y")) < heights[1] for t in lines)
