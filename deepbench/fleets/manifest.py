"""A fleet on Kubernetes: the pods that a fleet measures in, as a manifest.

The pods only wait. `deepbench fleet --through kubernetes` finds them by their label and starts everything in them with
`kubectl exec`. So the manifest gives them no rights: no token of a service account, no privilege, no port.
"""

from __future__ import annotations

import json
import re

from deepbench.core.errors import BadInput

LABEL = "app: deepbench"

IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}")
MEMORY = re.compile(r"[1-9][0-9]*(Ki|Mi|Gi|Ti)")

# With equal requests and limits and whole CPUs, kubelet's static policy gives a pod CPUs of its own. No user of the
# image is needed, so the pod is nobody. The root file system stays writable: a measurement keeps its temporary files
# there.
POD = """\
metadata:
  labels:
    {label}
spec:
  automountServiceAccountToken: false
  enableServiceLinks: false
  # Ends soon when it is asked to, and collects processes that have lost their parent: both needs another first process.
  shareProcessNamespace: true
  terminationGracePeriodSeconds: 5
  restartPolicy: {restart}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65534
    runAsGroup: 65534
    seccompProfile:
      type: RuntimeDefault
{affinity}  containers:
    - name: deepbench
      image: {image}
      command: ["sleep", "infinity"]
      resources:
        requests: {resources}
        limits: {resources}
      securityContext:
        privileged: false
        allowPrivilegeEscalation: false
        capabilities:
          drop: [ALL]
"""

AFFINITY = """\
  affinity:
    podAntiAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        - topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {label}
"""

# A pod that fails is not replaced: its host is then missing, which is what we want to see.
JOB = """\
# {nodes} pods on as many nodes, which end after a day. In them: deepbench fleet --through kubernetes --python PATH
apiVersion: batch/v1
kind: Job
metadata:
  name: deepbench
  labels:
    {label}
spec:
  completionMode: Indexed
  completions: {nodes}
  parallelism: {nodes}
  backoffLimitPerIndex: 0
  activeDeadlineSeconds: 86400
  ttlSecondsAfterFinished: 3600
  template:
{pod}"""

DAEMONSET = """\
# One pod on every node; a nodeSelector or tolerations in its template choose others.
# In them: deepbench fleet --through kubernetes --python PATH
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: deepbench
  labels:
    {label}
spec:
  selector:
    matchLabels:
      {label}
  template:
{pod}"""


def manifest(kind: str, *, image: str, cpus: int, memory: str, gpus: int = 0, nodes: int | None = None) -> str:
    """The YAML of an Indexed Job on `nodes` nodes, or of a DaemonSet on all nodes, for Kubernetes 1.33 and later.

    `image` is a container image that contains `deepbench`. Each pod gets `cpus` CPUs, `memory` such as `64Gi`, and
    `gpus` GPUs of NVIDIA. `BadInput` for values that Kubernetes would not take.
    """
    if kind not in ("job", "daemonset"):
        raise BadInput(f"--manifest wants job or daemonset, found {kind[:60]!r}")
    if not IMAGE.fullmatch(image):
        raise BadInput(f"--image wants a container image such as registry/deepbench:1, found {image[:60]!r}")
    if not MEMORY.fullmatch(memory):
        raise BadInput(f"--memory wants a size such as 64Gi, found {memory[:60]!r}")
    if kind == "job" and (nodes is None or nodes < 2):
        raise BadInput(f"--manifest job wants --nodes N with two or more nodes, found {nodes or 'none'}")
    if kind == "daemonset" and nodes is not None:
        raise BadInput("--manifest daemonset runs on every node and takes no --nodes; --manifest job takes it")
    resources = {"cpu": str(cpus), "memory": memory, **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    pod = POD.format(
        label=LABEL,
        restart="Never" if kind == "job" else "Always",
        affinity=AFFINITY.format(label=LABEL) if kind == "job" else "",
        image=json.dumps(image),
        resources=json.dumps(resources),
    )
    template = JOB if kind == "job" else DAEMONSET
    return template.format(nodes=nodes, label=LABEL, pod=_indented(pod, 4))


def _indented(text: str, columns: int) -> str:
    return "".join(" " * columns + line for line in text.splitlines(keepends=True))
