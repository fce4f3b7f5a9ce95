"""The mirror of charts and release files out of small fixture folders: the same bytes always."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
import yaml

from lab.errors import LabError
from lab.install.bundle import publish
from lab.install.charts import fill_values, write_mirror
from lab.install.parts import CHART_SOURCES, RELEASE_FILES
from lab.install.store import ToolStore


def _source(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def test_a_chart_is_filled_in_as_its_release_is(tmp_path: Path) -> None:
    chart = "name: gateway-helm\nversion: v0.0.0-latest\nappVersion: latest\ndependencies: [{name: crds}]\n"
    values = "image: ${GatewayImage}\npolicy: ${GatewayImagePullPolicy}\n"
    files = {"Chart.yaml": chart, "Chart.lock": "x", "README.md": "x", "values.tmpl.yaml": values}
    source = _source(tmp_path / "source", files)
    _source(source / "templates", {"a.yaml": "{{ .Values.image }}\n"})
    _source(source / "charts" / "crds", {"a.yaml": "kind: CustomResourceDefinition\n"})
    for path in (source, *source.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    (tmp_path / "out").mkdir()
    version = CHART_SOURCES["gateway-helm"].version
    packed = tmp_path / "out" / f"gateway-helm-{version}.tgz"
    write_mirror({"gateway-helm": source}, packed.parent)
    first = packed.read_bytes()
    write_mirror({"gateway-helm": source}, packed.parent)
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


@pytest.mark.parametrize("name", RELEASE_FILES)
def test_a_releases_file_is_all_of_its_folder(name: str, tmp_path: Path) -> None:
    source = _source(tmp_path / "source", {"b.yaml": "kind: B\n", "a.yaml": "kind: A\n", "README.md": "x"})
    write_mirror({name: source}, tmp_path)
    written = (tmp_path / f"{name}-{RELEASE_FILES[name].version}.yaml").read_text()
    assert list(yaml.safe_load_all(written)) == [{"kind": "A"}, {"kind": "B"}]


def test_a_value_that_is_not_known_stops_it() -> None:
    with pytest.raises(LabError, match=r"asks for NewThing; known are GatewayImage"):
        fill_values("x: ${NewThing}\n", "v1", "values.tmpl.yaml")


@pytest.mark.parametrize("name", [*RELEASE_FILES, *CHART_SOURCES])
def test_every_source_is_pinned_by_a_sum(name: str) -> None:
    source = {**RELEASE_FILES, **CHART_SOURCES}[name]
    assert source.checksum.startswith(f"{source.module} {source.version} h1:")


def test_a_published_copy_is_exact_and_only_touched_when_it_differs(tmp_path: Path) -> None:
    def fill(folder: Path, _lock: int) -> None:
        (folder / "a.yaml").write_text("a")

    entry = ToolStore(tmp_path / "cache").obtain("crds", "k", fill).folder
    target = tmp_path / "bundle" / "crds"
    assert publish(entry, target)
    assert not publish(entry, target)
    (target / "stale.yaml").write_text("s")
    (target.parent / ".crds.new-99999").mkdir()
    assert publish(entry, target)
    assert [path.name for path in target.parent.rglob("*")] == ["crds", "a.yaml"]
