"""The load test of a new node: pods that wait for the watcher's label, and there have all GPUs work.

A DaemonSet for each kind of node: its first container tests, and the pod is ready once that has passed. Where it
fails, the kubelet runs it again, at longer and longer intervals, so a node that was repaired needs no other word.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from components.holding import holding
from components.models import own_program
from components.monitoring.pods import NAME_LABEL, POD_SECURITY
from components.pod_security import CONTAINER_SECURITY
from floor import gpu_nodes, namespaces
from services.load_test.verdict import LoadTest
from services.watcher import variables

PROGRAM = "load_test"
LABELS = {NAME_LABEL: "gpu-load-test"}
_SPACE = namespaces.MONITORING
_MESSAGE = "/dev/termination-log"
# Processes of all GPUs meet in /tmp, and NCCL in shared memory.
_WRITTEN: Mapping[str, Mapping[str, str]] = {
    "/tmp": {"sizeLimit": "1Gi"},  # noqa: S108
    "/dev/shm": {"medium": "Memory", "sizeLimit": "20Gi"},  # noqa: S108
}
_REPELS = (gpu_nodes.TAINT_KEY, variables.CHECK)


def programs() -> dict[str, Any]:
    """ConfigMap with the program."""
    return own_program.config_map(PROGRAM, _SPACE)


def daemon_set(test: LoadTest, image: str) -> dict[str, Any]:
    """Pods on each node whose label names this test. image: vLLM's, with its Python and torch."""
    labels = {**LABELS, variables.LOAD_TEST: test.name}
    floors = test.floors
    arguments = [
        f"--gpus={test.gpus}",
        f"--tflops={floors.tflops:.0f}",
        f"--memory={floors.memory_gb_s:.0f}",
        f"--all-reduce={floors.all_reduce_gb_s:.0f}",
        f"--message={_MESSAGE}",
    ]
    gpus = {gpu_nodes.RESOURCE: str(test.gpus)}
    container = {
        "name": "load-test",
        "image": image,
        "command": ["python3", "-m", f"services.{PROGRAM}"],
        "args": arguments,
        "env": [*own_program.ENVIRONMENT, {"name": "HOME", "value": "/tmp"}],  # noqa: S108
        "resources": {"limits": gpus, "requests": {**gpus, "cpu": str(test.gpus), "memory": f"{4 * test.gpus}Gi"}},
        "securityContext": dict(CONTAINER_SECURITY),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            own_program.mount(PROGRAM),
            *({"name": _volume(path), "mountPath": path} for path in _WRITTEN),
        ],
    }
    pod = {
        "runtimeClassName": gpu_nodes.RUNTIME_CLASS,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": dict(POD_SECURITY),
        "nodeSelector": {variables.LOAD_TEST: test.name},
        "tolerations": [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in _REPELS],
        "initContainers": [container],
        "containers": [holding("passed", image)],
        "volumes": [
            own_program.volume(PROGRAM),
            *({"name": _volume(path), "emptyDir": dict(of)} for path, of in _WRITTEN.items()),
        ],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        # A test that fails is a matter of its node, and no reason for `up` to wait.
        "metadata": {
            "name": f"gpu-load-test-{test.name}",
            "namespace": _SPACE,
            "labels": labels,
            "annotations": {"pulumi.com/skipAwait": "true"},
        },
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _volume(path: str) -> str:
    return path.rpartition("/")[2]
