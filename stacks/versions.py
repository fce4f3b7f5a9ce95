"""Reads `versions.yaml`: the one place that names versions."""

from __future__ import annotations

from pathlib import Path

import yaml

from components.base import Spec

FILE = Path(__file__).parent / "versions.yaml"


class Images(Spec):
    endpoint_picker: str
    simulator: str
    vllm: str


class ChartVersion(Spec):
    chart: str
    version: str


class Charts(Spec):
    envoy_gateway: ChartVersion
    ai_gateway: ChartVersion


class Versions(Spec):
    """Talos and Kubernetes as `v1.2.3`, images by tag, charts by version; files by sha256 in hex."""

    talos: str
    kubernetes: str
    cilium: str
    images: Images
    charts: Charts
    crds: dict[str, str]


def load() -> Versions:
    return Versions.model_validate(yaml.safe_load(FILE.read_text()))
