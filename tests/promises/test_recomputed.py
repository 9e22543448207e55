"""Numbers that people read, computed a second time: by hand, by a published formula, or from the raw samples.

Constants to many digits come from SciPy 1.17 (`stats.t`, `stats.trim_mean`, `stats.mstats.trimmed_mean_ci`,
`stats.binom`), which does not share code with DeepBench.
"""

import gzip
import json
import math
import random
from pathlib import Path

import numpy as np
import pytest

from deepbench.applications.judge import serving
from deepbench.applications.judge.trained import runs_of, trained
from deepbench.applications.judge.training_pairs import pairs
from deepbench.core import stats
from deepbench.core.case import parse_case
from deepbench.core.op import find_op
from deepbench.judge import compare, suite_devices
from deepbench.networks.traces.trace import Trace, TracedCall
from deepbench.networks.what_if import effects
from deepbench.networks.what_if.hardware import Hardware, MemoryLevel, Overhead
from deepbench.networks.what_if.knobs import Change
from deepbench.networks.what_if.terms import ModelledApplication, Term
from deepbench.networks.what_if.time_model import Constants, Errors, FittedModel, TimeModel
from deepbench.reporting import groups
from deepbench.results.summary import summarize
from tests.help import samples
from tests.help import trained as curves

REPOSITORY = Path(__file__).parents[2]

# ---- statistics


@pytest.mark.parametrize(
    ("t", "freedom", "p"),
    [
        *((t, 1, 1 - 2 / math.pi * math.atan(t)) for t in (0.01, 1.0, 40.0)),
        *((t, 2, 1 - t / math.sqrt(2 + t * t)) for t in (0.01, 1.0, 5.0)),
        (1.0, 1.96, 0.42448125690104793),
        (2.5, 3.7, 0.07182202291182678),
        (5.0, 10.1, 0.0005213772145834573),
        (3.0, 16.56, 0.008234086511087436),
        (0.5, 1000, 0.6171850808338747),
    ],
)
def test_chances_of_student_t(t, freedom, p):
    assert p == pytest.approx(stats.t_p_value(t, freedom), rel=1e-9)
    assert t == pytest.approx(stats.t_critical(freedom, 1 - p), rel=1e-7)


def test_the_trimmed_mean_and_its_interval_by_tukey_and_mclaughlin():
    """Of eleven values, two at each end are left out; for the variance they count as the outermost of the others."""
    values = [0.012, -0.004, 0.031, 0.007, -0.019, 0.055, 0.001, 0.016, -0.008, 0.024, 0.09]
    winsorized = np.array([-0.004] * 3 + [0.001, 0.007, 0.012, 0.016, 0.024] + [0.031] * 3)
    error = math.sqrt(((winsorized - winsorized.mean()) ** 2).sum() / (7 * 6))
    found = stats.trimmed_difference(values)

    assert found.mean == pytest.approx(0.087 / 7)
    # The 97.5 % quantile of Student's t with six degrees of freedom is 2.446912.
    assert found.interval() == pytest.approx((0.087 / 7 - 2.446912 * error, 0.087 / 7 + 2.446912 * error), rel=1e-6)


def test_the_interval_of_a_median_covers_it_as_the_binomial_distribution_says():
    """The exact chance that as many values as the ends need are below the median, with whole numbers."""
    for n in [*range(6, 120), 501]:
        low, high = stats.median_interval(range(n))
        assert sum(math.comb(n, below) for below in range(low + 1, high + 1)) / 2**n > 0.947, n
        # One rank less at each end would be too few, but for few values, where the interval is the next wider one.
        assert n < 12 or sum(math.comb(n, below) for below in range(low + 3, high - 1)) / 2**n < 0.95, n


def test_the_bound_of_a_percentile_is_the_rank_of_the_binomial_distribution():
    found = [serving.bound_rank(n, share) for n, share in ((459, 0.99), (1000, 0.99), (1500, 0.99), (2000, 0.9))]

    assert [459, 998, 1494, 1832] == found
    assert 6 == serving.most_late(1500, 0.99)


def test_the_ratio_of_two_sides_comes_from_their_faster_halves():
    """Of the first five of each side, the three fastest: the scale and the degrees of freedom are of docs/method.md."""
    a, b = [1.00, 1.02, 1.05, 0.99, 1.04, 1.5], [1.10, 1.13, 1.09, 1.2, 1.4]
    found = stats.faster_half_difference(a, b)

    assert math.exp(found.mean) == pytest.approx(1.1029455853934949)
    assert [math.exp(end) for end in found.interval()] == pytest.approx([1.0488880863244885, 1.1597890949470284])
    assert found.p == pytest.approx(0.006432262370986384)


def test_the_mean_of_ratios_has_the_freedom_of_welch_and_satterthwaite():
    sides = [(0.05, 0.01, 3.65), (0.08, 0.02, 3.65), (-0.01, 0.005, 2.04)]
    found = compare.mean_difference([stats.Difference(*side) for side in sides])

    assert math.exp(found.mean) == pytest.approx(math.exp(0.04))
    assert [math.exp(end) for end in found.interval()] == pytest.approx([1.0214445913360062, 1.0605441321668414])
    assert found.degrees_of_freedom == pytest.approx(5.879157789196641)


# ---- times from raw samples

# Half the interval of 2 to 20 processes over the range of their faster half. (Simulated, so there is no formula.)
HALF_WIDTHS = {
    **{2: 6.77, 3: 1.46, 4: 1.69, 5: 1.82, 6: 0.99, 7: 1.01, 8: 0.72, 9: 0.75, 10: 0.58, 11: 0.59, 12: 0.50},
    **{13: 0.52, 14: 0.44, 15: 0.44, 16: 0.40, 17: 0.41, 18: 0.36, 19: 0.36, 20: 0.33},
}


def undisturbed(m):
    times, steal = np.array(m["samples_s"]), np.array([s or 0.0 for s in m["steal_s"]])
    if None in m["cpu_s"] or None in m["involuntary_switches"]:
        return np.ones(len(times), bool)
    long = times * m["calls_per_sample"]
    shares, switches = np.array(m["cpu_s"]) / long, np.array(m["involuntary_switches"], float)
    usual = np.quantile(switches, 0.25) if len(times) >= 3 else 0
    return (shares >= 0.95 * np.quantile(shares, 0.75)) & (steal == 0) & (switches <= usual + long // 10e-3)


def process_time(record):
    """Seconds, whether disturbed, and the samples that were used."""
    m, is_good = record["measurement"], undisturbed(record["measurement"])
    times, others = np.array(m["samples_s"]), m.get("other_cpus")
    needed = min(3, len(times))
    is_disturbed = is_good.sum() < needed
    used = times if is_disturbed else times[is_good]
    if others is not None and others >= 0.3:
        most = times * m["calls_per_sample"] // 10e-3
        cut = [s is not None and n >= 1 and s > n for s, n in zip(m["involuntary_switches"], most, strict=True)]
        is_disturbed |= len(times) - sum(cut) < needed
    cpus = (record["process"] or {}).get("cpus")
    if isinstance(cpus, list) and others is not None and others - max(0, len(cpus) - record["threads"]) >= 0.3:
        shares = np.array([c for c in m["cpu_s"] if c is not None]) / (times * m["calls_per_sample"])
        is_disturbed |= bool(np.quantile(shares, 0.75) < 0.95 * record["threads"])
    return float(np.median(used)), bool(is_disturbed), used


def estimate(rounds):
    """Time, ends of the interval, and whether disturbed."""
    found = [process_time(r) for r in rounds]
    clean = [p for p in found if not p[1]]
    if 2 * len(clean) < len(found):
        disturbed = [r["measurement"]["samples_s"] for r, p in zip(rounds, found, strict=True) if p[1]]
        return min([np.quantile(times, 0.25) for times in disturbed] + [p[0] for p in found]), None, None, True
    logs = np.sort(np.log([p[0] for p in clean]))
    if len(logs) > 1:
        time = math.exp(np.quantile(logs, 0.25))
        half = HALF_WIDTHS[len(logs)] * (logs[len(logs) // 2 if len(logs) > 3 else -1] - logs[0])
        return time, time * math.exp(-half), time * math.exp(half), False
    values, n = np.sort(clean[0][2]), len(clean[0][2])
    if n < 6:
        return clean[0][0], None, None, False
    half = 1.959963984540054 * math.sqrt(n) / 2
    low, high = max(0, math.floor(n / 2 - half) - (n < 10)), min(n - 1, math.ceil(n / 2 + half))
    return clean[0][0], values[low], values[high], False


@pytest.fixture(scope="module")
def file_of_the_repository():
    """The lines of every tenth case that has a time."""
    rounds = {}
    with gzip.open(REPOSITORY / "results" / "xeon-amx-2vcpu.jsonl.gz", "rt") as file:
        for line in file:
            record = json.loads(line)
            if record.get("status") == "ok":
                rounds.setdefault(record["case"], []).append(line)
    return {case: rounds[case] for case in list(rounds)[::10]}


@pytest.mark.parametrize(("rounds", "stolen"), [(20, 0.0), (1, 0.0), (5, 0.4), (4, 0.9)])
def test_times_in_the_file_of_the_repository_follow_from_their_samples(file_of_the_repository, rounds, stolen):
    """Also as if the file had fewer rounds, and as if the hypervisor had taken time from some of them."""
    chosen, records = random.Random(rounds), {}
    for case, listed in file_of_the_repository.items():
        records[case] = [json.loads(text) for text in listed[:rounds]]
        for record in records[case]:
            if chosen.random() < stolen:
                m = record["measurement"]
                m["steal_s"] = [0.01 if i > chosen.randrange(8) else 0.0 for i in range(len(m["samples_s"]))]
    found = {s.record["case"]: s.estimate for s in summarize([r for listed in records.values() for r in listed])}

    assert stolen < 0.5 or any(time.disturbed for time in found.values())
    for case, time in found.items():
        *wanted, is_disturbed = estimate(records[case])
        assert is_disturbed == time.disturbed, case
        for one, other in zip(wanted, (time.time_s, time.low_s, time.high_s), strict=True):
            assert one is None is other or one == pytest.approx(other, rel=1e-9), case


# ---- collectives


@pytest.mark.parametrize(
    ("name", "factor"),
    [
        ("all_reduce", lambda n: 2 * (n - 1) / n),
        *((name, lambda n: (n - 1) / n) for name in ("all_gather", "reduce_scatter", "all_to_all")),
        *((name, lambda n: 1) for name in ("broadcast", "send_receive")),
    ],
)
def test_bus_factors_are_those_of_nccl_tests(name, factor):
    for ranks in (2,) if name == "send_receive" else (2, 3, 8, 64):
        case = parse_case(f"{name} n=9216 ranks={ranks} forward f32 mpich threads=1")
        assert factor(ranks) == pytest.approx(find_op(name).facts(case)["bus_factor"])


# The samples of a record by hand have this median, over the time that was asked for.
MEDIAN = 1.0005

# Seconds per message, and per byte.
LATENCY, PER_BYTE = 5e-6, 2e-10


def ring_s(ranks, count):
    """2 (r − 1) messages of a part of the array each."""
    return 2 * (ranks - 1) * (LATENCY + count / ranks * PER_BYTE)


def test_predicted_all_reduces_follow_the_formula_of_a_ring(monkeypatch):
    monkeypatch.setattr(groups, "check_on_published", str)  # it takes seconds, and has a test of its own
    # The lower quartile of three rounds of 1.01, 1.02 and 1.03, as a mean of logarithms.
    typical = MEDIAN * math.sqrt(1.01 * 1.02)
    records = [r for ranks in (2, 4, 8) for n in (100_000, 2_500_000)
               for r in samples.all_reduce(ranks, ring_s(ranks, 4 * n) / typical, n=n)]  # fmt: skip
    rows = {row["bytes"]: row for row in groups.scaled(summarize(records), (16, 64)).rows}

    assert 0.0045675 == pytest.approx(ring_s(64, 10**7)) == rows[10**7]["64 ranks"]
    # Bandwidth of the bus: 15/8 S / 0.3 ms with 16 ranks, and S / 0.09 ms with 2.
    assert 0.5625 == pytest.approx(rows[400_000]["16 keep"])


def test_a_step_on_more_devices_takes_what_its_parts_take():
    """Each kernel takes 1 ms over the number of devices; each optimizer 1 ms; the all-reduce of two devices 2 ms."""
    records = [*samples.kernels_of_steps(1, 2), *samples.all_reduce(2, 2e-3)]
    (found,) = suite_devices.of_summaries(summarize(records))
    one, two = found.steps
    calls = {True: 0, False: 0}  # by whether it is an optimizer
    for record in records:
        for source in record["sources"] if record["round"] == 1 else ():
            if source["suite"].endswith("devices=1") and source.get("needed", True):
                calls[record["op"] == "optimizer"] += source.get("count", 1)
    typical = MEDIAN * 1e-3 * math.sqrt(1.02)  # the lower quartile of rounds of 1, 1.02 and 1.04 ms
    reduce_s = MEDIAN * 2e-3 * math.sqrt(1.01 * 1.02)

    assert min(calls.values()) > 0
    assert one.one_after_the_other.seconds == pytest.approx(typical * sum(calls.values()))
    assert two.one_after_the_other.seconds == pytest.approx(typical * (calls[True] + calls[False] / 2) + reduce_s)


# ---- networks


def test_memory_of_any_step_is_what_lives_at_a_time():
    for seed in range(60):
        chosen = random.Random(seed)
        sizes = tuple(chosen.choice([10, 100, 1000, 5000]) for _ in range(8))
        calls = [
            TracedCall("a", None, "", *(tuple(chosen.sample(range(8), chosen.randint(0, 3))) for _ in "rw"), 1)
            for _ in range(chosen.randint(1, 12))
        ]
        uses = {}
        for number, call in enumerate(calls):
            for buffer, is_read in [*((b, True) for b in call.reads), *((b, False) for b in call.writes)]:
                uses.setdefault(buffer, []).append((number, is_read))
        kept = sum(sizes[b] for b, used in uses.items() if used[0][1])
        results = [(b, used[0][0], used[-1][0]) for b, used in uses.items() if not used[0][1]]
        most = max(sum(sizes[b] for b, first, last in results if first <= t <= last) for t in range(len(calls)))
        memory = Trace("n", "", True, tuple(calls), sizes, 0, None).memory

        assert (kept, most) == (memory.kept, memory.temporary)


GEMMS = [
    parse_case(f"gemm m={m} n={n} k={k} a_t=0 b_t=0 forward f32 mkl threads=1")
    for m, n, k in [(64, 64, 64), (1760, 128, 1760), (35, 700, 2048), (7680, 1, 2560), (1, 1, 1), (4096, 16, 4096)]
]


class AnyModel(TimeModel):
    """A model whose constants are as good as any: what holds for every machine holds for it."""

    def fit_of(self, case):
        key = case and case.op
        if key not in self._fits:
            chosen = random.Random(len(self._fits))

            def any_constants():
                low = (10 ** chosen.uniform(-8, -5), chosen.uniform(0.05, 2), chosen.uniform(0.1, 2))
                return Constants(*low, chosen.uniform(1, 16))

            errors = Errors(0.2, chosen.uniform(0, 0.4), chosen.uniform(0.1, 1.5), 9)
            others = tuple(any_constants() for _ in range(5))
            self._fits[key] = FittedModel("any", any_constants(), errors, self.hardware.overhead.call_s, others)
        return self._fits[key]


def any_machine(seed):
    """A machine with up to three levels of cache, and an application of a few products on it."""
    chosen, levels, size = random.Random(seed), [], 0.0
    for i in range(chosen.randint(0, 3)):
        size = size * chosen.uniform(2, 60) + chosen.uniform(1e4, 1e6)
        levels.append(MemoryLevel(f"L{i + 1}", size, chosen.uniform(1e10, 1e12)))
    levels.append(MemoryLevel("main", None, chosen.uniform(1e9, 1e11)))
    overhead = Overhead(10 ** chosen.uniform(-6, -4), 2e-6)
    hardware = Hardware("any", "hypothetical", {"f32": chosen.uniform(1e10, 1e12)}, tuple(levels), overhead, None)
    terms = []
    for case in chosen.sample(GEMMS, 3):
        seconds = 10 ** chosen.uniform(-6, -2)
        terms.append(Term(case, "k", chosen.randint(1, 5), seconds, 0.9 * seconds, 1.2 * seconds, 0, 100))
    return hardware, ModelledApplication("a", terms)


@pytest.mark.parametrize("seed", range(12))
def test_on_any_machine_a_faster_part_never_makes_a_step_slower_nor_faster_than_itself(seed):
    hardware, application = any_machine(seed)
    model = AnyModel(hardware, {})
    rates = [n for n in hardware.knobs if n != "units" and not n.endswith(".bytes")]
    words = {name: f"{name}{'/' if effects.is_fixed_cost(name) else '*'}" for name in rates}
    for factor in (1.5, 10.0):
        for name in rates:
            ratio = effects.what_if(application, model, Change.parse(f"{words[name]}{factor}")).ratio
            assert 1 / factor - 1e-9 <= ratio.value <= 1 + 1e-9, name
            assert 0 < ratio.low <= ratio.value + 1e-9, name
            assert ratio.value <= ratio.high + 1e-9, name
    everything = Change.parse(",".join(f"{words[name]}2" for name in rates))
    assert 0.5 == pytest.approx(effects.what_if(application, model, everything).ratio.value)


# ---- applications


def test_the_time_to_a_target_is_samples_over_rate_and_two_sides_are_compared_seed_by_seed(tmp_path):
    """Curves cross 0.9 between the second and the third evaluation; each interval of 1000 samples takes 10 or 8 s."""
    qualities = [[0.5, 0.8, 0.95], [0.5, 0.85, 0.95], [0.5, 0.8, 1.0]]
    crossings = [2000 + 1000 * 0.1 / 0.15, 2500.0, 2500.0]
    first = [({"seed": s, "samples": 3000}, {"qualities": q, "chunk_s": 10.0}) for s, q in enumerate(qualities)]
    second = [({"seed": s, "samples": 3000}, {"qualities": q, "chunk_s": 8.0}) for s, q in enumerate(qualities)]
    sides = [trained(runs_of(curves.write(tmp_path / name, runs))) for name, runs in (("a", first), ("b", second))]
    (one,), (two,) = sides
    ((pair,), _) = pairs([one], [two], margin=0.02)
    logs = [math.log(c) for c in crossings]
    centre = sum(logs) / 3
    # The 97.5 % quantile of Student's t with two degrees of freedom is 4.302653.
    half = 4.302653 * math.sqrt(sum((v - centre) ** 2 for v in logs) / 2 / 3)

    spread = one.samples_to_target
    wanted = [math.exp(centre), math.exp(centre - half), math.exp(centre + half)]
    assert wanted == pytest.approx([spread.value, spread.low, spread.high], rel=1e-6)
    assert 100.0 == pytest.approx(one.samples_per_second.value)
    assert math.exp(centre) / 100 == pytest.approx(one.train_s.value)
    assert (1.0, 1.25, 0.8) == pytest.approx((pair.samples.value, pair.rate.value, pair.time.value))


def test_the_rate_of_three_passes_over_a_data_set():
    """943 samples in 0.5, 0.52 and 0.51 s."""
    line = {"status": "ok", "scenario": "offline", "passes_s": [0.5, 0.52, 0.51], "start": {"tests": 943}}
    found = serving.Served(dict(curves.SETUP), line).samples_per_second

    wanted = [1849.2566312539932, 1761.328106778087, 1941.5746987041794]
    assert wanted == pytest.approx([found.value, found.low, found.high])


def test_the_flop_of_an_lstm_are_those_of_its_products():
    """Two products of four gates for each of 25 steps: with an input of 512, and with a state of 1024."""
    case = parse_case(
        "recurrent cell=lstm input_size=512 hidden=1024 batch=16 timesteps=25 forward f32 onednn threads=1"
    )
    parts = [parse_case(f"gemm m={4 * 1024} n=16 k={k} a_t=0 b_t=0 forward f32 mkl threads=1") for k in (512, 1024)]

    assert 25 * 2 * 4 * 1024 * 16 * (512 + 1024) == case.operation.flop(case) == 5_033_164_800
    assert 25 * sum(p.operation.flop(p) for p in parts) == case.operation.flop(case)
