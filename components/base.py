"""The floor under every component: Spec (what a site may say) and Component (what the engine sees)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import pulumi
from pydantic import AfterValidator, BaseModel, ConfigDict, WithJsonSchema

from components.objects import KubeObject, declare

# Kubernetes counts replicas in int32.
MOST_REPLICAS = 2**31 - 1
# A duration of the Gateway API has five digits: `^([0-9]{1,5}(h|m|s|ms)){1,4}$` (CRDs of Envoy Gateway 1.9.1).
MOST_SECONDS = 99_999
# Envoy's circuit breakers count in uint32 (BackendTrafficPolicy of Envoy Gateway 1.9.1, circuitBreaker).
MOST_STREAMS = 2**32 - 1
# Values that one rule may allow (SecurityPolicy of Envoy Gateway 1.9.1, authorization.rules.principal.headers.values).
MOST_VALUES = 256

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


def is_plain_name(name: str) -> bool:
    """Whether a site may choose this name."""
    return _NAME.fullmatch(name) is not None


def _plain_name(name: str) -> str:
    if not is_plain_name(name):
        fitting = re.sub(r"[^a-z0-9]+", "-", name.lower())[:40].strip("-")
        raise ValueError(
            "this name is not 1 to 40 lower-case letters, digits and inner dashes, which Kubernetes objects carry"
            f"\nfix: rename it{f', for example to {fitting}' if fitting else ''}"
        )
    return name


Name = Annotated[str, AfterValidator(_plain_name), WithJsonSchema({"type": "string", "pattern": f"^{_NAME.pattern}$"})]
"""A name that a site chooses and that becomes part of the names of Kubernetes objects."""


class Spec(BaseModel):
    """What a site may say of one thing. Unknown keys are errors; values never change after loading."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


class Component(pulumi.ComponentResource):
    """A named part of the platform.

    Its type is `inference-platform:<module>:<Class>` and its children are `<name>-<suffix>`, so a URN tells where a
    resource was declared. The caller's options stay on the component; children inherit the provider alone.
    """

    def __init__(self, name: str, opts: pulumi.ResourceOptions | None = None) -> None:
        module = type(self).__module__.rpartition(".")[2]
        super().__init__(f"inference-platform:{module}:{type(self).__name__}", name, None, opts)
        self.name = name
        self.children: list[pulumi.Resource] = []

    def child(
        self,
        suffix: str,
        body: Mapping[str, Any],
        *,
        depends_on: Sequence[pulumi.Resource] = (),
        patience_s: int | None = None,
        protect: bool | None = None,
    ) -> KubeObject:
        """Declare one Kubernetes object out of its wire-format body.

        patience_s: how long `up` and `destroy` wait for it, where the provider's ten minutes are too few.
        protect: whether the engine refuses to delete or replace it.
        """
        limit = f"{patience_s}s" if patience_s else None
        timeouts = pulumi.CustomTimeouts(create=limit, update=limit, delete=limit) if limit else None
        resource = declare(
            f"{self.name}-{suffix}",
            body,
            pulumi.ResourceOptions(parent=self, depends_on=list(depends_on), custom_timeouts=timeouts, protect=protect),
        )
        self.children.append(resource)
        return resource

    def finish(self, **outputs: Any) -> None:
        """Register the component's outputs; call it once, last."""
        self.register_outputs(outputs)
