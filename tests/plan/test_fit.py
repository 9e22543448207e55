"""Smaller twins of problems: of the same kind, in the same proportions, and no smaller than needed."""

import pytest

from deepbench.core.case import parse_pattern
from deepbench.core.errors import BadInput
from deepbench.core.op import find_op
from deepbench.plan import fit
from deepbench.plan.cases import Choices, expand, read_chosen
from deepbench.plan.fit import Limit
from deepbench.plan.suites import is_fitted, read_suite

MIB = 2**20


def twin(text, limit, directions=("forward",)):
    pattern = parse_pattern(text)
    op = find_op(pattern.op)
    return fit.fitted(op, pattern.problem, directions, dict(pattern.settings), Limit.parse(limit)).text


def test_what_fits_stays_as_it_is():
    assert "m=1024 n=1024 k=1024 a_t=0 b_t=0" == twin("gemm m=1024 n=1024 k=1024", "12MiB")


@pytest.mark.parametrize(
    ("text", "limit", "smaller"),
    [
        # tokens first, down to where a product is still bound by computation
        ("gemm m=1024 n=8192 k=1024", "16MiB", "m=1024 n=1024 k=1024 a_t=0 b_t=0"),
        # of the gradient of weights, the tokens are summed over
        ("gemm m=1024 n=1024 k=8192 b_t=1", "16MiB", "m=1024 n=1024 k=1024 a_t=0 b_t=1"),
        # then the widths together; tokens grow again where there is room
        ("gemm m=8192 n=2048 k=4096", "64MiB", "m=4096 n=1024 k=2048 a_t=0 b_t=0"),
        ("conv n=64 c=64 h=56 w=56 k=64 r=3 s=3 pad_h=1 pad_w=1", "32MiB", "n=2 c=64 h=56 w=56 k=64"),
        ("rms_norm rows=8192 columns=4096", "33MiB", "rows=1024 columns=4096"),
        ("embedding_bag rows=1000000 dim=128 bags=8192", "16MiB", "rows=31250 dim=128 bags=1024"),
        ("optimizer kind=sgd n=100000000", "64MiB", "kind=sgd n="),
        ("dropout n=100000000 percent=30", "64MiB", "n=6250000 percent=30"),
    ],
)
def test_what_a_model_has_many_of_shrinks_before_widths(text, limit, smaller):
    assert twin(text, limit).startswith(smaller)


def test_work_can_be_limited_too():
    assert "m=1024 n=512 k=1024 a_t=0 b_t=0" == twin("gemm m=1024 n=4096 k=1024", "1GiB+1.1GFLOP")
    assert "m=1024 n=512 k=1024 a_t=0 b_t=0" == twin("gemm m=1024 n=4096 k=1024", "1.1GFLOP")


def test_quick_runs_have_small_calls_unless_the_user_limits_the_work():
    assert fit.for_mode("4GiB", "quick") == "512MiB+5GFLOP"
    assert fit.for_mode("512MiB", "quick") == "512MiB+5GFLOP"
    assert fit.for_mode("4GiB+20GFLOP", "quick") == "4GiB+20GFLOP"
    assert fit.for_mode("4GiB", None) == fit.for_mode("4GiB", "default") == "4GiB"


@pytest.mark.parametrize("suite", ["mlperf/llama31_405b", "mlperf/dlrm_dcnv2", "mlperf/unet3d", "deepbench/train"])
def test_every_case_of_a_fitted_suite_fits(suite):
    # The caches of attention and the images of one call cannot be made smaller without another kind of work.
    entries, choices = read_chosen([suite], Choices(fit="1GiB", backends=("reference",)))

    planned = expand(entries, choices, 1)

    assert planned
    assert not [p for p in planned if find_op(p.case.op).operand_bytes(p.case) > 1024 * MIB]


def test_every_direction_of_a_row_has_the_same_problem_and_a_note_of_what_changed():
    entries = [e for e in read_suite("mlperf/resnet50_v15:phase=train,batch=256,fit=64MiB") if e.pattern.op == "conv"]
    rows = {}
    for e in entries:
        rows.setdefault(e.source["row"], set()).add(e.pattern.problem)

    assert {1} == {len(problems) for problems in rows.values()}
    first = entries[0].source
    assert first["note"].startswith("smaller than in the model, to fit: n 256 → ")
    assert first["application"].endswith("fitted to 64MiB")
    assert is_fitted(first)
    assert not is_fitted({**first, "note": None})


def test_sizes_beyond_what_a_problem_may_have_are_halved_too():
    name = "mlperf/llama31_8b:phase=train,batch=64"
    huge = [e for e in read_suite(name) if e.pattern.op == "elementwise"]
    (one, _) = [e for e in read_suite(f"{name},fit=4GiB") if e.pattern.op == "elementwise"]

    assert not huge
    assert one.source["note"].startswith("smaller than in the model, to fit: n 7516192768 → ")


@pytest.mark.parametrize("text", ["4", "GiB", "0GiB", "4GiB+2GiB", "4 GiB", "4KiB", "-1GiB", "4GiB+", "1e3GiB"])
def test_a_wrong_amount_is_refused(text):
    with pytest.raises(BadInput, match=r"fit wants memory, work or both, such as 4GiB or 4GiB.20GFLOP, in MiB, GiB"):
        Limit.parse(text)
