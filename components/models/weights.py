"""A model's weights: the volume that its replicas share, and where its files come from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from components.network_policies import Rule
from components.specs.weights import WeightsSpec
from floor.metadata import DISPOSABLE
from floor.stateful import Keeping

MOUNT = "/models"


def environment(spec: WeightsSpec) -> Mapping[str, str]:
    """Environment of vLLM and the hub's client: where the weights are."""
    variables = {"HF_HOME": f"{MOUNT}/hub", "VLLM_CACHE_ROOT": f"{MOUNT}/vllm-cache"}
    match spec.source:
        case "volume":
            variables |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
        case "mirror":
            variables |= {"HF_ENDPOINT": str(spec.mirror)}
    return variables


def egress(spec: WeightsSpec) -> Sequence[Rule] | None:
    """What an engine may reach for its weights; None where its policy cannot express it.

    A NetworkPolicy knows no host names. The hub and the stores that it redirects to are anywhere, behind HTTPS. A
    mirror redirects to whatever it likes, and the port of a Service is not that of its pods.
    """
    match spec.source:
        case "volume":
            return []
        case "mirror":
            return None
    names = [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]
    return [{"ports": [*names, {"protocol": "TCP", "port": 443}]}]


def volume_gib(weight_bytes: float) -> int:
    """Size of a model's volume: a tenth more than the weights, in whole GiB."""
    return math.ceil(weight_bytes * 1.1 / 2**30)


def claim(
    name: str,
    namespace: str,
    *,
    labels: Mapping[str, str],
    weight_bytes: float,
    storage_class: str,
    keeping: Keeping = "protected",
) -> dict[str, Any]:
    """The one volume that all replicas of a model share."""
    marks = {"annotations": {DISPOSABLE: "true"}} if keeping == "disposable" else {}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": f"{name}-weights", "namespace": namespace, "labels": dict(labels), **marks},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": f"{volume_gib(weight_bytes)}Gi"}},
        },
    }
