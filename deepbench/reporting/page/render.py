"""Pages as HTML. Jinja2 escapes texts of files, and the data of scripts is JSON in the page, never markup.

The content security policy of a page allows its own scripts, identified by hash, and loads nothing else.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

from deepbench.core.errors import BadInput
from deepbench.core.json_lines import to_bytes
from deepbench.core.version import VERSION

SCRIPTS = (
    *(
        "load_plotly.js",
        "format.js",
        "table.js",
        "charts.js",
        "figures.js",
        "machines.js",
        "first_screen.js",
        "changes.js",
    ),
    "page.js",
)

# Plotly's bundle of bars and points, as npm's package plotly.js-basic-dist-min has it, compressed by `gzip -9n`.
PLOTLY = "plotly-basic.min.js.gz"

REMEDY = "a page needs Jinja2: pip install jinja2"


def page(content: Mapping[str, Any], title: str) -> bytes:
    """A page that needs no other file, in UTF-8."""
    scripts = [*map(asset, SCRIPTS)]
    return filled(
        "report.html",
        title=title,
        content=content,
        style=asset("page.css"),
        packed=base64.b64encode(packed_plotly()).decode(),
        scripts=scripts,
        embed=content,
        policy=policy([plotly(), *scripts]),
        shared=None,
        download=None,
    )


# Marks the place of the data in a template. HTML cannot contain this character, and `printable` removes it from texts.
DATA_MARK = "\0"


def filled(template: str, embed: Any, **values: Any) -> bytes:
    """A template with its values and the data of its scripts; `BadInput` with the remedy without Jinja2.

    The data, most of a large page, is joined as bytes: Jinja2 would hold several copies of it as text.
    """
    before, after = _template(template).render(version=VERSION, data=DATA_MARK, **values).split(DATA_MARK)
    return b"".join((before.encode(), embedded(embed), after.encode()))


REST = "style-src 'unsafe-inline'{0}; img-src{0} data: blob:; base-uri 'none'; form-action 'none'"


def policy(scripts: Sequence[str]) -> str:
    """The content security policy of a single page: these scripts, and images that they draw."""
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    return f"default-src 'none'; script-src {hashes}; {REST.format('')}"


def site_policy() -> str:
    """The content security policy of a page of a site: scripts of the site."""
    return f"default-src 'none'; script-src 'self'; {REST.format(' ' + chr(39) + 'self' + chr(39))}"


def embedded(content: Any) -> bytes:
    """JSON that is safe inside a script element, whatever texts it contains."""
    return to_bytes(content).replace(b"<", b"\\u003c").replace(b">", b"\\u003e").replace(b"&", b"\\u0026")


@cache
def plotly() -> str:
    """Plotly's script."""
    return gzip.decompress(packed_plotly()).decode()


def packed_plotly() -> bytes:
    """The same, compressed by gzip."""
    return _bytes(PLOTLY)


def require_templates() -> None:
    """`BadInput` with the remedy without Jinja2."""
    _template("head.html")


@cache
def asset(name: str) -> str:
    """A template, style or script of this folder."""
    return _bytes(name).decode()


def _bytes(name: str) -> bytes:
    return resources.files("deepbench").joinpath("reporting", "page", name).read_bytes()


@cache
def _template(name: str) -> Any:
    try:
        import jinja2
    except ImportError:
        raise BadInput(REMEDY) from None
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(asset), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    return environment.get_template(name)
