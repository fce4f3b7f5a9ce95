"""The chart bundle: the gateways' Helm charts out of the pinned modules, filled in as their releases are."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import yaml

from lab.errors import LabError
from lab.install.parts import CHART_SOURCES

REVISION = "charts-1"

_KEPT = ("Chart.yaml", "values.yaml", "values.schema.json", "templates")
_PLACEHOLDER = re.compile(r"\$\{(\w+)\}")


def write_charts(sources: Mapping[str, Path], folder: Path) -> None:
    """Write one chart folder a source; raises LabError when a template asks for a value that is not known here."""
    for name, source in sorted(sources.items()):
        _write_chart(source, folder / name, CHART_SOURCES[name].version)


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
    return _PLACEHOLDER.sub(lambda found: known[found.group(1)], template)
