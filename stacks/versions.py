"""Reads `versions.yaml`: the one place that names versions."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import Field, model_validator

from components.base import Spec

FILE = Path(__file__).parent / "versions.yaml"

# A tag that names one release, or a digest; `latest` and branches move under those who name them.
_TAG, _DIGEST = r":v?[0-9]+\.[0-9]+\.[0-9]+", "@sha256:[0-9a-f]{64}"
Image = Annotated[str, Field(pattern=rf"^[a-z0-9.:-]+(/[a-z0-9._-]+)+({_TAG}({_DIGEST})?|{_DIGEST})$")]
Release = Annotated[str, Field(pattern=r"^v?[0-9]+\.[0-9]+\.[0-9]+$")]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class NvidiaFork(Spec):
    """Driver and fabric manager of one of NVIDIA's lines."""

    driver: Release
    fabric_manager: Release


class Nvidia(Spec):
    """What the Talos version's extensions carry."""

    production: NvidiaFork
    lts: NvidiaFork


class Images(Spec):
    """Container images by tag."""

    endpoint_picker: Image
    simulator: Image
    vllm: Image


class ChartVersion(Spec):
    """A chart's address and its exact version."""

    chart: str
    version: Release


class Charts(Spec):
    """Charts that a site may let the program install."""

    envoy_gateway: ChartVersion
    ai_gateway: ChartVersion


class Versions(Spec):
    """Talos and Kubernetes as `v1.2.3`, images by tag, charts by version, files by sha256 in hex and release."""

    talos: Release
    kubernetes: Release
    nvidia: Nvidia
    cilium: Digest
    images: Images
    charts: Charts
    crds: dict[str, Digest]
    crd_versions: dict[str, Release]

    @model_validator(mode="after")
    def _same_files(self) -> Versions:
        if set(self.crds) != set(self.crd_versions):
            raise ValueError(f"crds and crd_versions differ in {sorted(set(self.crds) ^ set(self.crd_versions))}")
        return self


@cache
def load() -> Versions:
    """The pins of this checkout."""
    return Versions.model_validate(yaml.safe_load(FILE.read_text()))


def parts(image: str) -> tuple[str, str]:
    """(repository, tag) of an image reference; the tag is empty where a digest alone is given."""
    name = image.partition("@")[0]
    folder, _, last = name.rpartition("/")
    repository, _, tag = last.partition(":")
    return f"{folder}/{repository}", tag
