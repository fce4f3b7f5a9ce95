"""Cilium's manifest: rendered as Talos's machines need it, refused where a cold cluster could not use it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import yaml

from bundle.errors import BundleError
from bundle.fetching import Sources, write_pod_network
from bundle.pod_network import manifest
from stacks.facts import versions
from talos.cni import cilium_values
from tests.unit.bundle.stand_in_helm import StandInHelm

PINS = versions.load()


def _workload(kind: str, name: str) -> dict[str, Any]:
    way = {"KUBERNETES_SERVICE_HOST": "localhost", "KUBERNETES_SERVICE_PORT": "7445"}
    container = {"name": "main", "env": [{"name": key, "value": value} for key, value in way.items()]}
    template = {"spec": {"containers": [container]}}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": {"template": template}}


RENDERED = yaml.safe_dump_all(
    [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cilium-config"}},
        _workload("DaemonSet", "cilium"),
        _workload("Deployment", "cilium-operator"),
    ]
)


@pytest.fixture
def helm(tmp_path: Path) -> StandInHelm:
    return StandInHelm.in_folder(tmp_path)


def test_it_is_rendered_with_what_talos_needs(helm: StandInHelm, tmp_path: Path) -> None:
    helm.renders(RENDERED)
    with pytest.raises(BundleError, match="is not the pinned one"):
        write_pod_network(Sources(versions=PINS, helm=helm.helm()), tmp_path / "cilium.yaml", lambda _: None)
    assert helm.values() == cilium_values()
    words = ["cilium", "cilium", "--version", PINS.cilium.version, "--repo", "https://helm.cilium.io"]
    # Without a version of Kubernetes helm takes one of its own, which changes with helm.
    cluster = ["--namespace", "kube-system", "--kube-version", PINS.kubernetes]
    assert helm.asked() == [["template", *words, *cluster, "--values", "-"]]


@pytest.mark.parametrize(
    ("rendered", "what"),
    [
        ("kind: A", "Kubernetes objects"),
        ("", "has no DaemonSet"),
        (RENDERED.replace("containers:", "boxes:"), "objects that are not whole"),
    ],
)
def test_a_chart_that_does_not_render_is_named_with_the_fix(rendered: str, what: str) -> None:
    with pytest.raises(BundleError, match=f"Cilium 1.20.2:? (?s:.*){what}"):
        manifest(rendered, "1.20.2")


def test_the_manifest_is_written_as_pinned_and_only_then(helm: StandInHelm, tmp_path: Path) -> None:
    helm.renders(RENDERED)
    text, file = manifest(RENDERED, PINS.cilium.version), tmp_path / "out" / "cilium.yaml"
    with pytest.raises(BundleError, match=r"the manifest of Cilium 1\.20\.2 is not the pinned one"):
        write_pod_network(Sources(versions=PINS, helm=helm.helm()), file, lambda _: None)
    assert not file.exists()
    file.parent.mkdir()
    others = file.with_name("SHA256SUMS")
    others.write_text("of other files")
    digest = hashlib.sha256(text.encode()).hexdigest()
    own = PINS.model_copy(update={"cilium": PINS.cilium.model_copy(update={"manifest": digest})})
    assert write_pod_network(Sources(versions=own, helm=helm.helm()), file, lambda _: None) == [file]
    assert (file.read_text(), others.read_text()) == (text, "of other files")
    assert write_pod_network(Sources(versions=own, helm=helm.helm()), file, lambda _: None) == []


@pytest.mark.parametrize(
    ("pin", "bgp", "measured"),
    [("with_bgp", True, False), ("measured", False, True), ("with_bgp_measured", True, True)],
)
def test_each_choice_of_a_site_has_a_manifest_of_its_own(
    helm: StandInHelm, tmp_path: Path, pin: str, bgp: bool, measured: bool
) -> None:
    helm.renders(RENDERED)
    text, file = manifest(RENDERED, PINS.cilium.version), tmp_path / "cilium-own.yaml"
    digest = hashlib.sha256(text.encode()).hexdigest()
    own = PINS.model_copy(update={"cilium": PINS.cilium.model_copy(update={f"manifest_{pin}": digest})})
    sources = Sources(versions=own, helm=helm.helm(), by_bgp=bgp, measured=measured)
    assert write_pod_network(sources, file, lambda _: None) == [file]
    assert helm.values() == cilium_values(bgp=bgp, measured=measured)
    with pytest.raises(BundleError, match="is not the pinned one"):
        write_pod_network(Sources(versions=own, helm=helm.helm()), file, lambda _: None)
