"""The door of published kernel times of GPUs: list them, compare results with them, rank GPUs, predict servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepbench.core.errors import BadInput, shorten
from deepbench.core.json_lines import printable
from deepbench.core.progress import Progress, no_progress
from deepbench.gpus import package

if TYPE_CHECKING:
    from deepbench.api.results import Results
    from deepbench.gpus.serving.server import PredictedServer
    from deepbench.networks.what_if.hardware import Hardware
    from deepbench.reporting.output import Report

REMEDY = package.REMEDY


def is_machine(text: object) -> bool:
    """Whether a text is the name of a GPU whose kernel times are published and installed."""
    return isinstance(text, str) and package.is_machine(text)


def machines() -> tuple[str, ...]:
    """The names of these GPUs; none without the package."""
    return package.machines()


def machine_rows() -> list[dict[str, Any]]:
    """A row for each GPU, for the list of published machines."""
    from deepbench.gpus.index import contents
    from deepbench.gpus.reporting.machines import machine_rows as rows

    return rows(contents())


def show(
    machine: str,
    *,
    op: str | None = None,
    precision: str | None = None,
    framework: str | None = None,
    sizes: Mapping[str, str] | None = None,
    most: int | None = None,
    every_version: bool = False,
) -> Report:
    """Published kernels of a GPU, or without an operation what it has.

    Args:
        machine: its name, such as `h100_sxm`.
        op: a family of tables, such as `linear` or `attention_decode`.
        precision: only this type, as the tables call it: `bfloat16`, `fp8`, `nvfp4`.
        framework: only this framework: `vllm`, `sglang`, `trtllm`.
        sizes: only these sizes, such as `{"m": "64"}`.
        most: at most so many rows.
        every_version: all versions of the frameworks, not only those with the most rows.
    """
    from deepbench.gpus.index import contents
    from deepbench.gpus.published import choose
    from deepbench.gpus.reporting import published as tables
    from deepbench.reporting.output import Report

    name = package.find(machine)
    if op is None:
        if precision or framework or sizes:
            raise BadInput("name an operation with --op before other words, such as --op linear")
        found = next(one for one in contents() if one.machine == name)
        return Report.of_parts(tables.overview(name, found), lambda: vars(found))
    chosen = choose(name, op, precision, framework, sizes or {}, every_version)
    return Report.of_table(tables.rows(chosen, most or tables.MOST_SHOWN))


def against(results: Results, machine: str) -> Report:
    """Results next to the published kernels of a GPU: is my number normal?"""
    from deepbench.gpus.published import nearest
    from deepbench.gpus.reporting import published as tables
    from deepbench.reporting.output import Report

    name = package.find(machine)
    found = nearest(results.summaries, name)
    file = printable(results.path.name)
    if not found:
        raise BadInput(
            f"{file} has no kernel that {name} has published times of; it has linear, gemm, causal attention and "
            "exchanges in bf16 and 8 bits; run llm/llama31_70b phase=decode first, for example"
        )
    lines = dict(results.heading())
    own = printable(lines.get("GPU") or lines.get("machine") or "unknown machine").partition(",")[0]
    return Report.of_parts(tables.near_parts(found, name, file, own), lambda: tables.near_values(found, name))


def rank(
    suite: str,
    machines: Sequence[str],
    *,
    phase: str | None = None,
    settings: Mapping[str, str] | None = None,
    precision: str = "bf16",
    framework: str | None = None,
    prices: Mapping[str, float] | None = None,
    devices: int | None = None,
) -> Report:
    """Rank GPUs by one step of a model: by its time, or by cost where every GPU has a price.

    Args:
        suite: a language model, such as `llm/llama31_70b`.
        machines: names of GPUs.
        phase: `decode` or `prefill`.
        settings: of the suite, such as `{"batch": "32", "context": "4096"}`.
        precision: `bf16`, `fp8`, `fp8_block`, `nvfp4`, `mxfp4` or `int4`.
        framework: only times of this one; None: the median of all.
        prices: of a GPU-hour, by name.
        devices: so many GPUs; None: the fewest that hold the model.
    """
    from deepbench.gpus import ranking
    from deepbench.gpus.reporting import ranking as tables
    from deepbench.gpus.serving.steps import format_named
    from deepbench.reporting.output import Report

    package.require_folder()
    names = [package.find(name) for name in machines]
    priced = _priced(prices, names)
    found = ranking.rank(suite, names, phase, settings or {}, format_named(precision), framework, priced, devices)
    return Report.of_parts(tables.parts(found), lambda: tables.values(found))


def predict(
    model: str,
    on: Sequence[str],
    *,
    devices: int | None = None,
    batch: int = 32,
    prompt: int = 1024,
    output: int = 1024,
    precision: str = "fp8",
    framework: str | None = None,
    data: int = 1,
    expert: int | None = None,
    equal_lengths: bool = False,
    prices: Mapping[str, float] | None = None,
) -> Report:
    """Predict servers of a language model: the time to the first token, per token, and tokens per second.

    Args:
        model: a suite, such as `llm/llama31_70b`.
        on: names of GPUs.
        devices: how many GPUs a server has; None: the one of 1, 2, 4 and 8 with the most tokens per second and GPU.
        batch: requests at the same time, on each group of data-parallel attention.
        prompt: tokens of a prompt.
        output: tokens of an answer.
        precision: as in `rank`.
        framework: `vllm`, `sglang` or `trtllm`; None: each one that has tables.
        data: groups of data-parallel attention.
        expert: expert parallelism; None: each expert is divided instead.
        equal_lengths: all requests have the same lengths; otherwise these vary by 20 %.
        prices: of a GPU-hour, by name.
    """
    from deepbench.gpus.ranking import COUNTS, divided
    from deepbench.gpus.reporting import serving as tables
    from deepbench.gpus.serving import server
    from deepbench.gpus.serving.server import ServerSetup
    from deepbench.gpus.serving.steps import format_named, format_of_server
    from deepbench.gpus.times import frameworks
    from deepbench.plan.suites import model_of
    from deepbench.reporting.output import Report

    package.require_folder()
    names = [package.find(name) for name in on]
    if twice := [name for name in names if names.count(name) > 1]:
        raise BadInput(f"a GPU is named twice: {twice[0]}; name each once")
    priced = _priced(prices, names)
    if not {"decode", "prefill"} <= set(model_of(model).phases):
        raise BadInput(f"{shorten(model)} has no phases prefill and decode; servers are predicted of language models")
    format_named(precision)  # refuses an unknown one before the work
    for word, value in (("batch", batch), ("prompt", prompt), ("output", output), ("data", data)):
        if not 1 <= value <= 2**24:
            raise BadInput(f"{word} must be a whole number from 1 to {2**24}, found {value}")
    served = []
    left_out: dict[str, str] = {}
    for name in names:
        known = frameworks(name, "linear")
        if framework is not None and framework not in known:
            raise BadInput(f"{name} has no times of {shorten(framework)!r}; there are {', '.join(known)}")
        own = []
        for each in [framework] if framework else known:
            kind = format_of_server(precision, each, name)
            tried = []
            for count in [devices] if devices else [n for n in COUNTS if n % data == 0]:
                try:
                    sizes = divided(model, count, data, expert)
                    setup = ServerSetup(
                        model, name, each, kind, batch, prompt, output, **sizes, is_varied=not equal_lengths
                    )
                    tried += server.predict([setup])
                except BadInput as error:
                    left_out[name] = str(error)
            # The number of GPUs with the most tokens per second and GPU; one that does not fit only if all do not.
            own += sorted(tried, key=_standing)[-1:]
        if framework is None and len(names) > 1:  # the framework that serves most tokens stands for the GPU
            own = sorted(own, key=_standing)[-1:]
        if own:
            left_out.pop(name, None)
        served += own
    if not served:
        raise BadInput(next(iter(left_out.values()), f"{data} groups divide none of 1, 2, 4 and 8 GPUs"))
    ordered = tables.ordered(served, priced)
    return Report.of_parts(tables.parts(ordered, priced, left_out), lambda: tables.values(ordered, priced))


def _priced(prices: Mapping[str, float] | None, names: Sequence[str]) -> dict[str, float]:
    """Prices by GPU; `BadInput` for a GPU that is not one of these."""
    found = {package.find(name): price for name, price in (prices or {}).items()}
    if others := [name for name in found if name not in names]:
        raise BadInput(f"--price names {others[0]}, which is not among the GPUs: {', '.join(names)}")
    return found


def write_page(
    models: Sequence[str],
    machines: Sequence[str],
    output: str | Path,
    *,
    title: str | None = None,
    prices: Mapping[str, float] | None = None,
    progress: Progress = no_progress,
) -> None:
    """Write the page "Which GPU for my model?".

    Args:
        models: language models, such as `llm/llama31_70b`.
        machines: names of GPUs.
        output: the page; a page that exists is replaced.
        title: the heading of the page.
        prices: of a GPU-hour, by name; a reader can change them.
        progress: is called with each GPU.
    """
    from deepbench.core.files import replacing
    from deepbench.gpus.reporting import page

    package.require_folder()
    names = [package.find(name) for name in machines]
    for word, given in (("model", list(models)), ("GPU", names)):
        if twice := [name for name in given if given.count(name) > 1]:
            raise BadInput(f"a {word} is named twice: {shorten(twice[0])}; name each once")
    if with_parameters := [model for model in models if ":" in model]:
        raise BadInput(
            f"name the model alone, found {shorten(with_parameters[0])}; a reader of the page chooses the rest"
        )
    content = page.content(models, names, _priced(prices, names), progress)
    html = page.page(content, title or page.TITLE)
    with replacing(Path(output)) as draft:
        draft.write_bytes(html)


def _standing(s: PredictedServer) -> tuple[bool, float]:
    """The best one has the most tokens per second and GPU; of those that do not hold the model, the most GPUs."""
    return s.fits, s.tokens_per_s_and_device if s.fits else s.setup.devices


def hardware(machine: str) -> Hardware:
    """The data sheet of a GPU, as hardware for what-if questions."""
    from deepbench.gpus.sheet import sheet
    from deepbench.networks.what_if.hardware import Hardware, MemoryLevel

    page = sheet(package.find(machine))
    peak = dict(page.peak)
    peak.setdefault("f16", peak["bf16"])
    chip = page.chip
    levels = (
        MemoryLevel("L2", chip.cache_bytes, None, None),
        MemoryLevel("HBM", page.memory_bytes, page.bytes_per_s, None),
    )
    return Hardware(
        name=page.title,
        origin="datasheet",
        peak=peak,
        memory=levels,
        units=chip.units,
        source="aiconfigurator-core",
        device="cuda" if "NVIDIA" in page.title else None,
    )
