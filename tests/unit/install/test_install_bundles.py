"""The CRD and chart bundles out of small fixture folders: the same bytes always, nothing but what belongs."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.errors import LabError
from lab.install.bundle import publish
from lab.install.charts import fill_values, write_charts
from lab.install.cilium import write_cilium
from lab.install.crds import write_crds
from lab.install.parts import CHART_SOURCES, CRD_SOURCES
from lab.install.store import Store
from talos.cni import cilium_values

CRD = """\
{{- if .Values.crds.envoyGateway.enabled }}
---
# a comment
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: NAME
  creationTimestamp: null
spec:
  group: example.org
  versions:
  - name: v1
    schema:
      openAPIV3Schema:
        description: two words
        properties:
          description: {type: string, description: A field of this name., pattern: '1e3'}
          size: {type: object, default: {description: kept}, properties: {properties: {description: A text.}}}
status:
  conditions: []
{{- end }}
"""
POLICY = "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: p}\n"


def _source(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def _write(sources: dict[str, Path], target: Path) -> dict[str, str]:
    target.mkdir()
    write_crds(sources, target)
    return {path.name: path.read_text() for path in target.iterdir()}


def test_crds_are_sorted_bare_and_summed(tmp_path: Path) -> None:
    files = {"a.yaml": CRD.replace("NAME", "z.example.org"), "b.yaml": CRD.replace("NAME", "a.example.org")}
    source = _source(tmp_path / "source", {**files, "vap.yaml": POLICY, "kustomization.yaml": "kind: K\n"})
    written = _write({"one": source}, tmp_path / "out")
    items = json.loads(written["one.json"])["items"]
    assert [item["metadata"] for item in items] == [{"name": "a.example.org"}, {"name": "z.example.org"}]
    assert all("status" not in item for item in items)
    assert written["SHA256SUMS"] == f"{hashlib.sha256(written['one.json'].encode()).hexdigest()}  one.json\n"


def test_crds_lose_their_descriptions_and_nothing_else(tmp_path: Path) -> None:
    written = _write({"one": _source(tmp_path / "source", {"a.yaml": CRD})}, tmp_path / "out")
    ((version,),) = [item["spec"]["versions"] for item in json.loads(written["one.json"])["items"]]
    assert version["schema"]["openAPIV3Schema"] == {
        "properties": {
            "description": {"type": "string", "pattern": "1e3"},
            "size": {"type": "object", "default": {"description": "kept"}, "properties": {"properties": {}}},
        }
    }


def test_the_order_of_files_and_sources_does_not_matter(tmp_path: Path) -> None:
    first, second = CRD.replace("NAME", "a.example.org"), CRD.replace("NAME", "b.example.org")
    one = _source(tmp_path / "one", {"a.yaml": first, "b.yaml": second})
    two = _source(tmp_path / "two", {"a.yaml": second, "b.yaml": first})
    forth = _write({"x": one, "y": one}, tmp_path / "forth")
    back = _write({"y": two, "x": two}, tmp_path / "back")
    assert forth == back


def test_an_unknown_template_line_stops_it(tmp_path: Path) -> None:
    source = _source(tmp_path / "source", {"a.yaml": CRD + "  x: {{ .Values.surprise }}\n"})
    with pytest.raises(LabError, match=r"\.Values\.surprise"):
        _write({"one": source}, tmp_path / "out")


def test_a_source_without_crds_stops_it(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="holds no CustomResourceDefinition"):
        _write({"one": _source(tmp_path / "source", {"vap.yaml": POLICY})}, tmp_path / "out")


def test_a_chart_is_filled_in_as_its_release_is(tmp_path: Path) -> None:
    chart = "name: gateway-helm\nversion: v0.0.0-latest\nappVersion: latest\ndependencies: [{name: crds}]\n"
    values = "image: ${GatewayImage}\npolicy: ${GatewayImagePullPolicy}\n"
    files = {"Chart.yaml": chart, "Chart.lock": "x", "README.md": "x", "values.tmpl.yaml": values}
    source = _source(tmp_path / "source", files)
    _source(source / "templates", {"a.yaml": "{{ .Values.image }}\n"})
    _source(source / "charts" / "crds", {"a.yaml": CRD})
    for path in (source, *source.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    (tmp_path / "out").mkdir()
    version = CHART_SOURCES["gateway-helm"].version
    packed = tmp_path / "out" / f"gateway-helm-{version}.tgz"
    write_charts({"gateway-helm": source}, packed.parent)
    first = packed.read_bytes()
    write_charts({"gateway-helm": source}, packed.parent)
    assert packed.read_bytes() == first
    with tarfile.open(packed) as archive:
        archive.extractall(tmp_path, filter="data")
    target = tmp_path / "gateway-helm"
    assert sorted(path.name for path in target.rglob("*") if path.is_file()) == ["Chart.yaml", "a.yaml", "values.yaml"]
    assert yaml.safe_load((target / "Chart.yaml").read_text()) == {
        "name": "gateway-helm",
        "version": version,
        "appVersion": version,
    }
    assert (target / "values.yaml").read_text() == (
        f"image: docker.io/envoyproxy/gateway:{version}\npolicy: IfNotPresent\n"
    )
    assert (target / "templates" / "a.yaml").stat().st_mode & 0o777 == 0o644


def test_a_value_that_is_not_known_stops_it() -> None:
    with pytest.raises(LabError, match=r"asks for NewThing; known are GatewayImage"):
        fill_values("x: ${NewThing}\n", "v1", "values.tmpl.yaml")


@pytest.mark.parametrize("name", [*CRD_SOURCES, *CHART_SOURCES])
def test_every_source_is_pinned_by_a_sum(name: str) -> None:
    source = {**CRD_SOURCES, **CHART_SOURCES}[name]
    assert source.checksum.startswith(f"{source.module} {source.version} h1:")


def test_a_published_copy_is_exact_and_only_touched_when_it_differs(tmp_path: Path) -> None:
    def fill(folder: Path, _lock: int) -> None:
        (folder / "a.yaml").write_text("a")

    entry = Store(tmp_path / "cache").obtain("crds", "k", fill).folder
    target = tmp_path / "bundle" / "crds"
    assert publish(entry, target)
    assert not publish(entry, target)
    (target / "stale.yaml").write_text("s")
    (target.parent / ".crds.new-99999").mkdir()
    assert publish(entry, target)
    assert [path.name for path in target.parent.rglob("*")] == ["crds", "a.yaml"]


def _workload(kind: str, name: str) -> dict[str, Any]:
    way = {"KUBERNETES_SERVICE_HOST": "localhost", "KUBERNETES_SERVICE_PORT": "7445"}
    container = {"name": "main", "env": [{"name": key, "value": value} for key, value in way.items()]}
    template = {"spec": {"containers": [container]}}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": {"template": template}}


_RENDERED = yaml.safe_dump_all(
    [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cilium-config"}},
        _workload("DaemonSet", "cilium"),
        _workload("Deployment", "cilium-operator"),
    ]
)


def _helm(folder: Path, script: str) -> Path:
    program = folder / "helm"
    (folder / "rendered").write_text(_RENDERED)
    program.write_text(f'#!/bin/sh\necho "$@" >{folder}/asked\ncat >{folder}/values\n{script}\n')
    program.chmod(0o755)
    return program


def test_cilium_is_rendered_with_what_talos_needs_and_summed(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir()
    write_cilium(_helm(tmp_path, f"cat {tmp_path}/rendered"), tmp_path / "chart", target)
    assert json.loads((tmp_path / "values").read_text()) == cilium_values()
    # Without a version of Kubernetes helm takes one of its own, which changes with helm.
    assert "--kube-version v1." in (tmp_path / "asked").read_text()
    text = (target / "cilium.yaml").read_bytes()
    assert (target / "SHA256SUMS").read_text() == f"{hashlib.sha256(text).hexdigest()}  cilium.yaml\n"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo broken >&2; exit 1", "broken"),
        ("echo 'kind: A'; exit 0", "Kubernetes objects"),
        ("true", "has no DaemonSet"),
    ],
)
def test_a_chart_that_does_not_render_is_named_with_the_fix(tmp_path: Path, script: str, said: str) -> None:
    target = tmp_path / "out"
    target.mkdir()
    with pytest.raises(LabError, match=f"part cilium: (?s:.*){said}"):
        write_cilium(_helm(tmp_path, script), tmp_path / "chart", target)
    assert list(target.iterdir()) == []
