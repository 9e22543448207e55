"""Lines of result files, made by hand, and files of them."""

from dataclasses import asdict

from deepbench.core.case import parse_case
from deepbench.core.json_lines import to_line
from deepbench.plan.modes import DEFAULT
from deepbench.plan.suites import read_suite
from deepbench.results.record import SCHEMA, make_record

TEXT = "gemm m=2 n=3 k=4 forward f32 {backend} threads=1"


def header(cases=()):
    return {
        "schema": SCHEMA,
        "tool": "deepbench test",
        "started": "2026-11-21T00:00:00+00:00",
        "command": [],
        "machine": {"host": "here", "cpu": "A CPU"},
        "libraries": {},
        "plan": {
            "rounds": {"least": 1, "most": 1, "target": 0.03, "most_s": 1.0},
            "mode": "default",
            "order_seed": 1,
            "timeout_s": 60.0,
            "rules": asdict(DEFAULT.rules),
            "cases": [{"case": c, "sources": []} for c in cases],
        },
    }


def peak(flop_per_s=1e9, precision="f32", threads=1):
    """The measured peak of a precision."""
    return {
        "what": "compute",
        "precision": precision,
        "device": "cpu",
        "threads": threads,
        "flop_per_s": flop_per_s,
        "seconds": 1e-3,
        "case": "gemm",
        "library": "MKL 1",
        "at": "2026-11-21T00:00:00+00:00",
    }


def check(passed=True):
    return {
        "passed": passed,
        "how": "every element",
        "error": 0.1 if passed else 5.0,
        "got": 1.0,
        "want": 1.0 if passed else 2.0,
        "covers": 6,
        "of": 6,
    }


def measured(backend="mkl", seconds=1e-3, round_number=1, status="ok", text=TEXT):
    record = make_record(parse_case(text.format(backend=backend)), round_number, status)
    n = 10
    record["measurement"] = {
        "samples_s": [seconds * (1 + 0.001 * i) for i in range(-4, 6)],
        "calls_per_sample": 2,
        "cpu_s": [seconds * 2] * n,
        "involuntary_switches": [0] * n,
        "steal_s": [0.0] * n,
        "first_call_s": seconds * 3,
        "warm_up_calls": 4,
        "warm_up_s": 0.01,
        "stopped": "sure",
        "loop": "native",
    }
    if status in ("ok", "wrong"):
        record["check"] = {"before": check(), "after": check(status == "ok")}
    record["library"] = {"name": backend.upper(), "version": "1.0", "path": f"/lib/{backend}.so"}
    record["process"] = {"duration_s": 0.5}
    return record


def disturbed(*arguments, **options):
    """A measured record of which other programs interrupted every sample but two."""
    record = measured(*arguments, **options)
    record["measurement"]["steal_s"] = [0.0] * 2 + [0.01] * 8
    return record


def ocr(precision="i8", seconds=1e-3):
    """The four kernels of an application: OCR on servers. In 8 bits, several published machines have them, too."""
    entries = [e for e in read_suite("deepbench/server") if e.source["application"] == "OCR"]
    texts = [f"conv {e.pattern.problem.text} forward {precision} onednn threads=1" for e in entries]
    return [
        {**measured(text=text, seconds=seconds), "sources": [e.source]} for text, e in zip(texts, entries, strict=True)
    ]


# A small model with a training step, the number of its gradients, and the time of one kernel for the whole batch.
TRAINED, GRADIENTS, ONE_KERNEL_S = "mlperf/sentiment_conv", 7346176, 1e-3


def kernels_of_steps(*devices, rounds=3, fit="", precision="f32"):
    """Every kernel of the steps, each taking as long as its part of the batch says; the optimizer always the same."""
    sources, times = {}, {}
    for count in devices:
        for e in read_suite(f"{TRAINED}:phase=train,devices={count}{fit}"):
            if e.pattern.op != "all_reduce":
                words = [e.pattern.op, e.pattern.problem.text, e.pattern.direction, precision, "reference threads=1"]
                text = " ".join([*words, *(f"{name}={value}" for name, value in e.stated.items())])
                sources.setdefault(text, []).append(e.source)
                times[text] = ONE_KERNEL_S / (1 if e.pattern.op == "optimizer" else count)
    return [
        {**measured(text=text, seconds=times[text] * (1 + 0.02 * i), round_number=i + 1), "sources": listed}
        for text, listed in sources.items()
        for i in range(rounds)
    ]


def all_reduce(ranks, seconds, n=GRADIENTS, precision="f32", oversubscribed=False):
    text = f"all_reduce n={n} ranks={ranks} forward {precision} mpich threads=1"
    group = {"launcher": "hydra", "hosts": {"h": ranks}, "oversubscribed": oversubscribed, "deterministic": "yes"}
    made = [measured(text=text, seconds=seconds * (1 + 0.01 * i), round_number=i) for i in (1, 2, 3)]
    return [{**record, "group": group} for record in made]


def failed(status, reason, backend="mkl", round_number=1):
    return make_record(parse_case(TEXT.format(backend=backend)), round_number, status, reason)


def write(path, lines, first=None):
    """Write a result file: `first` (default: `header()`), then records and limits. Returns the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(to_line(line) for line in [header() if first is None else first, *lines]))
    return path
