"""Pages as HTML. Jinja2 escapes texts of files, and the data of scripts is JSON in the page, never markup.

The content security policy of a page allows its own scripts, identified by hash, and loads nothing else.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources, util
from pathlib import Path
from typing import Any

from deepbench.core.errors import BadInput
from deepbench.core.json_lines import to_bytes
from deepbench.core.version import VERSION

SCRIPTS = (
    *("format.js", "table.js", "charts.js", "figures.js", "machines.js", "first_screen.js", "changes.js"),
    "page.js",
)

REMEDY = "a page needs Jinja2 and Plotly: pip install jinja2 plotly"


def page(content: Mapping[str, Any], title: str) -> bytes:
    """A page that needs no other file, in UTF-8."""
    scripts = [plotly(), *map(asset, SCRIPTS)]
    return filled(
        "report.html",
        title=title,
        content=content,
        style=asset("page.css"),
        scripts=scripts,
        embed=content,
        policy=policy(scripts),
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
    """Plotly's script; `BadInput` with the remedy where it is not installed."""
    spec = util.find_spec("plotly")
    if spec is None or spec.origin is None:
        raise BadInput(REMEDY)
    path = Path(spec.origin).parent / "package_data" / "plotly.min.js"
    try:
        # A closing tag ends a script element even inside a string.
        return path.read_text(encoding="utf-8").replace("</script", "<\\/script")
    except OSError:
        raise BadInput(f"Plotly is installed without its script {path.name}; {REMEDY}") from None


@cache
def asset(name: str) -> str:
    """A template, style or script of this folder."""
    return resources.files("deepbench").joinpath("reporting", "page", name).read_text(encoding="utf-8")


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
