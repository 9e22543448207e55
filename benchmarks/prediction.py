"""How far predictions are from real steps: 16 networks in PyTorch, of which three fix constants and 13 are held out.

python benchmarks/prediction.py FOLDER [NAME]...     measures what FOLDER lacks (5 minutes each), then prints the table
python benchmarks/prediction.py FOLDER --busy        the same into FOLDER/busy, while another program works in bursts
python benchmarks/prediction.py FOLDER --table       the table from what was measured before
python benchmarks/prediction.py FOLDER --write       writes it into docs/prediction.md, with the picture

Of each network FOLDER gets the trace (.suite), its kernels with the real step in turn with them (.jsonl), and how much
longer a step is with the default settings of the C library's allocator (.allocator.json).
Asked: of the held-out networks a median error of at most 3 %, a mean of at most 5 %, and 95 % within 10 %.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from deepbench.core.times import Time  # noqa: E402
from deepbench.networks.predictions import forecast  # noqa: E402
from deepbench.networks.predictions.measured import StepTimes  # noqa: E402
from deepbench.networks.predictions.predict import Prediction  # noqa: E402
from deepbench.networks.predictions.runner import Runner, StepRequest  # noqa: E402
from deepbench.networks.reporting import predictions  # noqa: E402
from deepbench.networks.traces import read  # noqa: E402
from deepbench.reporting import bars as bars_module  # noqa: E402
from deepbench.reporting.progress import Bar  # noqa: E402
from deepbench.results.file import read_results  # noqa: E402

NETWORKS = Path(__file__).parent / "networks.py"


@dataclass(frozen=True, eq=False)
class Network:
    """A network with the sizes that make a step take a tenth of a second or so."""

    title: str
    function: str
    is_training: bool
    settings: dict[str, str]
    fixes_constants: bool = False

    @property
    def stem(self) -> str:
        """Of its files."""
        return self.title.replace(" ", "-").replace(",", "").lower()


def _network(title: str, function: str, phase: str, settings: str = "", fixes_constants: bool = False) -> Network:
    pairs = dict(word.split("=") for word in settings.split())
    return Network(f"{title}, {phase}", function, phase == "training", pairs, fixes_constants)


CHOSEN = (
    _network("Perceptron", "mlp", "training", "width=1024 batch=256", True),
    _network("ResNet-18", "resnet", "training", "depth=18 image=112 batch=4", True),
    _network("LSTM words", "words", "training", "vocabulary=2000", True),
    _network("ResNet-50", "resnet", "inference", "depth=50 image=224 batch=4"),
    _network("VGG-11", "vgg", "inference", "image=128 batch=4"),
    _network("MobileNet", "mobilenet", "inference", "image=160 batch=8"),
    _network("GRU words", "words", "training", "cell=GRU vocabulary=2000"),
    _network("Encoder", "bert", "training", "width=256 layers=4 sequence=128 batch=8 words=8000 masked=20"),
    _network("Encoder", "bert", "inference", "width=512 layers=4 sequence=128 batch=8 words=8000 masked=20"),
    _network("Decoder", "decoder", "training", "width=384 layers=4 heads=6 inner=1024 words=4000 batch=4"),
    _network("Decoder", "decoder", "inference"),
    _network("Speech", "deepspeech2", "training", "hidden=256 batch=4 frames=301 padded=1 labels=20"),
    _network("Recommender", "dlrm", "training", "batch=512 most_rows=50000 dim=32"),
    _network("Detector", "detector", "training", "image=128 batch=2"),
    _network("U-Net", "unet", "training", "image=96 batch=2 width=16"),
    _network("Translation", "gnmt", "training", "width=256 words=4000 steps=20 batch=16"),
)

LIBRARY, THREADS = "torch", 1


def measure(network: Network, folder: Path) -> None:
    """The kernels of a network, the real step in turn with them, and steps that measure the overhead."""
    name = f"{NETWORKS}:{network.function}"
    trace = read.read(name, network.settings, is_training=network.is_training)
    trace.save(folder / f"{network.stem}.suite")
    request = StepRequest(name, network.settings, network.is_training, threads=THREADS)
    path = folder / f"{network.stem}.part.jsonl"
    path.unlink(missing_ok=True)
    print(network.title, flush=True)
    with Bar() as bar:
        forecast.forecast([trace], [], library=LIBRARY, threads=THREADS, output=path, network=request, progress=bar)
    ratio = allocator_ratio(request)
    (folder / f"{network.stem}.allocator.json").write_text(json.dumps({"default_over_kept": ratio}) + "\n")
    path.rename(folder / f"{network.stem}.jsonl")


# Slices of steps with each setting of the allocator, and their seconds.
SLICES, SLICE_S = 8, 0.5


def allocator_ratio(request: StepRequest) -> float:
    """A step with the default settings of the C library's allocator over one that keeps freed memory: they take turns.

    The median of the ratios of neighbouring slices.
    """
    ratios = []
    with Runner(request) as kept, Runner(request, keeps_memory=False) as default:
        for _ in range(SLICES):
            longer, step = (StepTimes([runner.samples(SLICE_S)]).seconds for runner in (default, kept))
            ratios.append(longer / step)
    return round(statistics.median(ratios), 4)


# Works for some tenths of a second, then sleeps as long, as other programs on a shared machine do.
BURSTS = """
import random, time
import torch
torch.set_num_threads(1)
a = torch.randn(1500, 1500)
while True:
    end = time.monotonic() + random.uniform(0.05, 1.0)
    while time.monotonic() < end:
        a @ a
    time.sleep(random.uniform(0.05, 1.0))
"""
PROGRAMS = 2


@contextlib.contextmanager
def bursts(is_busy: bool) -> Iterator[None]:
    """Keep other programs working meanwhile."""
    programs = [subprocess.Popen([sys.executable, "-c", BURSTS]) for _ in range(PROGRAMS if is_busy else 0)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


@dataclass(frozen=True)
class Outcome:
    """A prediction next to the real step."""

    network: Network
    prediction: Prediction
    step: Time
    where: str
    """The processor, the library, and the day."""

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.prediction.known.seconds / self.step.seconds - 1

    @property
    def is_covered(self) -> bool:
        """Whether the interval of the prediction holds the measured step."""
        known = self.prediction.known
        return known.low_s is not None and known.high_s is not None and known.low_s <= self.step.seconds <= known.high_s


def outcome(network: Network, folder: Path) -> Outcome:
    """Predict a network from what was measured."""
    trace = read.read_suite_trace(folder / f"{network.stem}.suite")
    file = read_results(folder / f"{network.stem}.jsonl")
    found = forecast.forecast([trace], [file], library=LIBRARY, threads=THREADS)
    assert found.measured is not None, "the file has the steps"
    library = next(record["library"] for record in file.records if record["library"])
    day = str(file.header["started"])[:10]
    where = f"{file.header['machine']['cpu']}, PyTorch {library['version']}, {day}"
    return Outcome(network, found.predictions[0], found.measured, where)


def table(outcomes: list[Outcome], busy: list[Outcome], ratios: dict[Network, float]) -> str:
    """As Markdown. `busy` has the outcomes of a busy hour; `ratios` those of the default allocator."""
    lines = [
        "| network | measured | predicted | interval | error | busy | kernels | others | overhead | allocator |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    errors_when_busy = {o.network: o.error for o in busy}
    for o in outcomes:
        known = o.prediction.known
        shares = (
            o.prediction.measured_share,
            o.prediction.others.seconds / known.seconds,
            o.prediction.overhead.seconds / known.seconds if o.prediction.overhead else 0.0,
        )
        ends = "–" if known.low_s is None or known.high_s is None else f"{_ms(known.low_s)} to {_ms(known.high_s)}"
        cells = [
            o.network.title + (" *" if o.network.fixes_constants else ""),
            f"{_ms(o.step.seconds)} ms",
            f"{_ms(known.seconds)} ms" + (" (lower bound)" if o.prediction.missing else ""),
            ends,
            _percent(o.error),
            _percent(errors_when_busy.get(o.network)),
            *(f"{100 * share:.0f} %" for share in shares),
            _percent(ratios[o.network] - 1 if o.network in ratios else None),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines.append("\n\\* constants were fixed on this network; all others are held out.\n")
    for title, several in (("Quiet hour", outcomes), ("Busy hour", busy)):
        if several:
            lines.append(f"- {title}: {'; '.join(dict.fromkeys(o.where for o in several))}.")
    held_out = [o for o in outcomes if not o.network.fixes_constants]
    held_out_busy = [o for o in busy if not o.network.fixes_constants]
    for title, chosen in (("Held out", held_out), ("All", outcomes), ("Held out, busy", held_out_busy)):
        errors = [abs(o.error) for o in chosen]
        if errors:
            lines.append(
                f"- {title}: {len(errors)} networks, median error {100 * statistics.median(errors):.1f} %, mean "
                f"{100 * statistics.mean(errors):.1f} %, largest {100 * max(errors):.1f} %; "
                f"{sum(e <= 0.1 for e in errors)} within 10 %; "
                f"{sum(o.is_covered for o in chosen)} inside their interval."
            )
    return "\n".join(lines)


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:+.1f} %"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f}"


def picture(outcomes: list[Outcome]) -> str:
    """A bar for each network, with its measured step as a line."""
    bars = []
    for o in outcomes:
        known = o.prediction.known
        ends = None if known.low_s is None or known.high_s is None else (known.low_s, known.high_s)
        parts = predictions.groups(o.prediction)
        bars.append(bars_module.StackedBar(o.network.title, parts, f"{100 * o.error:+.1f} %", ends, o.step.seconds))
    return bars_module.svg("Predicted steps by group of kernels; the black line is the measured step", bars)


def write(text: str, outcomes: list[Outcome]) -> None:
    """Into the documentation, between its marks."""
    page, marks = ROOT / "docs" / "prediction.md", ("<!-- table -->\n", "<!-- end of table -->\n")
    before, _, rest = page.read_text().partition(marks[0])
    _, _, after = rest.partition(marks[1])
    image = "![Predicted and measured steps](pictures/prediction.svg)\n"
    page.write_text(f"{before}{marks[0]}\n{text}\n\n{image}\n{marks[1]}{after}")
    (ROOT / "docs" / "pictures" / "prediction.svg").write_text(picture(outcomes))


def main() -> None:
    """See the top of this file."""
    folder, names = Path(sys.argv[1]), [word for word in sys.argv[2:] if not word.startswith("--")]
    chosen = [n for n in CHOSEN if not names or any(name.lower() in n.title.lower() for name in names)]
    if not {"--table", "--write"} & set(sys.argv):
        into = folder / "busy" if "--busy" in sys.argv else folder
        into.mkdir(parents=True, exist_ok=True)
        with bursts("--busy" in sys.argv):
            for network in chosen:
                if not (into / f"{network.stem}.jsonl").exists():
                    measure(network, into)
    outcomes, busy = (
        [outcome(n, place) for n in chosen if (place / f"{n.stem}.jsonl").exists()]
        for place in (folder, folder / "busy")
    )
    known = {n: folder / f"{n.stem}.allocator.json" for n in chosen}
    ratios = {n: json.loads(path.read_text())["default_over_kept"] for n, path in known.items() if path.exists()}
    text = table(outcomes, busy, ratios)
    print(text)
    if "--write" in sys.argv:
        write(text, outcomes)


if __name__ == "__main__":
    main()
