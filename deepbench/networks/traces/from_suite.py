"""A model of `suites/`, or a user's model of the same form, as a trace: its kernels with counts, without their order.

Nothing is known about the operators between its kernels, nor about which arrays they share. So every kernel counts as
one that finds its operands in memory, as far as a prediction asks.
"""

from __future__ import annotations

from deepbench.core.errors import BadInput, shorten
from deepbench.core.op import find_op
from deepbench.core.precision import find_precision
from deepbench.networks.traces.kernels import bytes_of, kernel_text
from deepbench.networks.traces.recorder import Recorder
from deepbench.networks.traces.trace import MOST_CALLS, Trace, TracedCall
from deepbench.plan import suites
from deepbench.plan.models import TRAIN


def trace_suite(name: str, precision: str = "f32") -> Trace:
    """The kernels of a pass of a model, such as `vision/resnet50:phase=train,batch=8`, as often as it calls them.

    Kernels without a precision of their own have this one, or f32 where the operation does not have it. Exchanges
    between devices are left out. `BadInput` if the name stands for no model.
    """
    the_pass = suites.pass_of(name)
    chosen, record = find_precision(precision), Recorder()
    for entry in suites.read_suite(name):
        p = entry.pattern
        op = find_op(p.op)
        if op.is_group:
            continue
        direction = p.direction or op.directions[0]
        own = p.precision or entry.precision or (precision if op.allows(direction, chosen) else "f32")
        kernel = kernel_text(p.op, p.problem.values, own, direction, **entry.stated)
        count, where = (entry.source.get("count", 1), entry.source["label"] or "") if entry.source else (1, "")
        if len(record.calls) + count > MOST_CALLS:
            raise BadInput(f"{shorten(name)} calls more than {MOST_CALLS} kernels")
        record.calls += [TracedCall(p.op, kernel, where, (), (), bytes_of(kernel))] * count
    if not record.calls:
        raise BadInput(f"{shorten(name)} has no kernels")
    left_out = sum(kernel.count for kernel in suites.left_out(name))
    more = f"; {left_out} calls of kernels that no operation serves are left out" if left_out else ""
    return record.trace(suites.split_name(name)[0], f"{name}{more}", the_pass.phase == TRAIN, the_pass.weights)
