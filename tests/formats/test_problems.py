"""Problems in the formats of simulators, compilers and benchmarks, read again by parsers that are not ours."""

import csv
import io
import itertools
import json
import math
import subprocess

import numpy as np
import pytest
import yaml

import deepbench
from deepbench.api.filters import make_choices
from deepbench.core.case import Case, parse_case
from deepbench.core.errors import BadInput, DeepBenchError
from deepbench.core.op import all_ops
from deepbench.core.precision import PRECISIONS
from deepbench.formats import ImportOptions, _problems, benchdnn, chakra
from deepbench.formats._problems import ProblemOptions, problem_formats
from deepbench.plan.problems import exported_problems

GEMM = "gemm m=12 n=5 k=7 a_t=1 forward f32"
CONV = "conv n=2 c=6 h=9 w=8 k=4 r=3 s=2 pad_h=1 pad_w=1 stride_h=2 stride_w=1 forward f32"
GROUPED_CONV = "conv n=2 c=4 h=6 w=7 k=8 r=3 s=3 pad_h=1 pad_w=2 dilation_h=2 dilation_w=1 groups=2 forward f32"
LSTM = "recurrent cell=lstm hidden=8 batch=3 timesteps=5 input_size=6 layers=2 bidirectional=1"
SPARSE = "sparse_gemm m=20 n=3 k=40 sparsity=90 forward f32"
ATTENTION = "attention batch=2 heads=4 kv_heads=2 queries=9 keys=9 head_size=8 mask=causal forward f32"
NORM = "rms_norm rows=8 columns=64 forward f32"
MANY = [GEMM, "batched_gemm batch=3 m=4 n=5 k=6 b_t=1 forward f32", "linear m=6 n=5 k=4 forward f32", CONV]
MANY += [GROUPED_CONV, LSTM, SPARSE, ATTENTION, NORM, "grouped_gemm groups=3 tokens=20 m=4 k=6 forward f32"]
MANY += ["conv n=1 c=2 h=5 w=6 k=3 r=3 s=3 pad_h=1 pad_w=1 d=4 t=3 pad_d=1 forward f32"]


@pytest.fixture
def exported(tmp_path):
    """Write problems, and read the files again."""

    def write(to, *what, **options):
        made = deepbench.export_problems(list(what) or MANY, to, tmp_path / to, **options)
        files = {
            p.relative_to(tmp_path / to).as_posix(): p.read_bytes() for p in (tmp_path / to).rglob("*") if p.is_file()
        }
        assert files.keys() == made.files.keys()
        return made, files

    return write


def smoke_cases():
    """Every smoke problem in every direction and precision."""
    for op in all_ops().values():
        for problem, direction, precision in itertools.product(op.smoke, op.directions, PRECISIONS.values()):
            if op.allows(direction, precision):
                yield Case(op.name, problem, direction, precision, "reference", 1)


# ---- products of matrices


def test_the_products_of_an_operation_have_its_multiply_adds():
    seen = set()
    for case in smoke_cases():
        products = case.operation.matrix_products(case)
        if products and case.op != "attention":
            assert sum(p.multiply_adds for p in products) * 2 == case.operation.flop(case), case.text
            seen.add(case.op)

    products = {
        "gemm",
        "linear",
        "batched_gemm",
        "grouped_gemm",
        "weight_only_gemm",
        "sparse_gemm",
        "conv",
        "recurrent",
    }
    assert products == seen


def test_products_of_attention_contain_what_a_mask_hides():
    for case in smoke_cases():
        if case.op == "attention":
            most, p = sum(p.multiply_adds for p in case.operation.matrix_products(case)), case.problem
            assert 2 * most >= case.operation.flop(case)
            if p.mask == "none":
                assert 2 * most == case.operation.flop(case)


def test_a_convolution_is_the_product_of_its_copied_pixels():
    case = parse_case(f"{GROUPED_CONV} reference threads=1")
    arrays = case.operation.operands(case)
    (product,), p = case.operation.matrix_products(case), case.problem
    padded = np.pad(arrays["x"], ((0, 0), (0, 0), (p.pad_h, p.pad_h), (p.pad_w, p.pad_w)))
    _, rows, columns = p.output
    taken = [
        padded[:, :, r * p.dilation_h :][:, :, : (rows - 1) * p.stride_h + 1 : p.stride_h][
            :, :, :, s * p.dilation_w : s * p.dilation_w + (columns - 1) * p.stride_w + 1 : p.stride_w
        ]
        for r in range(p.r)
        for s in range(p.s)
    ]
    # (n, c, taps, p, q) → for each group (n · p · q) × (c · taps)
    patches = np.stack(taken, 2).reshape(p.n, p.groups, -1, rows * columns).transpose(1, 0, 3, 2)
    patches = patches.reshape(p.groups, p.n * rows * columns, -1).astype(float)
    filters = arrays["w"].reshape(p.groups, p.k // p.groups, -1).transpose(0, 2, 1).astype(float)

    assert (product.batch, product.m, product.k) == patches.shape
    assert (product.k, product.n) == filters.shape[1:]
    want = case.operation.reference(case, arrays)["y"]
    got = (patches @ filters).reshape(p.groups, p.n, rows, columns, -1).transpose(1, 0, 4, 2, 3).reshape(want.shape)
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


# ---- all formats


@pytest.mark.parametrize("to", problem_formats())
def test_every_format_counts_what_it_wrote_and_names_the_rest(to, exported):
    made, files = exported(to)
    counts = json.loads(files["counts.json"])
    in_output = {problem["name"] for problem in counts["problems"]}

    assert len(MANY) == len(in_output) + len(made.left_out)
    for problem in counts["problems"]:
        done = [layer["times"] * (layer["multiply_adds"] or 0) for layer in problem["layers"]]
        if not any(problem["name"] in remark for remark in made.remarks) and "product" in problem["layers"][0]:
            assert 2 * sum(done) == problem["flop"], problem


@pytest.mark.parametrize("to", problem_formats())
def test_every_format_writes_the_lists_of_the_original(to, tmp_path):
    limits = {"most_multiply_adds": 10**7, "precisions": "f32"} if to in ("onnx", "tflite") else {}
    made = deepbench.export_problems(
        ["deepbench/train", "deepbench/server", "deepbench/device"], to, tmp_path, **limits
    )

    assert len({layer.problem for layer in made.layers}) > 20


def test_an_output_that_lost_something_is_refused(monkeypatch):
    to = problem_formats()["scalesim"]
    (problem,) = exported_problems([GEMM], make_choices())
    monkeypatch.setattr(type(to), "recount", lambda *_: {"gemm_1": 12 * 5 * 7 - 1})

    with pytest.raises(DeepBenchError, match="419 multiply-adds in the layer gemm_1, and the problem has 420"):
        _problems.write(to, [problem], ProblemOptions())


def test_large_problems_are_left_out(exported):
    made, _ = exported("scalesim", GEMM, "gemm m=100 n=100 k=100", most_multiply_adds=1000)

    assert ["gemm_1"] == [layer.name for layer in made.layers]
    assert ["gemm m=100 n=100 k=100 a_t=0 b_t=0 forward f32: 1000000 multiply-adds are more than --max-macs 1000"] == (
        made.left_out
    )


@pytest.mark.parametrize(
    ("what", "to", "options", "words"),
    [
        ([NORM], "scalesim", {}, "can express none of the 1 problems; the first: rms_norm"),
        ([GEMM], "scalesym", {}, "did you mean scalesim"),
        ([GEMM], "timeloop", {"version": "0.5"}, "has no version 0.5; its versions are 0.4, 0.3"),
        ([GEMM], "scalesim", {"version": "3"}, "it has one version"),
    ],
)
def test_what_cannot_be_written_is_a_sentence(tmp_path, what, to, options, words):
    with pytest.raises(BadInput, match=words):
        deepbench.export_problems(what, to, tmp_path, **options)
    assert [] == [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ops": "gem"}, "unknown operation 'gem'"),
        ({"precisions": "f99"}, "f99"),
        ({"settings": {"nothing": "1"}}, "unknown setting"),
        ({"ops": "conv"}, "no problem is left"),
        ({"precisions": "nvfp4"}, "no problem is left: gemm has no direction forward in nvfp4"),
    ],
)
def test_filters_that_leave_nothing_are_a_sentence(tmp_path, options, words):
    with pytest.raises(BadInput, match=words):
        deepbench.export_problems([GEMM.removesuffix(" forward f32")], "scalesim", tmp_path, **options)


def test_files_of_an_earlier_export_are_not_mixed_with_others(tmp_path):
    deepbench.export_problems([GEMM], "timeloop", tmp_path / "out")

    with pytest.raises(BadInput, match="out is not empty; name a new folder"):
        deepbench.export_problems([CONV], "timeloop", tmp_path / "out")


def test_names_of_applications_do_not_reach_other_files(tmp_path):
    """A list of problems may come from anyone."""
    hostile = "DP */ \x1b[31m $(reboot) \u202e ; ../../x"
    (tmp_path / "list.csv").write_text(f'op,m,n,k,application\ngemm,3,4,5,"{hostile}"\n')
    for to in problem_formats():
        made = deepbench.export_problems(tmp_path / "list.csv", to, tmp_path / to)
        for path, content in made.files.items():
            text = content if isinstance(content, str) else content.decode("latin-1")
            assert "\x1b" not in text
            assert "reboot" not in text or path in ("counts.json", "problems.json")
        assert "reboot" in made.files["counts.json"]


def test_large_traces_and_models_are_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(chakra, "MOST_BYTES", 10**4)
    with pytest.raises(BadInput, match=r"traces of 65536 ranks have \d+ bytes, and at most 10000 are written"):
        deepbench.export_problems("all_reduce n=65536 ranks=65536 f32", "chakra", tmp_path)

    monkeypatch.setattr(chakra, "MOST_NODES", 1)
    made = deepbench.export_problems([GEMM, NORM], "chakra", tmp_path)
    assert [f"{NORM}: a trace has at most 1 nodes"] == made.left_out
    assert 1 == len([*chakra.nodes(made.files["deepbench.0.et"])])


def test_a_gradient_that_training_does_not_need_is_not_in_a_trace(exported):
    made, files = exported("chakra", "deepbench/train", ops="conv", directions="backward_data")
    problems = json.loads(files["counts.json"])["problems"]
    needed = [s.get("count", 1) for p in problems for s in p["sources"] if s.get("needed", True)]

    assert any(line.endswith("training does not need this gradient") for line in made.left_out)
    assert sum(needed) == len([*chakra.nodes(files["deepbench.0.et"])])


def test_sources_and_counts_are_kept(exported):
    _, files = exported("json", "mlperf/resnet50_v15", settings={"batch": "1", "phase": "inference"})
    problems = json.loads(files["counts.json"])["problems"]

    convolutions = [p for p in problems if p["problem"].startswith("conv ")]
    assert 53 == sum(source.get("count", 1) for p in convolutions for source in p["sources"])


# ---- each format, by a parser that is not ours


def test_scalesim_rows_end_with_a_comma_and_have_no_depthwise_names(exported):
    _, files = exported("scalesim")
    rows = files["topology.csv"].decode().splitlines()

    assert all(row.endswith(",") and "DP" not in row for row in rows)
    assert "gemm_01, 12, 5, 7," in rows
    assert {4} == {row.count(",") for row in rows}


@pytest.mark.parametrize("version", ["0.4", "0.3"])
def test_timeloop_problems_are_right_einsums(exported, version):
    """Every data space is projected from dimensions that exist, and as many elements as the arrays have."""
    made, files = exported("timeloop", version=version)
    conv = yaml.safe_load(files["conv_04.yaml"])["problem"]
    spaces = {
        space["name"]: space["projection"]
        for space in conv["shape"]["data_spaces" if version == "0.4" else "data-spaces"]
    }
    instance = conv["instance"]

    assert [[["N"]], [["C"]], [["R", "Hdilation"], ["P", "Hstride"]], [["S", "Wdilation"], ["Q", "Wstride"]]] == spaces[
        "Inputs"
    ]
    assert {"N": 2, "C": 6, "K": 4, "P": 5, "Q": 9, "R": 3, "S": 2} == {
        k: v for k, v in instance.items() if len(k) == 1
    }
    assert (2, 1, 1, 1) == tuple(instance[name] for name in ("Hstride", "Wstride", "Hdilation", "Wdilation"))
    assert ("version" in conv) == (version == "0.4")
    for layer in made.layers:
        problem = yaml.safe_load(files[f"{layer.name}.yaml"])["problem"]
        sizes = [value for name, value in problem["instance"].items() if name in problem["shape"]["dimensions"]]
        density = problem["instance"].get("densities", {}).get("A", {}).get("density", 1)
        assert layer.multiply_adds == round(math.prod(sizes) * density)


def test_zigzag_layers_are_yaml_with_unique_numbers(exported):
    made, files = exported("zigzag")
    layers = yaml.safe_load(files["workload.yaml"])

    assert [*range(len(layers))] == [layer["id"] for layer in layers]
    by_name = {layer["name"]: layer for layer in layers}
    for layer in made.layers:
        assert layer.multiply_adds == math.prod(by_name[layer.name]["loop_sizes"])
        assert len(by_name[layer.name]["loop_dims"]) == len(by_name[layer.name]["loop_sizes"])
    conv = by_name["conv_05"]
    assert ["ix=1*ox+1*fx", "iy=1*oy+2*fy"] == conv["dimension_relations"]
    assert [[2, 2], [1, 1]] == conv["padding"]


def test_benchdnn_lines_are_read_as_the_same_cases(exported):
    words = [f"{GEMM} beta=0", "gemm m=3 n=4 k=5 b_t=1 bf16 beta=1 result=narrow", f"{CONV} layout=any bias=yes"]
    words += [f"{GROUPED_CONV} layout=nhwc"]
    _, files = exported("benchdnn", *words)
    wanted = {p["name"]: p["problem"] for p in json.loads(files["counts.json"])["problems"]}
    for driver in ("matmul", "conv"):
        for line in files[f"{driver}.txt"].decode().splitlines()[1:]:
            *options, sizes = line.replace("--reset ", f"--{driver} ").split()
            settings = dict(word.removeprefix("--").partition("=")[::2] for word in options)
            text = benchdnn._case_text(settings, sizes, ImportOptions(backend="reference"))
            problem, name = parse_case(text), sizes.split('"')[1]
            c = parse_case(f"{wanted[name]} reference threads=1")
            assert (c.problem, c.direction, c.precision, c.settings) == (
                problem.problem, problem.direction, problem.precision, problem.settings,
            )  # fmt: skip


def test_benchdnn_has_the_convolutions_and_products_of_the_original(tmp_path):
    """As many rows of convolutions as oneDNN's own lists of DeepBench have; equal rows are one line here."""
    for suite, convolutions in (("train", 94), ("server", 107)):
        deepbench.export_problems(
            f"deepbench/{suite}", "benchdnn", tmp_path / suite, precisions="f32", directions="forward"
        )
        lines = (tmp_path / suite / "conv.txt").read_text().splitlines()[1:]
        counts = json.loads((tmp_path / suite / "counts.json").read_text())
        rows = {p["name"]: len(p["sources"]) for p in counts["problems"] if p["problem"].startswith("conv ")}
        assert [*rows] == [line.split('"')[1] for line in lines]
        assert convolutions == sum(rows.values())


def test_lines_of_rocblas_and_hipblaslt(exported):
    words = [
        f"{GEMM} beta=0",
        "batched_gemm batch=3 m=4 n=5 k=6 bf16",
        "linear m=6 n=5 k=4 f16 activation=relu",
        "gemm m=2 n=2 k=2 tf32",
    ]
    made, files = exported("hipblaslt-bench", *words)
    line = files["hipblaslt.sh"].decode().splitlines()[3]
    assert (
        "hipblaslt-bench --transA T --transB N -m 12 -n 5 -k 7 --lda 7 --ldb 7 --ldc 12 --ldd 12 --a_type f32_r "
        "--b_type f32_r --c_type f32_r --d_type f32_r --compute_type f32_r --alpha 1 --beta 0"
    ) == line
    assert "--activation_type relu --bias_vector --bias_type f16_r" in files["hipblaslt.sh"].decode()

    made, files = exported("rocblas-bench", *words)
    assert "-f gemm_strided_batched_ex" in files["rocblas.sh"].decode()
    assert ["gemm m=2 n=2 k=2 a_t=0 b_t=0 forward tf32: rocblas-bench has no types for tf32"] == made.left_out
    assert ["linear_3: rocblas-bench computes neither its bias nor its activation"] == made.remarks


def test_chakra_is_read_by_protobuf_itself(exported):
    """With the definition of `et_def.proto`, as much as is used."""
    pytest.importorskip("google.protobuf", reason="protobuf is not installed; try pip install protobuf")
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="et.proto", package="et", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto

    def message(name, *fields):
        made = file.message_type.add(name=name)
        for number, field, kind, repeated in fields:
            label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            added = made.field.add(name=field, number=number, label=label)
            added.type = kinds.TYPE_MESSAGE if isinstance(kind, str) else kind
            if isinstance(kind, str):
                added.type_name = kind

    message("GlobalMetadata", (1, "version", kinds.TYPE_STRING, False))
    attribute = [(1, "name", kinds.TYPE_STRING, False), (9, "int64_val", kinds.TYPE_INT64, False)]
    message("AttributeProto", *attribute, (27, "bool_val", kinds.TYPE_BOOL, False))
    message(
        "Node",
        (1, "id", kinds.TYPE_UINT64, False),
        (2, "name", kinds.TYPE_STRING, False),
        (3, "type", kinds.TYPE_INT32, False),
        (5, "data_deps", kinds.TYPE_UINT64, True),
        (10, "attr", ".et.AttributeProto", True),
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    metadata, node = (
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"et.{name}")) for name in ("GlobalMetadata", "Node")
    )
    words = [GEMM, "all_reduce n=1000 ranks=4 f32", "all_gather n=4000 ranks=4 f32", "all_reduce n=10 ranks=2 f32"]
    made, files = exported("chakra", *words)
    assert {f"deepbench.{rank}.et" for rank in range(4)} == {name for name in files if name.endswith(".et")}
    first, *rest = chakra.delimited(files["deepbench.3.et"])
    assert "0.0.4" == metadata.FromString(first).version
    nodes = [node.FromString(content) for content in rest]

    assert [(0, []), (1, [0]), (2, [1])] == [(n.id, [*n.data_deps]) for n in nodes]
    assert [4, 7, 7] == [n.type for n in nodes]
    facts = [{a.name: a.int64_val for a in n.attr} for n in nodes]
    assert {"num_ops": 840, "tensor_size": 4 * (84 + 35 + 2 * 60)} == facts[0]
    assert [(0, 4000), (2, 4000)] == [(f["comm_type"], f["comm_size"]) for f in facts[1:]]
    assert [
        "all_reduce n=10 ranks=2 forward f32: it has 2 ranks and others have 4; choose one number with --ranks"
    ] == (made.left_out)


def test_a_trace_calls_a_kernel_as_often_as_the_model_does(exported):
    _, files = exported("chakra", "mlperf/resnet50_v15", settings={"batch": "1", "phase": "inference"}, ops="conv")

    assert 53 == len([*chakra.nodes(files["deepbench.0.et"])])


def numbers(count, array, is_integer=False):
    """As the programs in C make them."""
    with np.errstate(over="ignore"):
        x = np.arange(count, dtype=np.uint32) * np.uint32(2654435761) + np.uint32(array * 40503)
        x ^= x >> np.uint32(15)
    whole = (x >> np.uint32(8)).astype(np.int64) % 17 - 8
    return whole if is_integer else whole / 8


def checksum(c):
    flat = c.reshape(-1)
    return float((flat * (1 + np.arange(flat.size) % 7)).sum())


@pytest.mark.programs
def test_programs_in_c_give_the_checksum_of_numpy(exported, tmp_path):
    words = [GEMM, "batched_gemm batch=3 m=4 n=5 k=6 forward f32", SPARSE, GROUPED_CONV, "gemm m=9 n=8 k=50 i8"]
    words += [MANY[-1]]
    made, _ = exported("c", *words)
    found = {}
    for layer in made.layers:
        program = tmp_path / "c" / layer.name
        subprocess.run(
            ["cc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-O2", "-o", program, f"{program}.c"], check=True
        )
        name, _, value = subprocess.run([program], capture_output=True, text=True, check=True).stdout.split()
        found[name] = float(value)

    a, b = numbers(12 * 7, 1).reshape(12, 7), numbers(7 * 5, 2).reshape(7, 5)
    assert checksum(a @ b) == found["gemm_1"]
    a, b = numbers(3 * 24, 1).reshape(3, 4, 6), numbers(3 * 30, 2).reshape(3, 6, 5)
    assert checksum(a @ b) == found["batched_gemm_2"]
    dense, values = np.zeros((20, 40)), numbers(20 * 4, 1).reshape(20, 4)
    for i, j in itertools.product(range(20), range(4)):
        dense[i, (j * 40 // 4 + i) % 40] = values[i, j]
    assert checksum(dense @ numbers(120, 2).reshape(40, 3)) == found["sparse_gemm_3"]
    a, b = numbers(9 * 50, 1, True).reshape(9, 50), numbers(400, 2, True).reshape(50, 8)
    assert checksum(a @ b) == found["gemm_5"]
    for number, text in ((4, GROUPED_CONV), (6, MANY[-1])):
        case = parse_case(f"{text} reference threads=1")
        arrays = case.operation.operands(case)
        for index, name in enumerate(("x", "w"), 1):
            arrays[name][...] = numbers(arrays[name].size, index).reshape(arrays[name].shape)
        assert checksum(case.operation.reference(case, arrays)["y"]) == found[f"conv_{number}"]


def test_csv_and_json_say_the_same(exported):
    _, files = exported("csv")
    rows = [*csv.DictReader(io.StringIO(files["products.csv"].decode()))]

    assert ["gemm_01", "12", "5", "7", "1", "1", ""] == [
        rows[0][c] for c in ("name", "m", "n", "k", "batch", "steps", "non_zeros")
    ]
    recurrences = [row for row in rows if row["role"].endswith("recurrence")]
    assert {("layer1_recurrence", "3", "32", "8", "2", "5"), ("layer2_recurrence", "3", "32", "8", "2", "5")} == {
        tuple(row[c] for c in ("role", "m", "n", "k", "batch", "steps")) for row in recurrences
    }


def test_onnx_models_compute_the_operation(exported):
    """As ONNX Runtime's own Python runs them, next to float64."""
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed; try pip install onnxruntime")
    texts = [f"{GEMM} beta=0", "linear m=6 n=5 k=4 forward f32 activation=relu", CONV, GROUPED_CONV, NORM]
    made, files = exported("onnx", *texts)
    assert [] == made.left_out
    for text, layer in zip(texts, made.layers, strict=True):
        case = parse_case(f"{text} reference threads=1")
        arrays = case.operation.operands(case)
        session = runtime.InferenceSession(files[f"{layer.name}.onnx"])
        inputs = {entry.name: arrays[entry.name] for entry in session.get_inputs()}
        results = dict(zip((entry.name for entry in session.get_outputs()), session.run(None, inputs), strict=True))
        for name, want in case.operation.reference(case, arrays).items():
            np.testing.assert_allclose(results[name], want, rtol=1e-4, atol=1e-4, err_msg=text)


def test_precisions_that_a_format_lacks_are_named(exported):
    made, _ = exported("benchdnn", GEMM, "gemm m=2 n=2 k=2 tf32")

    assert ["gemm m=2 n=2 k=2 a_t=0 b_t=0 forward tf32: benchdnn has no type for tf32"] == made.left_out


# ---- the command


@pytest.mark.programs
def test_the_command_writes_a_folder_and_names_what_is_left_out(deepbench, tmp_path):
    done = deepbench(
        "export", "deepbench/server", "--op", "gemm,sparse_gemm", "--to", "scalesim", "-o", "out", "--max-macs", "1e9"
    )
    assert 64 == done.returncode
    assert "--max-macs" in done.stderr

    done = deepbench("export", "deepbench/server", "--op", "gemm,sparse_gemm", "--to", "scalesim", "-o", "out")
    assert 0 == done.returncode, done.stderr
    assert "zeros at these positions cannot be expressed" in done.stderr
    assert "wrote 75 problems into 4 files in out" in done.stdout + done.stderr


@pytest.mark.programs
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--to", "scalesim"], "--to scalesim writes a folder; name it: -o scalesim"),
        (
            ["--to", "scalesim", "-o", "x", "--commit", "abc"],
            "--commit is for formats of results, and scalesim is one of problems",
        ),
        (
            ["--to", "bencher", "-o", "x", "--max-macs", "5"],
            "--max-macs is for formats of problems, and bencher is one of results",
        ),
        (["--to", "scalsim", "-o", "x"], "did you mean scalesim?"),
        (["--to", "scalesim", "-o", "file"], "cannot make the folder"),
    ],
)
def test_what_does_not_fit_together_is_a_sentence(deepbench, tmp_path, words, sentence):
    (tmp_path / "file").write_text("a file")
    done = deepbench("export", "gemm", "m=2", "n=2", "k=2", *words)

    assert 64 == done.returncode
    assert sentence in " ".join(done.stderr.split())
