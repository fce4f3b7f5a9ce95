"""A mirror of what the gateways' projects publish: charts and files of releases, out of the modules that are built."""

from __future__ import annotations

import gzip
import re
import shutil
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

import yaml

from lab.errors import LabError
from lab.install.parts import CHART_SOURCES, RELEASE_FILES, ModuleFolder

REVISION = "charts-4"

_KEPT = ("Chart.yaml", "values.yaml", "values.schema.json", "templates")
_PLACEHOLDER = re.compile(r"\$\{(\w+)\}")


def write_mirror(
    sources: Mapping[str, Path], folder: Path, pinned: Mapping[str, ModuleFolder] = CHART_SOURCES | RELEASE_FILES
) -> None:
    """Write NAME-VERSION.tgz of a chart, NAME-VERSION.yaml of a release's file; their versions are those of `pinned`.

    Raises LabError when a template asks for a value that is not known here.
    """
    for name, source in sorted(sources.items()):
        if name in RELEASE_FILES:
            texts = (path.read_text() for path in sorted(source.glob("*.yaml")))
            (folder / f"{name}-{pinned[name].version}.yaml").write_text("---\n".join(texts))
            continue
        version = pinned[name].version
        with tempfile.TemporaryDirectory(prefix="chart-") as unpacked:
            _write_chart(source, Path(unpacked) / name, version)
            _pack(Path(unpacked) / name, folder / f"{name}-{version}.tgz")


def _pack(chart: Path, target: Path) -> None:
    """The chart as `helm package` packs it; the same files give the same bytes."""
    files = [path for path in sorted(chart.rglob("*")) if path.is_file()]
    with gzip.GzipFile(target, "wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
        for path in files:
            entry = tarfile.TarInfo(f"{chart.name}/{path.relative_to(chart).as_posix()}")
            entry.size, entry.mode = path.stat().st_size, 0o644
            with path.open("rb") as content:
                archive.addfile(entry, content)


def _write_chart(source: Path, target: Path, version: str) -> None:
    target.mkdir()
    for kept in _KEPT:
        if (source / kept).is_dir():
            shutil.copytree(source / kept, target / kept, copy_function=shutil.copyfile)
        elif (source / kept).is_file():
            shutil.copyfile(source / kept, target / kept)
    # The module cache is read-only, and so would be a copy of its folders.
    for path in (target, *target.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    if (template := source / "values.tmpl.yaml").is_file():
        (target / "values.yaml").write_text(fill_values(template.read_text(), version, str(template)))
    chart = yaml.safe_load((source / "Chart.yaml").read_text())
    # The only dependency is the chart of CRDs, which the CRD bundle installs first and by itself.
    chart.pop("dependencies", None)
    chart |= {"version": version, "appVersion": version}
    (target / "Chart.yaml").write_text(yaml.safe_dump(chart, sort_keys=True))


def fill_values(template: str, version: str, origin: str) -> str:
    """The gateway's values with its release's image and pull policy in place of `${...}`."""
    known = {"GatewayImage": f"docker.io/envoyproxy/gateway:{version}", "GatewayImagePullPolicy": "IfNotPresent"}
    if unknown := sorted(set(_PLACEHOLDER.findall(template)) - set(known)):
        raise LabError(
            f"part charts: {origin} asks for {', '.join(unknown)}; known are {', '.join(sorted(known))}",
            fix="give lab/install/charts.py a value for it before taking this version",
        )
    return _PLACEHOLDER.sub(lambda match: known[match.group(1)], template)
