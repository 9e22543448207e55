"""A predicted training step on several devices: the step of one, and an all-reduce of all gradients."""

from __future__ import annotations

from collections.abc import Sequence

from deepbench.judge import groups
from deepbench.judge.devices import DeviceScaling, DeviceStep
from deepbench.judge.suite_devices import F32, all_reduce_of, no_all_reduce
from deepbench.networks.predictions.predict import Prediction
from deepbench.networks.reporting.predictions import without_time
from deepbench.results.summary import Summary


def of_predictions(
    found: Sequence[tuple[int, Prediction]], summaries: Sequence[Summary], is_strong: bool
) -> DeviceScaling:
    """Steps of a traced network; `found` has numbers of devices, each with the predicted step of one of them.

    With `is_strong`, the predictions are those of a device's part of one batch.
    """
    known = groups.measured(summaries)
    return DeviceScaling(found[0][1].trace.title, [_predicted_step(p, n, known) for n, p in found], is_strong)


def _predicted_step(prediction: Prediction, devices: int, known: Sequence[Summary]) -> DeviceStep:
    reduced, reason, elements = None, None, prediction.trace.parameters
    if prediction.time is None:
        reason = without_time(len(prediction.missing))
    elif devices > 1 and elements is None:
        reason = "the network does not say how many parameters it has"
    elif devices > 1 and elements is not None:
        reduced = all_reduce_of(elements, devices, known)
        reason = None if reduced else no_all_reduce(elements, devices, F32)
    return DeviceStep(
        title=prediction.trace.title,
        precision=None,
        threads=prediction.threads,
        devices=devices,
        one_device=prediction.time,
        all_reduce=reduced,
        withheld=reason,
        disturbed=not prediction.is_trusted or (reduced is not None and reduced.disturbed),
    )
