"""Fleets on Kubernetes: the manifests are valid, and their pods have no rights."""

import pytest
import yaml

from deepbench.core.errors import BadInput
from deepbench.fleets.manifest import manifest

kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")

# The first version with all fields, and the newest one whose schema is installed.
VERSIONS = ("1.33", kubernetes_validate.latest_version())

POD = {"image": "registry.example.com:5000/deepbench:1.0", "cpus": 32, "memory": "64Gi"}


def template(text):
    (document,) = yaml.safe_load_all(text)
    return document, document["spec"]["template"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ["job", "daemonset"])
def test_it_is_valid_in_each_version(kind, version):
    document, _ = template(manifest(kind, **POD, gpus=8, nodes=16 if kind == "job" else None))

    kubernetes_validate.validate(document, version, strict=True)
    document["spec"]["replicas"] = 3  # neither kind has it
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("kind", ["job", "daemonset"])
def test_its_pods_have_what_they_ask_for_and_no_rights(kind):
    document, pods = template(manifest(kind, **POD, nodes=16 if kind == "job" else None))

    assert {"app": "deepbench"} == document["metadata"]["labels"] == pods["metadata"]["labels"]
    spec = pods["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    (container,) = spec["containers"]
    assert {"cpu": "32", "memory": "64Gi"} == container["resources"]["requests"] == container["resources"]["limits"]
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["privileged"] is False
    assert ["ALL"] == container["securityContext"]["capabilities"]["drop"]
    assert not {"ports", "env", "envFrom", "volumeMounts"} & container.keys()
    assert not {"hostNetwork", "hostPID", "hostIPC", "volumes"} & spec.keys()


def test_a_job_has_one_pod_per_node_and_replaces_none():
    document, pods = template(manifest("job", **POD, nodes=16))

    spec = document["spec"]
    assert ("Indexed", 16, 16, 0) == tuple(
        spec[name] for name in ("completionMode", "completions", "parallelism", "backoffLimitPerIndex")
    )
    assert "Never" == pods["spec"]["restartPolicy"]
    (term,) = pods["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert "kubernetes.io/hostname" == term["topologyKey"]
    assert pods["metadata"]["labels"] == term["labelSelector"]["matchLabels"]


def test_a_daemonset_selects_its_pods():
    document, pods = template(manifest("daemonset", **POD))

    assert pods["metadata"]["labels"] == document["spec"]["selector"]["matchLabels"]


def test_gpus_are_limited_too():
    _, pods = template(manifest("job", **POD, gpus=8, nodes=2))

    resources = pods["spec"]["containers"][0]["resources"]
    assert "8" == resources["limits"]["nvidia.com/gpu"] == resources["requests"]["nvidia.com/gpu"]


@pytest.mark.parametrize(
    ("kind", "other", "wanted"),
    [
        ("pod", {}, "job or daemonset"),
        ("job", {}, "--nodes N"),
        ("job", {"nodes": 1}, "two or more nodes"),
        ("daemonset", {"nodes": 4}, "takes no --nodes"),
        ("job", {"nodes": 4, "image": "a\nprivileged: true"}, "--image"),
        ("job", {"nodes": 4, "memory": "64"}, "--memory"),
    ],
)
def test_values_that_kubernetes_would_not_take_are_refused(kind, other, wanted):
    with pytest.raises(BadInput, match=wanted):
        manifest(kind, **{**POD, **other})


def test_the_command_prints_it(deepbench):
    words = ("--image", POD["image"], "--cpus", "32", "--memory", "64Gi", "--nodes", "16")
    done = deepbench("fleet", "--manifest", "job", *words)

    assert 0 == done.returncode, done.stderr
    assert manifest("job", **POD, nodes=16) == done.stdout


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("--manifest", "job"), "--image IMAGE --cpus N --memory SIZE"),
        (("--manifest", "job", "--hosts", "a,b"), "leave out --hosts=a,b"),
        (("--manifest", "job", "--submit"), "leave out --submit"),
        (("--manifest", "job", "gemm m=3"), "leave out gemm m=3"),
        (("--image", "x", "--hosts", "a,b"), "--image belongs to --manifest"),
        (("--nodes", "3", "--hosts", "a,b"), "--nodes belongs to --submit and --manifest"),
    ],
)
def test_words_that_do_not_fit_are_refused(deepbench, words, wanted):
    done = deepbench("fleet", *words)

    assert 64 == done.returncode
    assert wanted in done.stderr
