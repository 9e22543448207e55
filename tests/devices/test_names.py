"""Names of devices, and cases that state one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepbench.api.filters import make_choices, plan_cases
from deepbench.core import devices
from deepbench.core.case import parse_case, parse_pattern
from deepbench.core.errors import BadInput

BACKENDS = ("pjrt", "onnxruntime")
PRODUCT = "gemm m=2 n=3 k=4 a_t=0 b_t=0 forward f32"


@pytest.mark.parametrize(
    ("typed", "device", "backend"),
    [
        ("cpu", "cpu", None),
        (" CUDA ", "cuda", None),
        ("cuda:1", "cuda:1", None),
        ("hip:7", "hip:7", None),
        ("pjrt:tpu", "pjrt:tpu", "pjrt"),
        ("pjrt:tpu:3", "pjrt:tpu:3", "pjrt"),
        # Hardware that several libraries reach has one name in all of them.
        ("pjrt:cpu", "cpu", "pjrt"),
        ("pjrt:host", "cpu", "pjrt"),
        ("pjrt:cuda", "cuda", "pjrt"),
        ("pjrt:gpu", "pjrt:gpu", "pjrt"),
        ("pjrt:cuda:1", "cuda:1", "pjrt"),
        ("onnxruntime:rocm", "hip", "onnxruntime"),
        ("onnxruntime:webgpu", "onnxruntime:webgpu", "onnxruntime"),
    ],
)
def test_what_is_typed_is_a_device_and_perhaps_a_backend(typed, device, backend):
    assert devices.Wanted(device, backend) == devices.parse(typed, BACKENDS)


HOSTILE = [
    "",
    ":",
    "cuda:",
    "cuda:x",
    "cuda:-1",
    "pjrt:",
    "pjrt::1",
    "pjrt:tpu:1:2",
    "no_backend:tpu",
    "cpu cuda",
    "cuda\n",
    "pjrt:t\x1b[31mpu",
    "pjrt:<script>",
    "../../etc/passwd",
    "pjrt:../x",
    "c" * 51,
    "pjrt:" + "t" * 10_000,
    "pjrt:ｔpu",
    "cuda:1٣",  # a digit that is none of ASCII's
]


@pytest.mark.parametrize("typed", [name for name in HOSTILE if name != "cuda\n"], ids=ascii)
def test_anything_else_is_refused_in_a_short_sentence(typed):
    with pytest.raises(BadInput) as error:
        devices.parse(typed, BACKENDS)

    assert len(str(error.value)) < 400
    assert "device" in str(error.value)


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_no_file_may_have_these_as_names(name):
    # Files may come from machines with other backends.
    assert devices.is_name(name) is (name in ("cuda:x", "no_backend:tpu"))


def test_a_slip_gets_a_suggestion():
    with pytest.raises(BadInput, match="did you mean cuda"):
        devices.parse("cudda", BACKENDS)


@given(st.text(max_size=200))
def test_whatever_a_driver_calls_its_platform_gives_a_name(platform):
    name = devices.named("pjrt", platform)

    assert devices.is_name(name)
    assert devices.is_name(f"{name}:1")


def test_parts_of_a_name():
    assert ["cuda", "cuda", "pjrt:tpu", "pjrt:tpu"] == list(
        map(devices.base, ("cuda", "cuda:2", "pjrt:tpu", "pjrt:tpu:4"))
    )
    assert [0, 2, 0, 4] == list(map(devices.index, ("cuda", "cuda:2", "pjrt:tpu", "pjrt:tpu:4")))
    assert ["CPU", "NVIDIA GPU", "pjrt:tpu"] == list(map(devices.title, ("cpu", "cuda:1", "pjrt:tpu")))


# ---- cases


@pytest.mark.parametrize(
    ("words", "device"),
    [
        ("pjrt threads=1", "cpu"),
        ("pjrt threads=1 device=cuda", "cuda"),
        ("pjrt threads=1 device=pjrt:tpu:1", "pjrt:tpu:1"),
    ],
)
def test_the_text_of_a_case_states_its_device(words, device):
    text = f"{PRODUCT} {words}"
    case = parse_case(text)

    assert device == case.device
    assert text == case.text
    assert case == parse_case(case.text)


def test_the_usual_device_of_a_backend_is_not_stated():
    assert f"{PRODUCT} pjrt threads=1" == parse_case(f"{PRODUCT} pjrt threads=1 device=cpu").text
    assert f"{PRODUCT} cublas threads=1" == parse_case(f"{PRODUCT} cublas threads=1 device=cuda").text


def test_a_case_may_name_the_backend_with_the_device():
    assert "device=cuda" in parse_case(f"{PRODUCT} pjrt threads=1 device=pjrt:cuda").text


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("onednn threads=1 device=cuda", "oneDNN runs on cpu, not on 'cuda'"),
        ("cublas threads=1 device=cpu", "cuBLAS runs on cuda, not on 'cpu'"),
        ("pjrt threads=1 device=onnxruntime:webgpu", "PJRT runs on cpu, not on 'onnxruntime:webgpu'"),
        ("pjrt threads=1 device=cpu device=cuda", "device appears twice"),
        ("pjrt threads=1 device=<script>", "a device is a name"),
        ("pjrt threads=1 device=", "a device is a name"),
    ],
)
def test_a_case_on_a_device_that_its_library_does_not_reach_is_refused(words, sentence):
    with pytest.raises(BadInput, match=sentence):
        parse_case(f"{PRODUCT} {words}")


def planned(device, **filters):
    return {
        p.case.text.split("f32 ")[1] for p in plan_cases("gemm m=2 n=3 k=4 f32", make_choices(device=device, **filters))
    }


def test_pjrt_cuda_is_cuda_through_pjrt_alone():
    assert {"pjrt threads=1 device=cuda"} == planned("pjrt:cuda")
    assert {"cublas threads=1", "cublaslt threads=1"} == planned("cuda")
    assert {"cublas threads=1 device=cuda:1", "cublaslt threads=1 device=cuda:1"} >= planned("cuda:1")


def test_a_device_of_one_interface_needs_no_backend():
    assert {"pjrt threads=1 device=pjrt:tpu"} == planned("pjrt:tpu")
    assert {"onnxruntime threads=1 device=onnxruntime:webgpu"} == planned("onnxruntime:webgpu")


def test_a_backend_that_contradicts_the_device_is_refused():
    with pytest.raises(BadInput, match="is reached by pjrt, not by onnxruntime"):
        make_choices(device="pjrt:tpu", backends="onnxruntime")
    assert planned("pjrt:tpu", backends="pjrt") == planned("pjrt:tpu")


def test_a_pattern_keeps_its_device():
    assert "pjrt:tpu" == parse_pattern("gemm m=2 n=3 k=4 device=pjrt:tpu").device
    assert parse_pattern("gemm m=2 n=3 k=4").device is None
