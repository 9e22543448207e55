"""Content → HTML. Jinja2 escapes what files say; what scripts draw is data in the page, never markup.

The page's own rules (content security policy) let it run the scripts that are in it, told by their hashes, and load
nothing from anywhere.
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

SCRIPTS = ("words.js", "table.js", "charts.js", "page.js")

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


# Where a template's data goes. No text in a page has this character: HTML has none, and `printable` takes it out.
HERE = "\0"


def filled(template: str, embed: Any, **values: Any) -> bytes:
    """A template with its values and the data for its scripts; `BadInput` with the remedy without Jinja2.

    The data is put in as bytes: as text it would be held several times, and it is most of a large page.
    """
    before, after = _template(template).render(version=VERSION, data=HERE, **values).split(HERE)
    return b"".join((before.encode(), embedded(embed), after.encode()))


REST = "style-src 'unsafe-inline'{0}; img-src{0} data: blob:; base-uri 'none'; form-action 'none'"


def policy(scripts: Sequence[str]) -> str:
    """What a lone page may do: run these scripts, show pictures that it drew itself, and nothing else."""
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    return f"default-src 'none'; script-src {hashes}; {REST.format('')}"


def site_policy() -> str:
    """What a page of a site may do: run the scripts that lie beside it, and nothing else."""
    return f"default-src 'none'; script-src 'self'; {REST.format(' ' + chr(39) + 'self' + chr(39))}"


def embedded(content: Any) -> bytes:
    """JSON that can stand in a script element, whatever texts are in it."""
    return to_bytes(content).replace(b"<", b"\\u003c").replace(b">", b"\\u003e").replace(b"&", b"\\u0026")


@cache
def plotly() -> str:
    """Plotly's script; `BadInput` with the remedy where it is not installed."""
    found = util.find_spec("plotly")
    if found is None or found.origin is None:
        raise BadInput(REMEDY)
    path = Path(found.origin).parent / "package_data" / "plotly.min.js"
    try:
        # A script element ends at its closing tag, even inside of a text.
        return path.read_text(encoding="utf-8").replace("</script", "<\\/script")
    except OSError:
        raise BadInput(f"Plotly is here without its script {path.name}; {REMEDY}") from None


@cache
def asset(name: str) -> str:
    """A file of the page's own."""
    return resources.files("deepbench").joinpath("report", "page", name).read_text(encoding="utf-8")


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
