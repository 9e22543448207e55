"""Figures without a browser: their colors and those of libraries."""

import re

from deepbench.core.backend import all_backends
from deepbench.reporting.page.render import asset


def colors_of(text):
    return dict(re.findall(r'"?(--[a-z]+)"?: "?(#[0-9a-f]{6})"?', text))


def test_exported_figures_have_the_light_colors_of_the_page():
    light = re.search(r"const LIGHT = \{(.*?)\};", asset("figures.js"), re.S)[1]
    root = re.search(r":root \{(.*?)\}", asset("page.css"), re.S)[1]

    assert colors_of(light) == colors_of(root)
    assert len(colors_of(light)) == 8


def test_every_library_has_a_color_and_symbol_of_its_own():
    text = re.search(r"const LIBRARIES = new Map\((.*?)\n\);", asset("charts.js"), re.S)[1]
    found = re.findall(r'^\s+"?([\w ]+?)"?: \[(\d), (\d)\],$', text, re.M)
    looks = {name: (int(color), int(symbol)) for name, color, symbol in found}

    built_in = {b.title for b in all_backends().values() if type(b).__module__.startswith("deepbench.")}
    assert built_in <= set(looks)
    assert len(looks) == len(found) == len(set(looks.values()))
    competitors = ("AOCL", "MKL", "oneDNN", "OpenBLAS", "SciPy", "PyTorch", "NumPy float64", "C loops")
    assert len(competitors) == len({looks[name][0] for name in competitors})
