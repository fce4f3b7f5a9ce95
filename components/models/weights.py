"""A model's weights: the volume that its replicas share, and where its files come from."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field, model_validator

from components.network_policies import Rule
from floor.problems import WrongValueError
from floor.spec import Spec

MOUNT = "/models"
# Annotation of a volume that may be deleted with its data; the rules read it.
DISPOSABLE = "inference-platform/disposable"

Keeping = Literal["protected", "disposable"]

# No credentials: the address is in the pods' definition.
_ADDRESS = re.compile(r"https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._~/-]*)?")


class WeightsSpec(Spec):
    """Where the weights come from."""

    source: Literal["hub", "mirror", "volume"] = "hub"
    """`hub`: vLLM downloads them from Hugging Face at its first start. `mirror`: the same from a server of the site.
    `volume`: you fill the volume before the first start, and vLLM downloads nothing."""
    mirror: str | None = None
    """Address of a server with the hub's API; required for the source `mirror`."""
    download_bytes_per_s: float = Field(default=1.25e8, ge=1.0e5, le=1.0e11)
    """Download speed of one replica from hub or mirror into the volume; sets how long the first start may take."""

    @model_validator(mode="after")
    def _mirror_is_named(self) -> WeightsSpec:
        if (self.source == "mirror") != (self.mirror is not None):
            got = f"source {self.source} and {'no mirror' if self.mirror is None else 'a mirror'}"
            raise WrongValueError(
                "source and mirror do not go together",
                got=got,
                fix="write source: mirror and its address as mirror, or neither",
            )
        if self.mirror is not None and not _ADDRESS.fullmatch(self.mirror):
            raise WrongValueError(
                "mirror is no address without credentials", fix="write it like https://hub.site.example"
            )
        return self

    @property
    def downloaded(self) -> bool:
        """Whether the first replica to start fetches them."""
        return self.source != "volume"


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
    """What an engine may reach for its weights; None where its policy cannot say it.

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


def claim(
    name: str,
    namespace: str,
    *,
    labels: Mapping[str, str],
    weight_bytes: float,
    storage_class: str,
    keeping: Keeping = "protected",
) -> dict[str, Any]:
    """The one volume that all replicas of a model share; a tenth more than the weights, in whole GiB."""
    gib = math.ceil(weight_bytes * 1.1 / 2**30)
    marks = {"annotations": {DISPOSABLE: "true"}} if keeping == "disposable" else {}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": f"{name}-weights", "namespace": namespace, "labels": dict(labels), **marks},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": f"{gib}Gi"}},
        },
    }
