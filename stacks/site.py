"""What a site is: every key that `Pulumi.<site>.yaml` may hold under `inference-platform:site`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, field_validator, model_validator

from components.access import TenantSpec
from components.base import Spec
from components.crd_bundle import CrdBundleSpec
from components.gateway import GatewaySpec
from components.model import ModelSpec
from stacks import catalogue
from stacks.cluster_model import MachinesSpec
from stacks.hardware import GPUS

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


def _plain_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(
            "this name is not 1 to 40 lower-case letters, digits and inner dashes, which Kubernetes objects carry"
        )
    return name


Name = Annotated[str, AfterValidator(_plain_name)]


def unknown_references(
    models: Collection[str], catalogues: Mapping[str, str], tenants: Mapping[str, Sequence[str]]
) -> list[str]:
    """What is named and does not exist, one line each, given catalogue entries by model and models by tenant."""
    listed = catalogue.names()
    return [
        f"models.{name}.catalogue: got '{entry}', allowed: {', '.join(listed)}"
        for name, entry in catalogues.items()
        if entry not in listed
    ] + [
        f"tenants.{name}.models: got '{model}', allowed: {', '.join(sorted(models)) or '(the site has none)'}"
        for name, wanted in tenants.items()
        for model in wanted
        if model not in models
    ]


class ClusterSpec(Spec):
    """The cluster that the platform is declared on: one that exists, or machines that become one."""

    kubeconfig: Path | None = None
    """File with address and credentials of a cluster that exists; relative to the project."""
    machines: MachinesSpec | None = None
    """Machines that this program makes a cluster of."""
    gpu: str = "h200-sxm"
    """Kind of GPU in the nodes; the figures of every model follow from it."""

    @field_validator("gpu")
    @classmethod
    def _known_gpu(cls, value: str) -> str:
        if value not in GPUS:
            raise ValueError(f"is not in the hardware table; allowed: {', '.join(sorted(GPUS))}")
        return value

    @model_validator(mode="after")
    def _one_way(self) -> ClusterSpec:
        if (self.kubeconfig is None) == (self.machines is None):
            got = "neither" if self.machines is None else "both"
            raise ValueError(
                f"got {got} of kubeconfig and machines, allowed: one; fix: name the file of a cluster that exists, or "
                "the machines that become one"
            )
        return self


class StorageSpec(Spec):
    """Shared storage for model weights."""

    storage_class: str = Field(default="longhorn")
    """Class of the volumes; it must offer ReadWriteMany."""
    read_bytes_per_s: float = Field(default=1.0e9, gt=0)
    """What one replica reads from a shared volume; decides how long a start may take."""


class SiteConfig(Spec):
    """One site: one stack, one cluster."""

    name: str
    """Name of the site; also the provider's identity, so a moved API address replaces nothing."""
    cluster: ClusterSpec
    """The cluster that the platform is declared on."""
    crds: CrdBundleSpec = Field(default_factory=CrdBundleSpec)
    """The custom resource definitions that the program installs first."""
    storage: StorageSpec = Field(default_factory=StorageSpec)
    """Shared storage for model weights."""
    gateway: GatewaySpec
    """How the platform is reached."""
    models: dict[Name, ModelSpec] = Field(default_factory=dict)
    """Models by the name that clients call them."""
    tenants: dict[Name, TenantSpec] = Field(default_factory=dict)
    """Tenants by name."""

    @model_validator(mode="after")
    def _what_is_named_exists(self) -> SiteConfig:
        problems = unknown_references(
            self.models,
            {name: model.catalogue for name, model in self.models.items()},
            {name: tenant.models for name, tenant in self.tenants.items()},
        )
        if problems:
            raise ValueError("\n".join(problems))
        return self
