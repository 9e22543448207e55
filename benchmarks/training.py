"""What the engine of `deepbench train` costs: its rate over that of a plain loop of the same model, in turn.

    python benchmarks/training.py [APPLICATION...]

Both train the `mini` rung in PyTorch with one thread, in chunks of the same number of steps. The plain loop is what a
user would write: a permutation per epoch, loss, backward, step. It has no schedule of the learning rate, no autocast
and no progress. The ratio is that of the medians of the chunks; the wanted one is at least 0.95.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from time import perf_counter

import torch

from deepbench.applications import datasets
from deepbench.applications.training.application import Setup, applications
from deepbench.applications.training.torch_task import TorchTask
from deepbench.applications.training.worker import train_steps

CHUNKS, SECONDS = 15, 2.0


def plain_loop(
    task: TorchTask,
    batch: int,
    steps: int,
    loss_of: Callable[[torch.nn.Module, torch.Tensor], torch.Tensor],
    longest: float | None,
) -> None:
    """So many steps."""
    order = torch.randperm(task.examples)
    at = 0
    for _ in range(steps):
        if at + batch > task.examples:
            order, at = torch.randperm(task.examples), 0
        loss = loss_of(task.model, order[at : at + batch])
        task.optimizer.zero_grad()
        loss.backward()
        if longest is not None:
            torch.nn.utils.clip_grad_norm_(task.model.parameters(), longest)
        task.optimizer.step()
        at += batch
    loss.item()


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    for name in names:
        application = applications()[name]
        rung = application.rungs["mini"]
        data = [datasets.find(datasets.find_dataset(d)).load() for d in rung.datasets or application.datasets]
        tasks = [application.torch_task(Setup(name, "mini"), rung, data) for _ in range(2)]
        times = train_steps(tasks[0], 3)
        train_steps(tasks[1], 3)
        steps = max(3, round(SECONDS / (times["train_s"] / 3)))
        rates: tuple[list[float], list[float]] = ([], [])
        for chunk in range(2 * CHUNKS):
            side = (chunk + chunk // 2) % 2  # ABBA
            begin = perf_counter()
            if side == 0:
                train_steps(tasks[0], steps)
            else:
                plain_loop(tasks[1], rung.batch, steps, tasks[1]._loss_of, tasks[1]._longest_gradient)
            rates[side].append(steps * rung.batch / (perf_counter() - begin))
        ours, plain = map(statistics.median, rates)
        ratios = sorted(a / b for a, b in zip(*rates, strict=True))
        low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
        print(f"{name}: {ours / plain:.3f} (half of the pairs from {low:.3f} to {high:.3f}), {ours:,.0f} samples/s")


if __name__ == "__main__":
    # Batches of Go are positions of games that its task plays itself, so there is no plain loop for them.
    main(sys.argv[1:] or [name for name in applications() if name != "go"])
