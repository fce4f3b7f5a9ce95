"""What a site is: every key that `Pulumi.<site>.yaml` may hold under `inference-platform:site`."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import Field, ValidationInfo, field_validator, model_validator

from components.access import TenantSpec
from components.base import Spec
from components.crd_bundle import CrdBundleSpec
from components.gateway import GatewaySpec
from components.model import ModelSpec
from stacks import catalogue
from stacks.hardware import GPUS

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


class ClusterSpec(Spec):
    """The cluster that the platform is declared on."""

    kubeconfig: Path
    """File with the cluster's address and credentials; relative to the project."""
    gpu: str = "h200-sxm"
    """Kind of GPU in the nodes; the figures of every model follow from it."""

    @field_validator("gpu")
    @classmethod
    def _known_gpu(cls, value: str) -> str:
        if value not in GPUS:
            raise ValueError(f"is not in the hardware table; allowed: {', '.join(sorted(GPUS))}")
        return value


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
    models: dict[str, ModelSpec] = Field(default_factory=dict)
    """Models by the name that clients call them."""
    tenants: dict[str, TenantSpec] = Field(default_factory=dict)
    """Tenants by name."""

    @field_validator("models", "tenants", mode="before")
    @classmethod
    def _plain_names(cls, value: object, info: ValidationInfo) -> object:
        wrong = [name for name in value if not _NAME.fullmatch(str(name))] if isinstance(value, dict) else []
        if wrong:
            raise ValueError(
                f"{', '.join(map(repr, wrong))}: a name in {info.field_name} has 1 to 40 lower-case letters, digits "
                "and inner dashes, because Kubernetes objects carry it"
            )
        return value

    @model_validator(mode="after")
    def _what_is_named_exists(self) -> SiteConfig:
        listed = catalogue.names()
        problems = [
            f"models.{name}.catalogue: got '{model.catalogue}', allowed: {', '.join(listed)}"
            for name, model in self.models.items()
            if model.catalogue not in listed
        ] + [
            f"tenants.{name}.models: got '{model}', allowed: {', '.join(sorted(self.models)) or '(the site has none)'}"
            for name, tenant in self.tenants.items()
            for model in tenant.models
            if model not in self.models
        ]
        if problems:
            raise ValueError("\n".join(problems))
        return self
