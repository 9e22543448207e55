"""PaddlePaddle, the framework of those who made the original DeepBench: operators on the CPU, as a program calls them.

As with `torch`, times include dispatching from Python and allocating results. Tensors share the memory of the arrays,
and results are copied back after timing. Backward passes are operators that autograd calls, or autograd itself where
Python cannot call these. On CPUs, PaddlePaddle 3.3 has f32 for all of this and 16 bits for nearly nothing. Its products
are those of a small MKL of 2019 that it contains; most other operators use one thread.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from deepbench.core.backend import Backend, kernel
from deepbench.core.case import Case
from deepbench.core.errors import IMPORT_ERRORS, Unsupported, not_loaded
from deepbench.core.kernel import Kernel
from deepbench.core.op import Arrays
from deepbench.core.rows import EPSILON
from deepbench.ops.recurrent.problem import single_layer

# The order in which PaddlePaddle stores our gates: reset, update, new. It swaps two, so it is its own inverse.
GRU_ORDER = (1, 0, 2)

LAYERS = {"vanilla": "SimpleRNN", "lstm": "LSTM", "gru": "GRU"}


class Paddle(Backend):
    name = "paddle"
    title = "PaddlePaddle"
    default = False
    framework = True
    thread_variables = ("FLAGS_paddle_num_threads",)
    tuning_variables = ("FLAGS_use_mkldnn", "FLAGS_use_onednn", "FLAGS_use_autotune", "FLAGS_allocator_strategy")

    def open(self) -> dict[str, Any]:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # it advises to install ccache
                import paddle
        except IMPORT_ERRORS as error:
            raise not_loaded("PaddlePaddle", error, "pip install paddlepaddle") from None
        self.paddle = paddle
        paddle.set_device("cpu")
        return {
            "name": self.title,
            "version": paddle.__version__,
            "path": paddle.__file__,
            "build": f"commit {paddle.version.commit[:10]}",
            "threading": "OpenMP",
        }

    def threads_in_use(self) -> int | None:
        """The number that PaddlePaddle gives to MKL and OpenMP."""
        (threads,) = self.paddle.get_flags(list(self.thread_variables)).values()
        return int(threads)

    @kernel("gemm", precisions=("f32",))
    def gemm(self, case: Case, arrays: Arrays) -> Kernel:
        """`addmm_`, or `matmul` if beta = 0. Computes Cᵀ = Bᵀ·Aᵀ in row-major order."""
        p, paddle = case.problem, self.paddle
        _refuse(case.settings["weights"] == "packed", "PaddlePaddle has no interface to pack weights ahead")
        a, b, c = (self._tensor(arrays[name]) for name in "abc")
        if case.settings["beta"] == "0":
            turned = {"transpose_x": bool(p.b_t), "transpose_y": bool(p.a_t)}
            return Kernel(run=lambda: paddle.matmul(b, a, **turned, out=c), notes={"implementation": "matmul"})
        # Its product has no transposed operands. A transposed copy is what a program would make, in each call.
        transposes = " and transpose" if p.a_t or p.b_t else ""

        def run() -> None:
            c.addmm_(b.t() if p.b_t else b, a.t() if p.a_t else a)

        return Kernel(run=run, notes={"implementation": f"addmm_{transposes}"})

    @kernel("batched_gemm", precisions=("f32",))
    def batched_gemm(self, case: Case, arrays: Arrays) -> Kernel:
        """`matmul`: Cᵀ = Bᵀ·Aᵀ in row-major order."""
        p, paddle = case.problem, self.paddle
        a, b, c = (self._tensor(arrays[name]) for name in "abc")
        turned = {"transpose_x": bool(p.b_t), "transpose_y": bool(p.a_t)}
        return Kernel(run=lambda: paddle.matmul(b, a, **turned, out=c), notes={"implementation": "matmul"})

    @kernel("linear", precisions=("f32",))
    def linear(self, case: Case, arrays: Arrays) -> Kernel:
        """`nn.functional.linear`, and `relu`, `gelu` or `silu` as an operator of its own.

        Its weights are (inputs, outputs), the other way round, so they are transposed ahead as a model stores them.
        """
        _refuse(case.settings["weights"] == "packed", "PaddlePaddle has no interface to pack weights ahead")
        functional, b = self.paddle.nn.functional, self._tensor(arrays["b"])
        begin = perf_counter()
        weights = self.paddle.to_tensor(arrays["a"].T.copy())
        seconds = perf_counter() - begin
        bias = self._tensor(arrays["bias"]) if "bias" in arrays else None
        name = case.settings["activation"]
        activation = None if name == "none" else getattr(functional, name)

        def call() -> Any:
            z = functional.linear(b, weights, bias)
            return z if activation is None else activation(z)

        made = _returning(call, [arrays["c"]], "linear" if activation is None else f"linear, {name}")
        made.notes["convert_s"] = seconds
        made.private_buffers = ("a",)
        return made

    @kernel("conv", precisions=("f32",), directions=("forward", "backward_data", "backward_weights"))
    def conv(self, case: Case, arrays: Arrays) -> Kernel:
        """`conv2d` or `conv3d`, and autograd of one forward pass before."""
        p, paddle = case.problem, self.paddle
        _refuse(case.settings["layout"] != "nchw", "PaddlePaddle's filters are stored as nchw; choose layout=nchw")
        name = f"conv{p.dimensions}d"
        function = getattr(paddle.nn.functional, name)
        stride, pad, dilation = (list(sizes[-p.dimensions :]) for sizes in (p.stride, p.pad, p.dilation))
        shape = {"stride": stride, "padding": pad, "dilation": dilation, "groups": p.groups}
        tensors = {n: self._tensor(array) for n, array in arrays.items()}
        if case.direction == "forward":
            x, w, b = tensors["x"], tensors["w"], tensors.get("b")
            return _returning(lambda: function(x, w, b, **shape), [arrays["y"]], name)
        gradients = [n for n in ("dx", "dw", "db") if n in arrays]
        # A forward pass needs all inputs. The gradient does not depend on those that are missing here.
        missing = {n[1:]: paddle.zeros(list(arrays[n].shape)) for n in gradients}
        x, w, b = ({**missing, **tensors}.get(n) for n in ("x", "w", "b"))
        inputs = [{"dx": x, "dw": w, "db": b}[n] for n in gradients]
        return self._autograd(lambda: function(x, w, b, **shape), inputs, tensors["dy"], [arrays[n] for n in gradients])

    @kernel("layer_norm", precisions=("f32",), directions=("forward", "backward"))
    def layer_norm(self, case: Case, arrays: Arrays) -> Kernel:
        """`layer_norm`; backward autograd of one forward pass before, whose mean and variance it uses."""
        function, columns = self.paddle.nn.functional.layer_norm, [case.problem.columns]
        x, scale = self._tensor(arrays["x"]), self._tensor(arrays["scale"])
        if case.direction == "forward":
            shift = self._tensor(arrays["shift"])
            return _returning(lambda: function(x, columns, scale, shift, EPSILON), [arrays["y"]], "layer_norm")
        shift, dy = self.paddle.zeros(columns), self._tensor(arrays["dy"])
        outputs = [arrays[name] for name in ("dx", "dscale", "dshift")]
        return self._autograd(lambda: function(x, columns, scale, shift, EPSILON), [x, scale, shift], dy, outputs)

    @kernel("softmax", precisions=("f32",), directions=("forward", "backward"))
    def softmax(self, case: Case, arrays: Arrays) -> Kernel:
        """`softmax`; backward the operator that autograd calls."""
        if case.direction == "forward":
            function, x = self.paddle.nn.functional.softmax, self._tensor(arrays["x"])
            return _returning(lambda: function(x, 1), [arrays["y"]], "softmax")
        gradient, p, dy = self.paddle._C_ops.softmax_grad, self._tensor(arrays["p"]), self._tensor(arrays["dy"])
        return _returning(lambda: gradient(p, dy, 1), [arrays["dx"]], "softmax_grad")

    @kernel("reduction", precisions=("f32",))
    def reduction(self, case: Case, arrays: Arrays) -> Kernel:
        """`sum`, `mean` or `max`."""
        function, x = getattr(self.paddle, case.problem.kind), self._tensor(arrays["x"])
        axis = 1 if case.problem.axis == "columns" else 0
        return _returning(lambda: function(x, axis), [arrays["y"]], case.problem.kind)

    @kernel("pooling", precisions=("f32",), directions=("forward", "backward"))
    def pooling(self, case: Case, arrays: Arrays) -> Kernel:
        """`max_pool` or `avg_pool`; backward autograd of one forward pass before."""
        p = case.problem
        _refuse(case.settings["layout"] != "nchw", "PaddlePaddle's pooling is measured as nchw; choose layout=nchw")
        average = p.kind == "average"
        name = f"{'avg' if average else 'max'}_pool{p.dimensions}d"
        function = getattr(self.paddle.nn.functional, name)
        window, stride, pad = (list(sizes[-p.dimensions :]) for sizes in (p.window, p.stride, p.pad))
        divisor = {"exclusive": False} if average else {}
        if case.direction == "forward":
            x = self._tensor(arrays["x"])
            return _returning(lambda: function(x, window, stride, pad, **divisor), [arrays["y"]], name)
        x = self._tensor(arrays["x"]) if "x" in arrays else self.paddle.zeros(list(arrays["dx"].shape))
        dy = self._tensor(arrays["dy"])
        return self._autograd(lambda: function(x, window, stride, pad, **divisor), [x], dy, [arrays["dx"]])

    @kernel("elementwise", precisions=("f32",), directions=("forward", "backward"))
    def elementwise(self, case: Case, arrays: Arrays) -> Kernel:
        """One operator, or several that PaddlePaddle does not fuse; backward the operators that autograd calls."""
        t = {name: self._tensor(array) for name, array in arrays.items()}
        forward = case.direction == "forward"
        lossy = (
            "PaddlePaddle computes exp(a) of this gradient as (exp(a) - 1) + 1, which loses digits; choose another kind"
        )
        _refuse(case.problem.kind == "elu" and not forward, lossy)  # 86 times the tolerance, with version 3.3.1
        known = _functions(self.paddle, t) if forward else _gradients(self.paddle, t)
        _refuse(
            case.problem.kind not in known, f"PaddlePaddle has no operator for {case.problem.kind} {case.direction}"
        )
        function, name = known[case.problem.kind]
        outputs = [arrays[n] for n in ("y", "da", "db") if n in arrays]
        return _returning(function, outputs, name)

    @kernel("recurrent", precisions=("f32",), directions=("forward", "backward"))
    def recurrent(self, case: Case, arrays: Arrays) -> Kernel:
        """The layers of `paddle.nn`; backward autograd of one forward pass before."""
        import numpy as np

        p, paddle = case.problem, self.paddle
        _refuse(p.cell not in LAYERS, f"PaddlePaddle has no layer for cell={p.cell}")
        _refuse(
            case.settings["gru_reset"] == "before",
            "PaddlePaddle's GRU applies the reset gate after its product; choose gru_reset=after",
        )
        _refuse(case.settings["weights"] == "packed", "PaddlePaddle has no interface to pack weights ahead")
        _refuse(case.settings["input"] == "skip", "PaddlePaddle's layers multiply their input; choose input=narrow")
        arrays = single_layer(case, arrays, "PaddlePaddle")
        order = list(GRU_ORDER if p.cell == "gru" else range(p.gates))
        options = {"activation": "relu"} if p.cell == "vanilla" else {}
        layer = getattr(paddle.nn, LAYERS[p.cell])(p.input_size, p.hidden, time_major=True, **options)
        begin = perf_counter()
        bias, of_h = arrays["b"][order], np.zeros((p.gates, p.hidden), np.float32)
        if p.cell == "gru":
            of_h[2] = arrays["b"][3]
        weights = [layer.weight_ih_l0, layer.weight_hh_l0, layer.bias_ih_l0, layer.bias_hh_l0]
        ours = [*(arrays[name][:, order].transpose(1, 2, 0) for name in ("w", "r")), bias, of_h]
        for weight, values in zip(weights, ours, strict=True):
            weight.set_value(np.ascontiguousarray(values).reshape(weight.shape))
        notes = {"convert_s": perf_counter() - begin}
        names = [n for n in ("h0", "c0") if n in arrays]
        x, states = self._tensor(arrays["x"]), [self._tensor(arrays[n][None]) for n in names]
        start = tuple(states) if p.cell == "lstm" else states[0]
        if case.direction == "forward" and case.settings["mode"] == "inference":
            layer.eval()

            def infer() -> Any:
                with paddle.no_grad():
                    return layer(x, start)[0]

            made = _returning(infer, [arrays["y"]], LAYERS[p.cell])
        elif case.direction == "forward":
            made = _returning(lambda: layer(x, start)[0].detach(), [arrays["y"]], LAYERS[p.cell])
        else:
            inputs, dy = [x, *states, *weights], self._tensor(arrays["dy"])
            for tensor in inputs:
                tensor.stop_gradient = False
            y, gradients = layer(x, start)[0], list[Any]()
            shape = (p.gates, p.hidden)

            def run() -> None:
                gradients[:] = paddle.grad([y], inputs, [dy], retain_graph=True)

            def store() -> None:
                if not gradients:
                    return
                dx, *rest = (gradient.numpy() for gradient in gradients)
                dw, dr, db, db_of_h = rest[-4:]
                arrays["y"][...] = y.numpy()
                arrays["dx"][...] = dx
                for state, gradient in zip(names, rest[:-4], strict=True):
                    arrays[f"d{state}"][...] = gradient[0]
                for name, gradient in (("dw", dw), ("dr", dr)):
                    arrays[name][...] = gradient.reshape(*shape, -1)[order].transpose(2, 0, 1)
                arrays["db"][: p.gates] = db.reshape(shape)[order]
                if p.cell == "gru":
                    arrays["db"][3] = db_of_h.reshape(shape)[2]

            made = Kernel(run=run, load=gradients.clear, store=store, notes={"implementation": "autograd"})
        made.notes |= notes
        made.private_buffers = tuple(arrays)
        return made

    def _tensor(self, array: Any) -> Any:
        """A tensor on the memory of an array."""
        return self.paddle.from_dlpack(array)

    def _autograd(self, forward: Callable[[], Any], inputs: Sequence[Any], dy: Any, outputs: Sequence[Any]) -> Kernel:
        """The gradients of a function with respect to its inputs, from one forward pass before."""
        for tensor in inputs:
            tensor.stop_gradient = False
        y, grad = forward(), self.paddle.grad
        return _returning(lambda: grad([y], inputs, [dy], retain_graph=True), outputs, "autograd")


def _functions(paddle: Any, t: dict[str, Any]) -> dict[str, tuple[Callable[[], Any], str]]:
    """What computes an elementwise function, and the names of its operators."""
    f, a, b, c = paddle.nn.functional, t["a"], t.get("b"), t.get("c")
    return {
        "relu": (lambda: f.relu(a), "relu"),
        "relu6": (lambda: f.relu6(a), "relu6"),
        "gelu": (lambda: f.gelu(a), "gelu"),
        "gelu_tanh": (lambda: f.gelu(a, approximate=True), "gelu"),
        "silu": (lambda: f.silu(a), "silu"),
        "elu": (lambda: f.elu(a), "elu"),
        "sigmoid": (lambda: f.sigmoid(a), "sigmoid"),
        "tanh": (lambda: paddle.tanh(a), "tanh"),
        "add": (lambda: paddle.add(a, b), "add"),
        "multiply": (lambda: paddle.multiply(a, b), "multiply"),
        "multiply_add": (lambda: paddle.add(paddle.multiply(a, b), c), "multiply and add"),
        "add_relu": (lambda: f.relu(paddle.add(a, b)), "add and relu"),
        "swiglu": (lambda: f.swiglu(a, b), "swiglu"),
    }


def _gradients(paddle: Any, t: dict[str, Any]) -> dict[str, tuple[Callable[[], Any], str]]:
    """The same for the gradients. Where an operator needs the result of a forward pass, that was made before."""
    f, ops, a, b, dy, kept = paddle.nn.functional, paddle._C_ops, t.get("a"), t.get("b"), t["dy"], t.get("result")
    relu6, silu = (None, None) if a is None else (f.relu6(a), f.silu(a))
    return {
        "relu": (lambda: ops.relu_grad(kept, dy), "relu_grad"),
        "add_relu": (lambda: ops.relu_grad(kept, dy), "relu_grad"),
        "relu6": (lambda: ops.relu6_grad(relu6, dy), "relu6_grad"),
        "silu": (lambda: ops.silu_grad(a, silu, dy), "silu_grad"),
        "gelu": (lambda: ops.gelu_grad(a, dy, False), "gelu_grad"),
        "gelu_tanh": (lambda: ops.gelu_grad(a, dy, True), "gelu_grad"),
        "sigmoid": (lambda: ops.sigmoid_grad(kept, dy), "sigmoid_grad"),
        "tanh": (lambda: ops.tanh_grad(kept, dy), "tanh_grad"),
        "multiply": (lambda: (paddle.multiply(dy, b), paddle.multiply(dy, a)), "multiply and multiply"),
        "multiply_add": (lambda: (paddle.multiply(dy, b), paddle.multiply(dy, a)), "multiply and multiply"),
        "swiglu": (lambda: ops.swiglu_grad(a, b, dy), "swiglu_grad"),
    }


def _returning(function: Callable[[], Any], outputs: Sequence[Any], name: str) -> Kernel:
    """A kernel of an operator that allocates its results, which are copied to the arrays `outputs` after timing."""
    result: list[Any] = []

    def run() -> None:
        result[:] = [function()]

    def store() -> None:
        if not result:
            return
        found = result[0] if isinstance(result[0], (list, tuple)) else result
        for output, tensor in zip(outputs, found, strict=True):
            output[...] = tensor.numpy().reshape(output.shape)

    return Kernel(run=run, load=result.clear, store=store, notes={"implementation": name})


def _refuse(condition: bool, reason: str) -> None:
    if condition:
        raise Unsupported(reason)


BACKEND = Paddle()
