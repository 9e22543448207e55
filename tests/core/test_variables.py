"""Which environment variables a record keeps, and what of their values."""

import json

import pytest

from deepbench.core import variables
from deepbench.core.backend import GroupBackend, all_backends
from deepbench.core.variables import fixed_variables, is_secret, is_tuning, override_variables, thread_variables, tuning
from deepbench.measuring import launch

KNOBS = (
    *("OMP_WAIT_POLICY", "KMP_BLOCKTIME", "KMP_DUPLICATE_LIB_OK", "MALLOC_ARENA_MAX", "MKL_CBWR", "OPENBLAS_CORETYPE"),
    *("ONEDNN_MAX_CPU_ISA", "DNNL_VERBOSE", "MPIR_CVAR_CH4_NUM_VCIS", "OMPI_MCA_btl_tcp_if_include", "I_MPI_FABRICS"),
    *("FI_PROVIDER", "FI_TCP_IFACE", "UCX_TLS", "UCX_IB_PKEY", "NCCL_ALGO", "RCCL_MSCCL_ENABLE", "CCL_ALLREDUCE"),
    *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_MAX_CONNECTIONS", "NVIDIA_TF32_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG"),
    *("CUDNN_LOGINFO_DBG", "MIOPEN_FIND_MODE", "ROCBLAS_LAYER", "GLOO_SOCKET_IFNAME"),
    *("PYTORCH_CUDA_ALLOC_CONF", "JAX_ENABLE_X64", "JAX_COMPILATION_CACHE_MAX_SIZE", "XLA_FLAGS"),
)
SECRETS = (
    *("NVIDIA_API_KEY", "CUDA_REGISTRY_PASSWORD", "HIP_AUTH_TOKEN", "FI_DATABASE_URL", "OMPI_MCA_orte_hnp_uri"),
    *("NCCL_API_KEY", "MKL_TOKEN", "OMP_COOKIE", "UCX_AUTH_HEADER", "MIOPEN_CREDENTIALS", "ccl_client_secret"),
    *("OMPI_MCA_orte_precondition_transports", "I_MPI_HYDRA_UUID", "GLOO_DEVICE_TRANSPORT_TCP_TLS_PKEY", "HOME"),
    *("JAX_COORDINATOR_ADDRESS", "JAX_AUTH_TOKEN", "PYTORCH_DOWNLOAD_URL"),
)


@pytest.mark.parametrize("name", KNOBS)
def test_a_variable_that_tunes_a_library_is_recorded(name):
    assert {name: "7"} == tuning({name: "7"})


@pytest.mark.parametrize("name", SECRETS)
def test_a_variable_that_may_hold_a_secret_is_neither_recorded_nor_sent_to_other_hosts(name):
    assert {} == tuning({name: "hunter2"})
    command, request = launch.on_host("there", {name: "hunter2"}, ["true"])
    assert "hunter2" not in " ".join(command)
    assert b"hunter2" not in request


def test_variables_that_deepbench_sets_itself_are_recorded():
    chosen = {
        variable
        for backend in all_backends().values()
        if isinstance(backend, GroupBackend)
        for algorithms in backend.algorithms.values()
        for variables in algorithms.values()
        for variable in variables
    }
    names = {*thread_variables(), *override_variables(), *fixed_variables(), *chosen}

    assert len(chosen) > 4
    assert set() == {name for name in names if not is_tuning(name)}


def test_the_file_of_declarations_is_what_backends_declare():
    written = json.loads(variables.DECLARATIONS.read_text())

    found = {name: json.loads(json.dumps(variables.declared(name))) for name in all_backends()}
    assert found == written, "run python -m deepbench.core.variables"


def test_a_backend_that_the_file_does_not_know_is_asked(monkeypatch, tmp_path):
    before = thread_variables()
    known = json.loads(variables.DECLARATIONS.read_text())
    del known["mkl"]
    (tmp_path / "few.json").write_text(json.dumps(known))
    monkeypatch.setattr(variables, "DECLARATIONS", tmp_path / "few.json")
    variables._declarations.cache_clear()

    assert "MKL_NUM_THREADS" in before
    assert before == thread_variables()


def test_a_long_value_is_cut_and_a_path_is_hidden():
    found = tuning(
        {
            "OMP_PLACES": "{0},{1}",
            "UCX_TLS": "x" * 1000,
            "NCCL_TOPO_FILE": "/home/alice/topology.xml",
            "CUDNN_LOGDEST_DBG": "~/log",
            "OMPI_MCA_btl_tcp_if_include": "10.0.0.0/24",
        }
    )

    assert ("{0},{1}", "10.0.0.0/24") == (found["OMP_PLACES"], found["OMPI_MCA_btl_tcp_if_include"])
    assert 200 == len(found["UCX_TLS"])
    assert "(hidden)" == found["NCCL_TOPO_FILE"] == found["CUDNN_LOGDEST_DBG"]


def test_other_hosts_get_the_paths_that_libraries_need_there():
    wanted = {"NCCL_TOPO_FILE": "/shared/t.xml", "FI_PROVIDER_PATH": "/opt/lib"}
    _, request = launch.on_host("there", wanted, ["true"])

    assert wanted == json.loads(request)["environment"]


@pytest.mark.parametrize("name", ["KEYBOARD", "MONKEY", "UCX_IB_PKEY", "BYPASS", "AUTHOR", "TOKENIZERS_PARALLELISM"])
def test_a_name_that_only_contains_such_a_word_is_no_secret(name):
    assert not is_secret(name)
