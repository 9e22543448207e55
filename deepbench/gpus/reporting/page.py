"""The page "Which GPU for my model?": GPUs by steps of models, for phases, precisions, batches and contexts.

The page has the values of every step, and its script ranks the GPUs by what the reader chooses. Its words are those of
`gpus/reporting/ranking.py` (a test compares the two).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from deepbench.core.errors import BadInput
from deepbench.core.progress import Progress, no_progress
from deepbench.gpus.ranking import AskedStep, Candidate, ModelRanking, rank_all
from deepbench.gpus.reporting.ranking import NOTES, SOURCE, heading
from deepbench.gpus.reporting.ranking import note as why_not
from deepbench.gpus.serving.steps import FORMATS
from deepbench.gpus.sheet import sheet
from deepbench.plan.suites import model_of
from deepbench.reporting.page import render

TITLE = "Which GPU for my model?"
TEMPLATE, STYLE = "gpus.html", "gpus.css"
SCRIPTS = ("format.js", "table.js", "gpus.js")

PHASES = ("decode", "prefill")
PRECISIONS = ("bf16", "fp8", "fp8_block", "nvfp4", "mxfp4")
BATCHES = (1, 4, 16, 64, 256)
CONTEXTS = (1024, 4096, 16384)

# Of numbers: more than any cell shows, and as few as make a small page.
DIGITS = 6


def page(content: Mapping[str, Any], title: str) -> bytes:
    """A page that needs no other file, in UTF-8."""
    scripts = [*map(render.asset, SCRIPTS)]
    return render.filled(
        TEMPLATE,
        title=title,
        models=[model["title"] for model in content["models"]],
        notes=[note for note in NOTES if note != SOURCE],
        style=render.asset("page.css") + render.asset(STYLE),
        scripts=scripts,
        policy=render.policy(scripts),
        embed=content,
    )


def content(
    suites: Sequence[str],
    machines: Sequence[str],
    prices: Mapping[str, float] | None = None,
    progress: Progress = no_progress,
) -> dict[str, Any]:
    """What the page knows: each step of each model on each GPU.

    Args:
        suites: language models.
        machines: names of GPUs.
        prices: of a GPU-hour, by name; a reader can change them.
        progress: is called with each GPU.
    """
    if without := [suite for suite in suites if not set(PHASES) & set(model_of(suite).phases)]:
        raise BadInput(f"{without[0]} has no phase decode or prefill; GPUs are ranked by the steps of language models")
    asked = [step for suite in suites for step in _asked(suite)]
    found = rank_all(asked, machines, progress=progress)
    texts = _Texts()
    models: dict[str, dict[str, Any]] = {}
    for step in found:
        model = models.setdefault(step.suite, {"title": step.title, "suite": step.suite, "steps": []})
        model["steps"].append(_step(step, machines, texts))
    for model in models.values():  # what no GPU has a time of is no choice
        timed = {step["precision"] for step in model["steps"] if any(row[TIME] is not None for row in step["gpus"])}
        model["steps"] = [step for step in model["steps"] if step["precision"] in timed]
    return {
        "gpus": [
            {"name": of.machine, "title": of.title, "power_w": of.power_w, "price": (prices or {}).get(of.machine)}
            for of in map(sheet, machines)
        ],
        "models": [*models.values()],
        "row": ROW,
        "texts": texts.known,
        "source": SOURCE,
    }


def _asked(suite: str) -> list[AskedStep]:
    model = model_of(suite)
    phases = [phase for phase in PHASES if phase in model.phases]
    # A model without experts has nothing in MXFP4, so it would be the same as in bf16.
    precisions = [name for name in PRECISIONS if name != "mxfp4" or model.sizes.get("experts")]
    return [
        AskedStep(suite, phase, {"batch": str(batch), "context": str(context)}, FORMATS[precision])
        for phase, precision, batch, context in product(phases, precisions, BATCHES, CONTEXTS)
    ]


ROW = (
    *("devices", "memory", "fits", "note", "units", "time_s", "low_s", "high_s"),
    *("measured", "between", "modelled", "frameworks"),
)
"""Of a GPU in a step. The note and the frameworks are indices of the texts of the page."""

TIME = ROW.index("time_s")


class _Texts:
    """Texts that occur often, each once."""

    def __init__(self) -> None:
        self.known: list[str] = []
        self._index: dict[str, int] = {}

    def index(self, text: str | None) -> int | None:
        """The position of a text in the list."""
        if text is None:
            return None
        if text not in self._index:
            self._index[text] = len(self.known)
            self.known.append(text)
        return self._index[text]


def _step(found: ModelRanking, machines: Sequence[str], texts: _Texts) -> dict[str, Any]:
    by_name = {c.machine: c for c in found.candidates}
    precision = next(name for name, kind in FORMATS.items() if kind == found.format)
    return {
        "phase": found.phase,
        "precision": precision,
        "batch": found.parameters["batch"],
        "context": found.parameters["context"],
        "heading": heading(found),
        "unit": found.unit,
        "gpus": [_row(by_name[name], texts) for name in machines],
    }


def _row(c: Candidate, texts: _Texts) -> list[Any]:
    interval = c.interval or (None, None)
    return [
        c.devices,
        _short(c.weights_bytes + c.cache_bytes),
        c.fits,
        texts.index(why_not(c)),
        c.units,
        *map(_short, (c.time_s, *interval)),
        *(_short(c.share(how)) for how in ("measured", "interpolated", "modelled")),
        texts.index(", ".join(c.steps)),
    ]


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{DIGITS}g}")
