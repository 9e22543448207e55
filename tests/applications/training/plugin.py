"""Applications for tests: a line that is fitted to points, and ways to fail. Loaded as a plug-in."""

import os
import signal
import time
from pathlib import Path

from deepbench.applications.training.application import Application, Metric, Rung

RUNG = Rung("16 numbers", batch=8, samples=8 * 40, every=8 * 10, target=0.05, settings={"fails": ""})
FAILURES = ("diverges", "crashes", "memory", "later-memory", "raises", "missing", "slow")
IN_ANSWERS = ("wrong-by-8", "dies-by-8", "hangs-by-8", "keeps-answers")


class Line(Application):
    name = "line"
    title = "A line"
    metric = Metric("error", higher_is_better=False, is_share=False)
    has_equal_samples = True
    outside_steps = "drawing the line"
    datasets = ()
    rungs = {
        "mini": RUNG,
        **{name: Rung("fails", 8, 8 * 40, 8 * 10, 0.05, {"fails": name}) for name in FAILURES + IN_ANSWERS},
        "unknown-data": Rung("lacks its data", 8, 320, 80, 0.05, {"fails": ""}, ("nothing",)),
    }

    def torch_task(self, setup, rung, data):
        import torch
        from torch import nn

        from deepbench.applications.training.torch_task import TorchTask

        torch.manual_seed(setup.seed)
        fails = rung.settings["fails"]
        x = torch.linspace(-1, 1, 32)[:, None]
        wanted = 2 * x + 0.5
        model = nn.Sequential(nn.Dropout(0.1), nn.Linear(1, 1))
        made = [0]

        def loss(model, at):
            made[0] += 1
            if made[0] == {"memory": 5, "later-memory": 15}.get(fails):
                torch.empty(2**50)
            if made[0] == 15:
                if fails == "crashes":
                    os.kill(os.getpid(), signal.SIGKILL)
                if fails == "raises":
                    raise ValueError("seven is no colour")
            if fails == "slow" and "HALT" in os.environ and made[0] == 25:
                Path(os.environ["HALT"]).touch()
                time.sleep(60)
            found = (model(x[at]) - wanted[at]).square().mean()
            return found * float("nan") if fails == "diverges" and made[0] > 15 else found

        kept = set()

        def answer(model, at):
            if fails == "dies-by-8" and len(at) == 8:
                os.kill(os.getpid(), signal.SIGKILL)
            if fails == "hangs-by-8" and len(at) == 8:
                time.sleep(60)
            if fails == "keeps-answers" and not kept.issuperset(at.tolist()):
                kept.update(at.tolist())
                time.sleep(0.002)
            wrong = 0.5 if fails == "wrong-by-8" and len(at) == 8 else 0.0
            return [round(number + wrong, 4) for number in model(x[at])[:, 0].tolist()]

        def grade(tests, answers):
            return float((torch.tensor(answers) - wanted[list(tests), 0]).abs().mean())

        optimizer = torch.optim.Adam(model.parameters(), 0.1)
        return TorchTask(
            setup, rung, model, optimizer, loss, len(x), answer, grade, len(x), learning_rate=lambda share: 1 - share
        )


APPLICATION = Line()
