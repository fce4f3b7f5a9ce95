"""Charts for a lab, which reaches no repository, under the names and versions that the program asks for.

KEDA's is written here: its own definitions and real programs, with names, labels, ports and arguments of its chart; its
accounts may do anything, which KEDA's may not. LeaderWorkerSet's is its own, of the release that the lab has built.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import yaml

from lab.install.building import module_folder
from lab.install.installer import Installation
from lab.install.parts import RELEASE_FILES, ModuleFolder
from lab.paths import CHECKOUT, Lab
from stacks.facts import versions

_TEMPLATES = Path(__file__).with_name("charts") / "keda" / "templates"
_CHARTS = CHECKOUT / ".lab" / "bundle" / "charts"
_GROUPS = ModuleFolder(family="leader-worker-set", module="sigs.k8s.io/lws", path="charts/lws")


@contextmanager
def keda_chart() -> Iterator[None]:
    """The chart is among the lab's own."""
    pinned = versions.load().charts["keda"].version
    files = {
        "Chart.yaml": yaml.safe_dump({"apiVersion": "v2", "name": "keda", "version": pinned, "appVersion": pinned}),
        "definitions.yaml": (_CHARTS / f"keda-{RELEASE_FILES['keda'].version}.yaml").read_text(),
        **{f"templates/{template.name}": template.read_text() for template in _TEMPLATES.iterdir()},
    }
    with _added("keda", pinned, files):
        yield


@contextmanager
def groups_chart(lab: Lab) -> Iterator[None]:
    """The same for LeaderWorkerSet's. Its image's tag is the program's, and the lab runs its one build for any."""
    folder, pinned = module_folder(Installation(lab, lab.bundle).builder, _GROUPS, "tests"), versions.load()
    version = pinned.charts["leader_worker_set"].version
    files = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}
    about = {**yaml.safe_load(files["Chart.yaml"]), "version": version}
    with _added("lws", version, {**files, "Chart.yaml": yaml.safe_dump(about)}):
        yield


@contextmanager
def _added(chart: str, version: str, files: Mapping[str, str]) -> Iterator[None]:
    target = _CHARTS / f"{chart}-{version}.tgz"
    assert not target.exists(), f"{target.name}: a stub would take the place of a chart"
    with tarfile.open(target, "w:gz") as archive:
        for name, text in sorted(files.items()):
            member = tarfile.TarInfo(f"{chart}/{name}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    try:
        yield
    finally:
        target.unlink()
