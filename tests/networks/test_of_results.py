"""The applications of a file as terms: what counts, what is left out, and what it is called."""

import pytest

from deepbench.core.errors import BadInput
from deepbench.judge import totals
from deepbench.networks.what_if import of_results as applications
from deepbench.results.summary import summarize
from tests.help import samples


def of(records, **options):
    return applications.of_summaries(summarize(records), **options)


def test_an_application_takes_as_long_as_its_total():
    records = samples.kernels_of_steps(1)
    (found,), (total,) = of(records), totals.of_summaries(summarize(records))

    assert total.time_s == pytest.approx(found.seconds)
    assert (total.kernels, total.suite, "f32") == (len(found.terms), found.suite, found.precision)
    assert found.title == f"{total.application}, f32"
    assert {} == found.remarks
    low_s = sum(t.count * t.low_s for t in found.terms)
    assert total.low_s == pytest.approx(low_s)


def test_precisions_are_applications_of_their_own():
    records = [*samples.kernels_of_steps(1), *samples.kernels_of_steps(1, precision="bf16")]

    assert {"f32", "bf16"} == {a.precision for a in of(records)}
    assert ["bf16"] == [a.precision for a in of(records, precision="bf16")]
    assert [] == of(records, threads=7)


def test_other_libraries_are_rivals_and_the_fastest_counts():
    slow = samples.kernels_of_steps(1)
    first = slow[0]["case"]
    fast = [
        {**samples.measured(text=first.replace(" reference ", " mkl "), seconds=1e-5), "sources": slow[0]["sources"]}
    ]
    (found,) = of([*slow, *fast])
    (term,) = [t for t in found.terms if t.rivals]

    assert ("mkl", ["reference"]) == (term.case.backend, [r.case.backend for r in term.rivals])
    assert term.seconds < term.rivals[0].seconds


@pytest.mark.parametrize("how", ["wrong", "disturbed"])
def test_times_that_are_not_trusted_are_left_out_and_counted(how):
    records = samples.kernels_of_steps(1, rounds=1)
    if how == "wrong":
        records[0] = {**records[0], "status": "wrong", "reason": "it is"}
    else:
        records[0]["measurement"]["steal_s"] = samples.disturbed()["measurement"]["steal_s"]
    (found,) = of(records)
    (remark,) = found.remarks

    assert (1, found.kernels - 1) == (found.remarks[remark], len(found.terms))
    assert remark.startswith("without a time" if how == "wrong" else "left out because other programs disturbed")


def test_kernels_that_a_suite_lists_and_the_file_lacks_are_counted():
    (found,) = of(samples.kernels_of_steps(1)[:9])

    assert {"without a time": found.kernels - len(found.terms)} == found.remarks
    assert found.kernels > len(found.terms)


def test_smaller_twins_are_counted():
    (found,) = of(samples.kernels_of_steps(1, fit=",fit=1MiB"))

    assert found.remarks["in place of larger ones that did not fit (--fit)"] > 0


def test_a_file_without_applications_has_every_work_once():
    texts = [f"gemm m=8 n=8 k={k} forward f32 {{backend}} threads=1 beta=0" for k in (8, 16)]
    records = [
        samples.measured(backend, seconds, text=t) for t in texts for backend, seconds in (("mkl", 2), ("onednn", 1))
    ]
    (found,) = of(records)

    assert (applications.NO_APPLICATION, 2) == (found.title, len(found.terms))
    assert {"onednn"} == {t.case.backend for t in found.terms}


def test_applications_are_chosen_by_a_part_of_their_names():
    every = of([*samples.kernels_of_steps(1), *samples.ocr()])

    assert ["OCR, i8"] == [a.title for a in applications.chosen(every, "ocr")]
    assert [samples.TRAINED] == [a.suite.partition(":")[0] for a in applications.chosen(every, "mlperf/sentiment-conv")]
    with pytest.raises(BadInput, match=r"has no application 'resnet'; it has .*OCR, i8"):
        applications.chosen(every, "resnet")
