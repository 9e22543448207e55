"""Collective operations without libraries: what ranks receive, bandwidths, and how a process learns its rank."""

import numpy as np
import pytest

from deepbench.core.case import parse_case
from deepbench.core.op import all_ops, find_op
from deepbench.measuring.check import verdict_of
from deepbench.measuring.group import link
from deepbench.plan.cases import Choices, expand
from deepbench.plan.suites import read_words

GROUPS = [op.name for op in all_ops().values() if op.is_group]


def solve(op, c):
    """What every rank receives, computed from what the ranks send, without the operation's `expected`."""
    p = c.problem
    sends = [op.rank_operands(c, r, integers=False)["send"].astype(np.float64) for r in range(p.ranks)]
    if op.name == "all_reduce":
        return [np.add.reduce(sends)] * p.ranks
    if op.name == "reduce_scatter":
        return np.split(np.add.reduce(sends), p.ranks)
    if op.name == "all_gather":
        return [np.concatenate(sends)] * p.ranks
    if op.name == "all_to_all":
        parts = [np.split(send, p.ranks) for send in sends]
        return [np.concatenate([parts[r][rank] for r in range(p.ranks)]) for rank in range(p.ranks)]
    if op.name == "broadcast":
        return [sends[0]] * p.ranks
    if op.name == "send_receive":
        return [sends[rank - 1] for rank in range(p.ranks)]
    raise AssertionError(f"solve {op.name} here, too")


# Of more elements than are compared at once.
LARGE = "n=1048700 ranks=2"


@pytest.mark.parametrize("name", GROUPS)
def test_the_right_answer_of_a_large_problem_passes_and_one_wrong_element_does_not(name):
    test_the_right_answer_passes_and_one_wrong_element_does_not(name, "f32", LARGE)


@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize("precision", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("sizes", ["n=40 ranks=2", "n=60 ranks=3", pytest.param(LARGE, marks=pytest.mark.long)])
def test_the_right_answer_passes_and_one_wrong_element_does_not(name, precision, sizes):
    op = find_op(name)
    c = parse_case(f"{name} {sizes} forward {precision} mpich threads=1")
    answers = solve(op, c)
    for rank, answer in enumerate(answers):
        arrays = op.rank_operands(c, rank, integers=False)
        op.reset_rank(c, rank, arrays)
        if not (name == "broadcast" and rank == 0):  # the root has it from the beginning
            assert not verdict_of(op.compare_rank(c, rank, arrays, False)).passed  # poison
        arrays["receive"][...] = answer.astype(arrays["receive"].dtype)
        assert verdict_of(op.compare_rank(c, rank, arrays, False)).passed
        i = arrays["receive"].size // 2
        arrays["receive"][i] -= 0.1 * max(1.0, abs(float(answer[i])))
        verdict = verdict_of(op.compare_rank(c, rank, arrays, False))
        assert not verdict.passed
        assert verdict.covers == verdict.of == arrays["receive"].size


def test_sums_of_integer_data_are_exact_in_every_precision():
    op = find_op("all_reduce")
    for precision in ("f32", "f16", "bf16"):
        c = parse_case(f"all_reduce n=1000 ranks=31 forward {precision} mpich threads=1")
        sends = [op.rank_operands(c, r, integers=True)["send"] for r in range(31)]
        arrays = op.rank_operands(c, 0, integers=True)
        total = sends[0]
        for other in sends[1:]:
            total = total + other  # rounded after every addition
        arrays["receive"][...] = total
        verdict = verdict_of(op.compare_rank(c, 0, arrays, True))

        assert verdict.passed
        assert 0.0 == verdict.error


def test_adding_one_rank_twice_instead_of_another_is_found():
    op, c = find_op("all_reduce"), parse_case("all_reduce n=100 ranks=3 forward f32 mpich threads=1")
    sends = [op.rank_operands(c, r, integers=False)["send"] for r in range(3)]
    arrays = op.rank_operands(c, 0, integers=False)
    arrays["receive"][...] = sends[0] + sends[1] + sends[1]

    assert not verdict_of(op.compare_rank(c, 0, arrays, False)).passed


@pytest.mark.parametrize(("ranks", "factor"), [(2, 1.0), (4, 1.5), (8, 1.75)])
def test_bus_bandwidth_is_that_of_nccl_tests(ranks, factor):
    c = parse_case(f"all_reduce n=1000 ranks={ranks} forward f32 mpich threads=1")

    facts = find_op("all_reduce").facts(c)
    assert factor == facts["bus_factor"]
    assert ranks * 4000 == facts["original_bytes"]
    assert 4000 == find_op("all_reduce").traffic_bytes(c)
    assert (ranks - 1) * 1000 == find_op("all_reduce").flop(c)


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, None),
        ({"PMI_RANK": "1", "PMI_SIZE": "4"}, ("hydra", 1, 4)),
        ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8", "PMIX_RANK": "3"}, ("openmpi", 3, 8)),
        ({"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}, ("torchrun", 0, 2)),
        ({"SLURM_PROCID": "5", "SLURM_NTASKS": "6", "SLURM_STEP_ID": "0"}, ("slurm", 5, 6)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "6"}, None),  # a batch script, not a step
        ({"PMI_RANK": "1"}, None),
        ({"PMI_RANK": "one", "PMI_SIZE": "4"}, None),
        ({"DEEPBENCH_RANK": "2", "DEEPBENCH_RANKS": "3", "RANK": "0", "WORLD_SIZE": "1"}, ("deepbench", 2, 3)),
    ],
)
def test_a_process_learns_its_rank_from_its_launcher(environment, wanted):
    found = link.rank_info(environment)

    assert wanted == (found and (found.launcher, found.ranks and found.rank, found.ranks))


def test_an_operation_without_flop_has_no_flop_rate():
    from deepbench.results.summary import summarize
    from tests.help import samples

    (found,) = summarize([samples.measured(text="broadcast n=4000 ranks=2 forward f32 mpich threads=1")])

    assert found.flop_per_s is None
    assert found.bytes_per_s > 0


def cases_of(*words, cores=2, **choices):
    entries = read_words(words)
    return [p.case for p in expand(entries, Choices(backends=("mpich",), **choices), cores)]


def test_a_suite_uses_at_most_as_many_ranks_as_cores_by_default():
    def ranks(**choices):
        return {c.problem.ranks for c in cases_of("deepbench/train", ops=("all_reduce",), **choices)}

    assert {2} == ranks()
    assert {2, 4, 8} == ranks(cores=8)
    assert {4, 32} == ranks(**{"ranks": (4, 32)})


def test_a_typed_case_keeps_its_ranks():
    (found,) = cases_of("all_reduce n=10 ranks=16")

    assert (16, 1) == (found.problem.ranks, found.threads)


def test_sizes_of_the_original_are_those_of_its_header():
    sizes = {c.problem.n for c in cases_of("deepbench/train", ops=("all_reduce",))}

    assert {100000, 3097600, 4194304, 6553600, 16777217, 38360000, 64500000} == sizes


def test_the_hidden_share_is_computed_within_each_round():
    from deepbench.results.summary import summarize
    from tests.help import samples

    text = "all_reduce n=4000 ranks=2 forward f32 mpich threads=1 overlap=gemm"
    rounds = []
    for number, (both, alone, gemm) in enumerate([(3e-3, 2e-3, 2e-3), (6e-3, 4e-3, 4e-3), (5e-3, 1e-3, 1e-3)], 1):
        made = samples.measured(text=text, seconds=both, round_number=number)
        rounds.append({**made, "notes": {"all_reduce_alone_s": alone, "gemm_alone_s": gemm}})
    (found,) = summarize(rounds)

    assert 0.5 == pytest.approx(found.hidden, abs=0.01)
    assert (None, None, None) == (found.bytes_per_s, found.bus_bytes_per_s, found.original_bytes_per_s)
    assert summarize([samples.measured()])[0].hidden is None


@pytest.mark.parametrize(
    ("precision", "ranks", "bound"), [("bf16", 31, 8), ("bf16", 128, 2), ("bf16", 300, 0), ("f32", 4096, 8)]
)
def test_the_bound_of_integer_data_keeps_sums_exact(precision, ranks, bound):
    c = parse_case(f"all_reduce n=10 ranks={ranks} forward {precision} mpich threads=1")

    assert bound == find_op("all_reduce").integer_bound(c)


def test_checking_many_ranks_needs_little_memory():
    """The tiles of all ranks together would need gigabytes."""
    import resource

    op, c = find_op("all_reduce"), parse_case("all_reduce n=1048573 ranks=64 forward f32 mpich threads=1")
    arrays = op.rank_operands(c, 0, integers=False)
    op.reset_rank(c, 0, arrays)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert not verdict_of(op.compare_rank(c, 0, arrays, False)).passed
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024

    assert grown < 2 * op.workspace_bytes(c)


@pytest.mark.parametrize(
    ("ranks", "hosts", "wanted"),
    [
        (4, [], ([], 4)),
        (4, ["a", "b"], (["a", "b"], 2)),
        (1, ["a", "b"], (["a"], 1)),
        (2, ["a", "b", "c"], (["a", "b"], 1)),
    ],
)
def test_ranks_are_spread_evenly(ranks, hosts, wanted):
    from deepbench.native import mpi

    assert wanted == mpi.spread(ranks, hosts)


def test_uneven_ranks_per_host_are_refused():
    from deepbench.core.errors import Unsupported
    from deepbench.native import mpi

    with pytest.raises(Unsupported, match="5 ranks cannot be spread evenly over 2 hosts"):
        mpi.spread(5, ["a", "b"])


def test_a_failed_collective_is_not_in_the_totals_of_an_application():
    from deepbench.reporting import views
    from deepbench.results.summary import summarize
    from tests.help import samples

    text = "all_reduce n=4000 ranks=2 forward f32 mpich threads=1"
    source = {"suite": "deepbench/train", "row": 1, "application": "General", "label": None, "note": None}
    failed = {**samples.measured(text=text, status="unavailable"), "reason": "not here", "sources": [source]}

    assert [] == views.by_application(summarize([failed])).rows
