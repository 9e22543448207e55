"""The operators of a step in PyTorch, seen while the step runs once.

Two modes of PyTorch see all of a step. The dispatch mode sees every operator after autograd, gradients and optimizers
included. The function mode sees the public functions, and so recurrent layers, attention and losses as a whole, which
are several operators or others on another device; what is dispatched inside of them belongs to them.

A gradient belongs to the module whose operator it is the gradient of: PyTorch numbers the nodes of its graph, and an
operator's node is the newest when it is dispatched.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from weakref import ReferenceType, ref

from deepbench.core.errors import BadInput
from deepbench.networks.traces import kernel_rules as rules
from deepbench.networks.traces import torch_kernels
from deepbench.networks.traces.kernels import kernel_text
from deepbench.networks.traces.recorder import Recorder
from deepbench.networks.traces.torch_kernels import precision_of
from deepbench.networks.traces.trace import Trace, TracedCall

# Operators that allocate, or say something about tensors, and neither read nor write their elements.
FREE = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_local_scalar_dense", "lift_fresh")

OPTIMIZER = "optimizer"

WITHOUT_AUTOCAST = (
    "autocast was not applied, because PyTorch casts nothing without memory, so these precisions are those before it; "
    "leave out --meta to see those of autocast"
)

PARTLY_CAST = "autocast runs a part of it in fewer bits, and its kernel is in the type of its result"

# Optimizers of torch.optim that are an operation of ours.
OPTIMIZERS = {"SGD": "sgd", "Adam": "adam", "AdamW": "adamw", "Adagrad": "adagrad"}


@dataclass
class _Scope:
    """A function that is one kernel, whatever operators it runs."""

    forward: str
    backward: str
    where: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    bytes: int
    first_node: int = 0
    end_node: int = 0
    """The numbers of the nodes of its graph: from the first to before the end."""
    has_run_backward: bool = False


@dataclass
class _StepRecorder(Recorder):
    """Gathers the calls of a step that runs."""

    torch: Any = None
    made: dict[int, int] = field(default_factory=dict)
    numbers: dict[int, tuple[ReferenceType[Any], int]] = field(default_factory=dict)
    """Storages by their number in PyTorch, which another one gets when they are freed, with their buffers."""
    addresses: dict[int, int] = field(default_factory=dict)
    """The first buffer at each address."""
    modules: list[str] = field(default_factory=list)
    sites: dict[int, str] = field(default_factory=dict)
    """The module that created each node of the graph."""
    scopes: list[_Scope] = field(default_factory=list)
    inside: int = 0
    """How many functions that are one kernel are running."""
    types_inside: set[Any] = field(default_factory=set)
    """The types of what the last of them computed."""

    @property
    def where(self) -> str:
        return self.modules[-1] if self.modules else ""

    # ---- buffers

    def buffer_of(self, tensor: Any) -> int:
        """The number of the storage of a tensor. PyTorch uses memory again for another storage, at the same address."""
        storage = tensor.untyped_storage()
        number = self.known_buffer(storage)
        if number is None:
            number = self.buffer(0)
            # A weak reference of PyTorch's own would keep a part of the memory, and change where the next tensor lies.
            self.numbers[storage._cdata] = ref(storage), number
            # Without memory, no two tensors share it by being one after the other.
            address = storage.data_ptr() if tensor.device.type != "meta" else 0
            if address and (first := self.addresses.setdefault(address, number)) != number:
                self.places[number] = first
        self.sizes[number] = max(self.sizes[number], bytes_of(tensor))
        return number

    def known_buffer(self, storage: Any) -> int | None:
        """The buffer of a storage; None for one that was not seen before."""
        reference, number = self.numbers.get(storage._cdata, (None, 0))
        return number if reference is not None and reference() is storage else None

    def allocated(self, inputs: Iterable[Any], outputs: Iterable[Any]) -> None:
        """Note the storages of the results of an operator that it has allocated."""
        known = {t.untyped_storage()._cdata for t in inputs}
        for tensor in outputs:
            storage = tensor.untyped_storage()
            if tensor.numel() and storage._cdata not in known and self.known_buffer(storage) is None:
                self.made[self.buffer_of(tensor)] = len(self.calls)

    def buffers(self, tensors: Iterable[Any]) -> tuple[int, ...]:
        return tuple(dict.fromkeys(self.buffer_of(t) for t in tensors if t.numel()))

    # ---- operators

    @property
    def has_autocast(self) -> bool:
        """Whether autocast is enabled for any device."""
        return bool(self.torch._C._is_any_autocast_enabled())

    def watch_autocast(self, arguments: Sequence[Any]) -> None:
        """Remark that PyTorch casts nothing where tensors have no memory."""
        if self.has_autocast and any(t.device.type == "meta" for t in tensors_in(arguments)):
            self.remarks[WITHOUT_AUTOCAST] = None

    def dispatched(self, operator: Any, arguments: dict[str, Any], result: Any) -> None:
        """Record an operator that has run."""
        torch = self.torch
        inputs, outputs = list(tensors_in(arguments.values())), list(tensors_in([result]))
        self.allocated(inputs, outputs)
        node = torch._C._current_autograd_node()
        if self.inside:
            self.types_inside.update(t.dtype for t in tensors_in([result]) if t.is_floating_point())
            return
        where = self.where
        if node is None:
            newest = torch._C._autograd._get_sequence_nr() - 1
            self.sites.setdefault(newest, where)
        else:
            number = node._sequence_nr()
            if scope := self._scope_of(number):
                self._run_backward(scope)
                return
            where = self.sites.get(number, where)
        name, overload = operator.__name__.partition(".")[::2]
        if name in FREE or not (inputs or outputs):
            return
        mutates = operator._schema.is_mutable
        if not mutates and _is_view(inputs, outputs):
            self.views += 1
            return
        found = torch_kernels.kernels_of(name, overload, arguments, result)
        if found:
            for i, kernel in enumerate(found):
                moved = sum(map(bytes_of, {id(t): t for t in (*kernel.reads, *kernel.writes)}.values()))
                reads, writes = self.buffers(kernel.reads), self.buffers(kernel.writes)
                self.call(f"aten.{name}", kernel.kernel, where, reads, writes, moved, operators=int(i == 0))
            return
        written = [t for t in outputs if bytes_of(t)]
        if mutates:
            written = [
                t
                for argument in operator._schema.arguments
                if argument.alias_info is not None and argument.alias_info.is_write
                for t in tensors_in([arguments.get(argument.name)])
            ]
        # An operator that only writes does not read what was there before, such as fill_.
        read = [t for t in inputs if not (name in ("zero_", "fill_") and any(t is w for w in written))]
        if name == "copy_":
            read = [arguments["src"]]
        moved = sum(map(bytes_of, read)) + sum(map(bytes_of, written))
        self.call(f"aten.{name}", None, where, self.buffers(read), self.buffers(written), moved)

    # ---- chains and functions that are one kernel

    def optimized(self, optimizer: Any, first: int) -> None:
        """Put one kernel in place of the operators with which an optimizer did the same, from the first on.

        In place of those of one update of all parameters, which PyTorch writes as a chain of operators unless it is
        asked for its fused kernel.
        """
        chain = self.calls[first:]
        kind = OPTIMIZERS.get(type(optimizer).__name__)
        parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        if (
            kind is None
            or not chain
            or not parameters
            or any((call.kernel or "").startswith("optimizer ") for call in chain)
        ):
            return
        try:
            sizes: dict[str, int | str] = {"kind": kind, "n": sum(p.numel() for p in parameters)}
            kernel = kernel_text("optimizer", sizes, precision_of(parameters[0]))
        except BadInput:
            return
        reads, writes = (
            tuple(dict.fromkeys(b for call in chain for b in getattr(call, name))) for name in ("reads", "writes")
        )
        count, moved = sum(call.operators for call in chain), sum(call.bytes for call in chain)
        name = f"{type(optimizer).__name__}.step"
        self.calls[first:] = [TracedCall(name, kernel, OPTIMIZER, reads, writes, moved, max(2, count))]

    @contextmanager
    def scope(
        self, forward: str, backward: str, inputs: list[Any], cast: Callable[[Any], tuple[str, str] | None]
    ) -> Iterator[list[Any]]:
        """Record what runs inside as one kernel. The results are to be put into the list.

        `cast(type)` are both kernels if autocast converts the inputs to this type, inside; None: there are none.
        """
        get = self.torch._C._autograd._get_sequence_nr
        first, results = get(), list[Any]()
        self.types_inside.clear()
        self.inside += 1
        try:
            yield results
        finally:
            self.inside -= 1
        outputs = list(tensors_in(results))
        if self.has_autocast and outputs:
            kind = outputs[0].dtype
            if kind != inputs[0].dtype and (kernels := cast(kind)):
                forward, backward = kernels
            if any(t.itemsize < kind.itemsize for t in self.types_inside):
                self.notes[PARTLY_CAST] += 1
        moved = sum(map(bytes_of, [*inputs, *outputs]))
        scope = _Scope(forward, backward, self.where, self.buffers(inputs), self.buffers(outputs), moved, first, get())
        self.call(f"torch.{forward.split()[0]}", forward, scope.where, scope.reads, scope.writes, moved)
        if scope.end_node > first:
            self.scopes.append(scope)

    def _scope_of(self, node: int) -> _Scope | None:
        place = bisect.bisect_right(self.scopes, node, key=lambda scope: scope.first_node) - 1
        return self.scopes[place] if place >= 0 and node < self.scopes[place].end_node else None

    def _run_backward(self, scope: _Scope) -> None:
        """Its gradients: one kernel, when the first of its nodes runs."""
        if not scope.has_run_backward:
            scope.has_run_backward = True
            name = f"gradient of torch.{scope.forward.split()[0]}"
            self.call(name, scope.backward, scope.where, (*scope.writes, *scope.reads), (), 2 * scope.bytes)


def bytes_of(tensor: Any) -> int:
    """Bytes of the elements of a tensor that differ in memory: repeated ones of an expanded tensor count once."""
    return int(rules.distinct(tensor.shape, tensor.stride()) * tensor.element_size())


def tensors_in(values: Iterable[Any]) -> Iterator[Any]:
    """All tensors in arguments, which may be lists of tensors."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from tensors_in(value)
        elif hasattr(value, "untyped_storage"):
            yield value


def _converted(value: Any, kind: Any) -> Any:
    """An argument with tensors of floats in another type, without memory, and all others as they are."""
    if isinstance(value, list | tuple):
        return [_converted(v, kind) for v in value]
    is_float = hasattr(value, "untyped_storage") and value.is_floating_point()
    return value.new_empty(value.shape, dtype=kind, device="meta") if is_float else value


def _is_view(inputs: list[Any], outputs: list[Any]) -> bool:
    """Whether all results have the memory of inputs."""
    own = {t.untyped_storage()._cdata for t in inputs}
    return bool(outputs) and all(t.untyped_storage()._cdata in own for t in outputs)


# ---- functions that are one kernel


def _recurrent(cell: str) -> Callable[..., tuple[str, str, list[Any]] | None]:
    """`lstm(input, (h, c), weights, has_biases, layers, dropout, train, bidirectional, batch_first)` and the others.

    Of a packed sequence, the arguments are `(input, batches, (h, c), weights, has_biases, …, bidirectional)`. Its steps
    have different batches; the kernel has as many steps, with the mean batch.
    """

    def find(x: Any, *arguments: Any) -> tuple[str, str, list[Any]] | None:
        if x.dim() == 2:
            batches, states, weights, _, layers, _, training, is_bidirectional = arguments
            steps = batches.shape[0]
            batch = max(1, round(x.shape[0] / steps))
        else:
            states, weights, _, layers, _, training, is_bidirectional, batch_first = arguments
            steps, batch = (x.shape[1], x.shape[0]) if batch_first else x.shape[:2]
        gates = {"vanilla": 1, "lstm": 4, "gru": 3}[cell]
        sizes: dict[str, int | str] = {
            "cell": cell,
            "hidden": weights[0].shape[0] // gates,
            "batch": batch,
            "timesteps": steps,
            "input_size": x.shape[-1],
            "layers": layers,
            "bidirectional": int(is_bidirectional),
        }
        mode = "training" if training else "inference"
        precision = precision_of(x)
        forward = kernel_text("recurrent", sizes, precision, mode=mode)
        return forward, kernel_text("recurrent", sizes, precision, "backward"), [x, *tensors_in([states]), *weights]

    return find


def _attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, **_: Any
) -> tuple[str, str, list[Any]] | None:
    if dropout_p and query.device.type == "cpu":  # PyTorch then runs products, a softmax and dropout one by one
        return None
    make = torch_kernels.attention
    inputs = [query, key, value, *([] if attn_mask is None else [attn_mask])]
    return make(query, key, value, is_causal, "forward"), make(query, key, value, is_causal, "backward"), inputs


def _dropout(
    input: Any, p: float = 0.5, training: bool = True, inplace: bool = False
) -> tuple[str, str, list[Any]] | None:
    if not training or not p:
        return None
    gradient = rules.elementwise("multiply", input.numel(), precision_of(input))
    return torch_kernels.dropout(input, p), gradient, [input]


def _cross_entropy(
    input: Any,
    target: Any,
    weight: Any = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> tuple[str, str, list[Any]] | None:
    if weight is not None or label_smoothing or input.dim() != 2 or target.is_floating_point():
        return None
    sizes: dict[str, int | str] = {"kind": "cross_entropy", "rows": input.shape[0], "columns": input.shape[1]}
    return *_both_ways("loss", sizes, input), [input, target]


def _ctc(
    log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, *_: Any, **__: Any
) -> tuple[str, str, list[Any]] | None:
    if log_probs.dim() != 3 or targets.dim() != 2:
        return None
    time, batch, classes = log_probs.shape
    sizes: dict[str, int | str] = {"batch": batch, "time": time, "labels": targets.shape[1], "classes": classes}
    return *_both_ways("ctc", sizes, log_probs), [log_probs, targets]


def _both_ways(op: str, sizes: dict[str, int | str], tensor: Any) -> tuple[str, str]:
    """A kernel and its gradient."""
    precision = precision_of(tensor)
    return kernel_text(op, sizes, precision), kernel_text(op, sizes, precision, "backward")


def _owned(torch: Any) -> dict[Any, Callable[..., tuple[str, str, list[Any]] | None]]:
    functional, cells = torch.nn.functional, torch._VF
    return {
        cells.lstm: _recurrent("lstm"),
        cells.gru: _recurrent("gru"),
        cells.rnn_tanh: _recurrent("vanilla"),
        cells.rnn_relu: _recurrent("vanilla"),
        functional.scaled_dot_product_attention: _attention,
        functional.dropout: _dropout,
        functional.cross_entropy: _cross_entropy,
        functional.ctc_loss: _ctc,
    }


def _stand_ins(torch: Any) -> dict[Any, Callable[..., Any]]:
    """Functions for tensors without memory, with results and gradients of the same shapes as those of PyTorch."""

    class Shapes(torch.autograd.Function):  # type: ignore[misc]
        """Results of the given shapes, each of which depends on all tensors."""

        @staticmethod
        def forward(context: Any, shapes: list[tuple[int, ...]], *tensors: Any) -> tuple[Any, ...]:
            context.save_for_backward(*tensors)
            return tuple(tensors[0].new_empty(shape) for shape in shapes)

        @staticmethod
        def backward(context: Any, *_: Any) -> tuple[Any, ...]:
            return None, *map(torch.empty_like, context.saved_tensors)

    def recurrent(x: Any, *arguments: Any) -> tuple[Any, ...]:
        """PyTorch computes the steps one by one, which takes minutes. The arguments are those of `_recurrent`."""
        states, weights = arguments[:2] if x.dim() == 3 else arguments[1:3]
        all_states, is_bidirectional = list(tensors_in([states])), arguments[-2 if x.dim() == 3 else -1]
        y = (*x.shape[:-1], all_states[0].shape[-1] * (2 if is_bidirectional else 1))
        found: tuple[Any, ...] = Shapes.apply([y, *(s.shape for s in all_states)], x, *all_states, *weights)
        return found

    cells = torch._VF
    return {
        **dict.fromkeys((cells.lstm, cells.gru, cells.rnn_tanh, cells.rnn_relu), recurrent),
        torch.nn.functional.ctc_loss: lambda log_probs, *_, **__: log_probs.sum(),  # PyTorch has none of its shapes
    }


@cache
def _arguments_of(operator: Any) -> tuple[list[str], dict[str, Any]]:
    """The names of the arguments of an operator, and the defaults."""
    arguments = operator._schema.arguments
    return [a.name for a in arguments], {a.name: a.default_value for a in arguments if a.has_default_value()}


@contextmanager
def _recording(torch: Any, recorder: _StepRecorder, names: dict[Any, str]) -> Iterator[None]:
    """The modes and hooks under which a step runs."""
    from torch.nn.modules import module as hooks
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    owned, stand_ins = _owned(torch), _stand_ins(torch)

    class Dispatched(TorchDispatchMode):  # type: ignore[misc]  # PyTorch need not be here
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            result = func(*args, **kwargs)
            arguments, defaults = _arguments_of(func)
            recorder.dispatched(func, {**defaults, **dict(zip(arguments, args, strict=False)), **kwargs}, result)
            return result

    class Called(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            find = owned.get(func)
            try:
                found = find(*args, **kwargs) if find and not recorder.inside else None
            except BadInput:
                found = None
            recorder.watch_autocast([*args, *kwargs.values()])
            if found is None or find is None:
                return func(*args, **kwargs)

            def cast(kind: Any) -> tuple[str, str] | None:
                """The kernels of this function with arguments of another type, for which no memory is needed."""
                converted = [_converted(value, kind) for value in args]
                try:
                    kernels = find(*converted, **{name: _converted(value, kind) for name, value in kwargs.items()})
                except BadInput:
                    return None
                return kernels[:2] if kernels else None

            with recorder.scope(*found, cast) as results:
                stand_in = stand_ins.get(func) if args[0].device.type == "meta" else None
                result = (stand_in or func)(*args, **kwargs)
                results.append(result)
            return result

    def entered(module: Any, _: Any) -> None:
        recorder.modules.append(names.get(module, type(module).__name__))

    def left(module: Any, *_: Any) -> None:
        if recorder.modules:
            recorder.modules.pop()

    begins: list[int] = []

    def before_update(*_: Any) -> None:
        recorder.modules.append(OPTIMIZER)
        begins.append(len(recorder.calls))

    def after_update(optimizer: Any, *_: Any) -> None:
        recorder.modules.pop()
        recorder.optimized(optimizer, begins.pop())

    with ExitStack() as stack:
        for handle in (
            hooks.register_module_forward_pre_hook(entered),
            hooks.register_module_forward_hook(left, always_call=True),
            register_optimizer_step_pre_hook(before_update),
            register_optimizer_step_post_hook(after_update),
        ):
            stack.callback(handle.remove)
        fast = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)  # one operator for a whole layer of a transformer
        stack.callback(torch.backends.mha.set_fastpath_enabled, fast)
        stack.enter_context(Dispatched())
        stack.enter_context(Called())
        yield


def trace_torch(run: Callable[[], Any], modules: Iterable[Any], title: str, source: str, is_training: bool) -> Trace:
    """The operators of `run()`. `modules` are the networks in it: the names of their parts say where a call is.

    `run` is called twice, and the second step is traced: optimizers create their state in the first. Its results are
    those of a step that nobody watches.
    """
    networks = list(modules)
    parameters = {p.untyped_storage()._cdata: p for module in networks for p in module.parameters()}
    if any(p.device.type == "meta" for p in parameters.values()):
        record_step(run, networks)  # some functions work without memory only when recorded
    else:
        run()
    recorder = record_step(run, networks)
    count = sum(p.numel() for p in parameters.values()) if networks else None
    return recorder.trace(title, source, is_training, count)


def record_step(run: Callable[[], Any], networks: Iterable[Any]) -> _StepRecorder:
    """Call `run()` and record its operators."""
    import torch

    names = {part: name for module in networks for name, part in module.named_modules()}
    recorder = _StepRecorder(torch=torch)
    with _recording(torch, recorder, names):
        run()
    return recorder
