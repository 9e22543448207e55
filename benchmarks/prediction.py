"""How far predictions are from real steps: 16 networks in PyTorch, of which three fix constants and 13 are held out.

python benchmarks/prediction.py FOLDER [NAME]...     measures what FOLDER lacks (4 minutes each), then prints the table
python benchmarks/prediction.py FOLDER --table       the table from what was measured before

Of each network FOLDER gets the trace (.suite), and its kernels with the real step in turn with them (.jsonl).
Asked: of the held-out networks a median error of at most 3 %, a mean of at most 5 %, and 95 % within 10 %.
"""

from __future__ import annotations

import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from deepbench.networks import forecast, read  # noqa: E402
from deepbench.networks.predict import Prediction, Time  # noqa: E402
from deepbench.networks.runner import Request  # noqa: E402
from deepbench.report.progress import Bar  # noqa: E402
from deepbench.results.file import read_results  # noqa: E402

NETWORKS = Path(__file__).parent / "networks.py"


@dataclass(frozen=True)
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
    request = Request(name, network.settings, network.is_training, threads=THREADS)
    path = folder / f"{network.stem}.part.jsonl"
    path.unlink(missing_ok=True)
    print(network.title, flush=True)
    with Bar() as bar:
        forecast.forecast([trace], [], library=LIBRARY, threads=THREADS, output=path, network=request, progress=bar)
    path.rename(folder / f"{network.stem}.jsonl")


@dataclass(frozen=True)
class Outcome:
    """A prediction next to the real step."""

    network: Network
    prediction: Prediction
    step: Time

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.prediction.known.seconds / self.step.seconds - 1


def outcome(network: Network, folder: Path) -> Outcome:
    """Predict a network from what was measured."""
    trace = read.read_suite_trace(folder / f"{network.stem}.suite")
    file = read_results(folder / f"{network.stem}.jsonl")
    found = forecast.forecast([trace], [file], library=LIBRARY, threads=THREADS)
    assert found.measured is not None, "the file has the steps"
    return Outcome(network, found.predictions[0], found.measured)


def table(outcomes: list[Outcome]) -> str:
    """As Markdown."""
    lines = [
        "| network | step | predicted | error | kernels | others | overhead | constants |",
        "|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    for o in outcomes:
        known = o.prediction.known.seconds
        shares = (
            o.prediction.measured_share,
            o.prediction.others.seconds / known,
            o.prediction.overhead.seconds / known if o.prediction.overhead else 0.0,
        )
        cells = [
            o.network.title,
            f"{o.step.seconds * 1e3:.1f} ms",
            f"{known * 1e3:.1f} ms" + (" (lower bound)" if o.prediction.missing else ""),
            f"{100 * o.error:+.1f} %",
            *(f"{100 * share:.0f} %" for share in shares),
            "fixed on it" if o.network.fixes_constants else "held out",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    for title, chosen in (("held out", [o for o in outcomes if not o.network.fixes_constants]), ("all", outcomes)):
        errors = [abs(o.error) for o in chosen]
        if errors:
            lines.append(
                f"\n{title}: {len(errors)} networks, median {100 * statistics.median(errors):.1f} %, mean "
                f"{100 * statistics.mean(errors):.1f} %, largest {100 * max(errors):.1f} %, "
                f"{100 * sum(e <= 0.1 for e in errors) / len(errors):.0f} % within 10 %"
            )
    return "\n".join(lines)


def main() -> None:
    """See the top of this file."""
    folder, names = Path(sys.argv[1]), [word for word in sys.argv[2:] if word != "--table"]
    folder.mkdir(parents=True, exist_ok=True)
    chosen = [n for n in CHOSEN if not names or any(name.lower() in n.title.lower() for name in names)]
    if "--table" not in sys.argv:
        for network in chosen:
            if not (folder / f"{network.stem}.jsonl").exists():
                measure(network, folder)
    print(table([outcome(n, folder) for n in chosen if (folder / f"{n.stem}.jsonl").exists()]))


if __name__ == "__main__":
    main()
