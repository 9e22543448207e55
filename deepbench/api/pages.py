"""Pages of result files, and sites of many."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepbench.api.comparing import Source, is_file, is_model, opened
from deepbench.api.history import history as read_history
from deepbench.api.results import FileResults, Results, everything_stays
from deepbench.core.errors import BadInput, shorten
from deepbench.core.json_lines import printable
from deepbench.core.kinds import wing
from deepbench.reporting.progress import shown

if TYPE_CHECKING:
    from deepbench.core.progress import Progress
    from deepbench.reporting.site import Built


def report(
    results: Source | Iterable[Source],
    output: str | Path = "report.html",
    *,
    against: Sequence[str] = (),
    networks: Iterable[str | Path] = (),
    title: str | None = None,
    application: str | None = None,
    prices: Mapping[str, float] | None = None,
    skip_damaged: bool = False,
    progress: bool | Progress = False,
) -> list[Any]:
    """Write one HTML page about results of one kind; the first is compared with each of the others.

    With language models, such as `llm/llama31_70b`, and GPUs, such as `h100_sxm`, the page says which GPU is the best
    for a model, from published kernel times.

    Args:
        results: one or more results, result files, or names of machines that the original DeepBench published; or
            names of models and of GPUs.
        output: the page; a page that exists is replaced.
        against: published machines to compare with, such as `V100`.
        networks: suites that `deepbench trace` wrote; the page draws the step that the kernels of each file predict.
        title: the heading of the page.
        application: the one that *Which machine?* shows at first, by its name or a part of its title.
        prices: of an hour, by name of a machine; a reader can change them.
        skip_damaged: leave out damaged lines of files; the page says so.
        progress: of a page about GPUs: True shows a progress bar; a function is called with an `Activity` per GPU.

    Returns the results that were read; none of a page about GPUs.
    """
    from deepbench.reporting.page import render
    from deepbench.reporting.page.preset import Preset
    from deepbench.results import published

    traced = list[str | Path](networks)
    sources = [results] if isinstance(results, FileResults | str | Path) else list(results)
    if not str(output).lower().endswith((".html", ".htm")):
        raise BadInput(f"the page needs a name that ends in .html, found {str(output)[-60:]!r}")
    render.require_templates()  # a missing package is reported before the work, not after it
    if _is_of_gpus(sources):
        if against or application or skip_damaged or traced:
            raise BadInput(
                "--against, --network, --application and --skip-damaged are for result files, not for models and GPUs"
            )
        models, machines = _models_and_gpus(sources)
        with shown(progress) as show:
            wing("gpus").write_page(models, machines, output, title=title, prices=prices, progress=show)
        return []
    with everything_stays():
        loaded = [opened(source, skip_damaged) for source in sources if is_file(source)]
        names = [published.find(str(source)) for source in sources if not is_file(source)]
        if not loaded:
            loaded, names = [Results(published.load(names[0]))], names[1:]
        first = loaded[0]
        for other in loaded[1:]:
            if type(other).write_page.__func__ is not type(first).write_page.__func__:
                has = " and ".join(f"{printable(str(r.path))} has {r.kind.noun}" for r in (first, other))
                raise BadInput(f"{has}; write a page about files of one kind")
        machines = list(dict.fromkeys([*names, *map(published.find, against)]))
        preset = Preset(names, application, prices or {})
        first.write_page(loaded, Path(output), title, machines, traced, preset)
    return loaded


def _is_gpu(source: Source) -> bool:
    return not is_file(source) and bool(wing("gpus").is_machine(source))


def _is_of_gpus(sources: Sequence[Source]) -> bool:
    """Whether a page is about models and GPUs with published kernel times."""
    return any(is_model(source) or _is_gpu(source) for source in sources)


def _models_and_gpus(sources: Sequence[Source]) -> tuple[list[str], list[str]]:
    """The models, and all other names; `BadInput` where one of both is missing, or for result files among them."""
    models = [str(source) for source in sources if is_model(source)]
    others = [source for source in sources if not is_model(source)]
    if files := [source for source in others if is_file(source)]:
        path = files[0].path if isinstance(files[0], FileResults) else files[0]
        raise BadInput(
            f"a page about models and GPUs has no result files, found {shorten(printable(str(path)))}; "
            "write two pages, or compare a file with the kernel times of a GPU: deepbench compare FILE GPU"
        )
    gpus = [str(source) for source in others]
    if not models and (unknown := [source for source in others if not _is_gpu(source)]):
        raise BadInput(
            f"{shorten(str(unknown[0]))!r} is neither a model nor a GPU with published kernel times; name a model, "
            "such as llm/llama31_70b, then GPUs, such as h100_sxm"
        )
    if not models:
        raise BadInput(
            f"name a model first: deepbench report llm/llama31_70b {' '.join(map(shorten, gpus))} -o gpus.html"
        )
    if not gpus:
        known = " ".join(wing("gpus").machines()[:3]) or "h100_sxm h200_sxm"
        raise BadInput(f"name GPUs to compare for {shorten(models[0])}, such as {known}")
    return models, gpus


def site(
    folder: str | Path,
    output: str | Path,
    *,
    published: bool = True,
    history: str | Path | None = None,
    skip_damaged: bool = False,
    progress: bool | Progress = False,
) -> Built:
    """Bring a static site up to date with the result files of a folder. Only what has changed is built again.

    Args:
        folder: with the result files, also in its subfolders.
        output: a new folder, or that of an earlier build.
        published: also show the machines that the original DeepBench published.
        history: a folder whose files become a page about each case over time.
        skip_damaged: read files with damaged lines without these lines.
        progress: True shows a progress bar; a function is called with an `Activity` per machine.

    Files that cannot be read are left out; the result says which and why.
    """
    from deepbench.core.progress import Activity
    from deepbench.reporting import site as sites

    done = iter(range(10**9))
    with shown(progress) as show:
        over_time = read_history(history, skip_damaged=skip_damaged, progress=show) if history is not None else None
        with everything_stays():
            built = sites.build(
                Path(folder),
                Path(output),
                published,
                lambda name, total: show(Activity(name, next(done) + 1, total)),
                skip_damaged,
                over_time.found if over_time is not None else None,
            )
    if over_time is not None:
        built.refused += over_time.refused
    return built
