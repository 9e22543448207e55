"""The applications of a result file as terms: every kernel with its count and its time on the fastest library.

Times that other programs disturbed, and results that are wrong, do not take part. What is left out is said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from deepbench.core.case import Case, parse_case
from deepbench.core.errors import BadInput, shorten
from deepbench.judge import totals
from deepbench.judge.totals import SuiteKernel
from deepbench.networks.what_if.terms import ModelledApplication, Term
from deepbench.plan.suites import is_fitted
from deepbench.results.summary import Summary

# What the kernels of a file are called that belong to no application.
NO_APPLICATION = "all problems of the file"


def of_summaries(
    summaries: Sequence[Summary], threads: int | None = None, precision: str | None = None
) -> list[ModelledApplication]:
    """One application per suite, precision and number of threads, the longest first.

    `threads` and `precision` choose one; None: every one.
    """
    served: dict[SuiteKernel, list[Summary]] = {}
    for s in summaries:
        for kernel in totals.kernels_served(s):
            served.setdefault(kernel, []).append(s)
    kinds: dict[totals.Kind, dict[SuiteKernel, list[Summary]]] = {}
    for kernel in totals.kernel_times(summaries):
        if threads in (None, kernel.threads) and precision in (None, kernel.precision):
            kinds.setdefault(kernel.kind, {})[kernel] = served.get(kernel, [])
    known = {total.kind: total.kernels for total in totals.of_summaries(summaries)} if kinds else {}
    found = [
        _application(kind, kernels, known.get(kind, 0), len({k[3] for k in kinds}) > 1)
        for kind, kernels in kinds.items()
    ]
    if not kinds:
        of_precision = [s for s in summaries if precision in (None, s.record["precision"])]
        found = [_of_no_application(of_precision, threads)]
    return sorted((a for a in found if a.terms), key=lambda a: -a.seconds)


def threads_of(summaries: Iterable[Summary]) -> list[int]:
    """The numbers of threads of the times that are trusted, the most frequent first."""
    counts = Counter(s.record["threads"] for s in summaries if _is_trusted(s) and not s.is_group)
    return [threads for threads, _ in counts.most_common()]


def chosen(found: Sequence[ModelledApplication], name: str) -> list[ModelledApplication]:
    """Those whose suite or title contains a text, whatever its case and punctuation; `BadInput` says what there is."""
    wanted = _plain(name)
    fitting = [a for a in found if wanted and any(wanted in _plain(known) for known in (a.suite, a.title))]
    if not fitting:
        titles = "; ".join(dict.fromkeys(a.title for a in found)) or "none with a time"
        raise BadInput(f"the file has no application {shorten(name)!r}; it has {titles}")
    return fitting


def _plain(text: str) -> str:
    return "".join(c for c in text.lower() if c.isalnum())


def _is_trusted(s: Summary) -> bool:
    return s.is_ranked and not s.is_disturbed


def _application(
    kind: totals.Kind, kernels: Mapping[SuiteKernel, list[Summary]], count: int, says_threads: bool
) -> ModelledApplication:
    suite, title, precision, threads = kind
    terms, disturbed, smaller = [], 0, 0
    for kernel, served in kernels.items():
        trusted = sorted((s for s in served if _is_trusted(s)), key=lambda s: s.time_s)
        if trusted:
            terms.append(_term(trusted, kernel.count))
            smaller += any(is_fitted(source) for source in trusted[0].record["sources"] if source["suite"] == suite)
        else:
            disturbed += any(s.is_ranked for s in served)
    words = [title, precision]
    words += [f"{threads} thread{'s' * (threads != 1)}"] * (says_threads and threads is not None)
    every = max(count, len(kernels))
    remarks = {
        "left out because other programs disturbed their times": disturbed,
        "without a time": every - len(terms) - disturbed,
        "in place of larger ones that did not fit (--fit)": smaller,
    }
    return ModelledApplication(
        ", ".join(words), terms, {r: n for r, n in remarks.items() if n}, suite, precision, every
    )


def _of_no_application(summaries: Sequence[Summary], threads: int | None) -> ModelledApplication:
    """Every work of a file once, on its fastest library."""
    works: dict[object, list[Summary]] = {}
    for s in summaries:
        if _is_trusted(s) and not s.is_group and threads in (None, s.record["threads"]):
            works.setdefault((s.work, s.record["device"]), []).append(s)
    return ModelledApplication(
        NO_APPLICATION, [_term(sorted(group, key=lambda s: s.time_s), 1) for group in works.values()]
    )


def _term(fastest_first: Sequence[Summary], count: int) -> Term:
    terms = [_one(s, count) for s in fastest_first]
    return replace(terms[0], rivals=tuple(t for t in terms[1:] if t.case is not None))


def _one(s: Summary, count: int) -> Term:
    estimate = s.estimate
    low_s, high_s = (estimate.low_s, estimate.high_s) if estimate is not None else (None, None)
    return Term(
        case_of(s),
        f"{s.record['op']} {s.problem_title}",
        count,
        s.time_s,
        low_s,
        high_s,
        s.record["flop"],
        s.record["traffic_bytes"],
    )


def case_of(s: Summary) -> Case | None:
    """The case of a summary; None where this version does not know it, as of a plug-in."""
    try:
        return parse_case(s.record["case"])
    except BadInput:
        return None
