"""Parts of the platform go from an earlier version to the pinned one, a step at a time, while requests arrive.

The programs of both versions are real. Envoy alone is one program under two tags.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import yaml

from bundle.fetching import Sources, write_crds
from bundle.helm import Helm
from lab import session
from lab.install import earlier
from lab.paths import EARLIER, SITE_FILE, Lab
from stacks.facts import versions
from tests.lab.groups import group_of
from tests.lab.site.conftest import Platforms
from tests.lab.site.earlier_pins import PINS, pins_before, text_before
from tests.lab.site.measured import MONITORING, Prometheus
from tests.lab.site.project_copies import copy_project
from tests.lab.site.replicas import Cluster
from tests.lab.site.running_site import Site
from tests.lab.site.stack_changes import KEY, make_room
from tests.lab.site.test_upgrade_path import CONTROLLERS, record
from tests.lab.site.under_load import Load
from tests.lab.waiting import eventually

pytestmark = [pytest.mark.exhaustive, pytest.mark.row("opening 7")]

MODEL = "qwen3-32b"
STREAM_TOKENS = 150


@dataclass(kw_only=True)
class Walk:
    """A site some of whose parts are at earlier versions."""

    lab: Lab
    folder: Path
    left: list[str] = field(default_factory=lambda: list(PINS))
    """Parts that have yet to go."""
    began: float = field(default_factory=time.time)

    @property
    def file(self) -> Path:
        return self.folder / SITE_FILE.name

    @property
    def mirror(self) -> Path:
        return self.folder / "charts"

    def write(self) -> None:
        """The site's file, and a mirror with the charts of all versions."""
        for charts in (self.lab.bundle / "charts", earlier.mirror(self.lab)):
            shutil.copytree(charts, self.mirror, dirs_exist_ok=True)
        document = yaml.safe_load(session.stack_file(self.lab).read_text())
        make_room(self.lab, document["config"][KEY], MODEL)
        document["config"][KEY]["charts"]["mirror"] = str(self.mirror)
        document["config"][KEY]["crds"]["folder"] = ".bundle/crds"
        self.file.write_text(yaml.safe_dump(document, sort_keys=False))

    def project(self) -> Path:
        """The program with the pins of now."""
        folder = self.folder / f"{len(self.left)}-left"
        if not folder.exists():
            copy_project(folder, "stacks")
            (folder / "stacks" / "facts" / versions.FILE.name).write_text(text_before(self.left))
            sources = Sources(
                versions=pins_before(self.left),
                helm=Helm(str(self.lab.bin / "helm"), self.folder),
                mirror=str(self.mirror),
                parts=versions.load().optional_parts,
            )
            write_crds(sources, folder / ".bundle" / "crds", lambda _: None)
        return folder

    def up(self, *options: str) -> None:
        words = ("up", "--yes", "--skip-preview", "--stack", session.STACK, "--config-file", str(self.file))
        session.run_pulumi(self.lab, *words, *options, project=self.project())


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Walk:
    lab = replace(Lab.from_environment(), site_file=SITE_FILE)
    begun = Walk(lab=lab, folder=tmp_path_factory.mktemp("walk"))
    begun.write()
    return begun


@pytest.fixture(scope="module")
def site(walk: Walk, platforms: Platforms, request: pytest.FixtureRequest) -> Site:
    """The platform with all earlier versions, proven to answer."""
    return platforms.of(group_of(request.node.path), "--config-file", str(walk.file), project=walk.project())


def earlier_programs(cluster: Cluster, lab: Lab) -> set[str]:
    """Names of the programs of earlier versions that run, by their very files."""
    files = {file.stat().st_ino: file.name for file in (lab.bin / EARLIER).iterdir()}
    pods = [pod for namespace in (MONITORING, CONTROLLERS) for pod in cluster.pods(namespace, "")]
    run = {Path(f"/proc/{pid}/exe").stat().st_ino for pod in pods for pid in cluster.all_processes(pod)}
    return {files[inode] for inode in run & files.keys()}


def test_the_path_leads_over_each_part_that_is_behind(site: Site, cluster: Cluster, walk: Walk) -> None:
    all_of_them = {
        "alertmanager-v0.30.0",
        "envoy-gateway-v1.9.0",
        "kube-state-metrics-v2.16.0",
        "prometheus-config-reloader-v0.84.0",
        "prometheus-operator-v0.84.0",
        "prometheus-v3.11.0",
    }
    eventually(lambda: earlier_programs(cluster, site.lab) == all_of_them)
    assert [step["parts"] for step in record(site)["steps"]] == [[part] for part in walk.left]


@pytest.mark.parametrize("part", PINS)
def test_a_step_is_made_without_a_failed_request(site: Site, walk: Walk, part: str) -> None:
    """As `upgrade-path` asks for it: one change of versions.yaml, and one `pulumi up`."""
    walk.left.remove(part)
    load = Load(model=MODEL, stream_tokens=STREAM_TOKENS)
    asyncio.run(load.during(site, walk.up))
    assert not load.failures(), (load.failures(), len(load.short), len(load.streams))
    assert len(load.streams) > 3
    # A new operator starts its pods again after `up`, and what is starting states no version.
    eventually(lambda: [step["parts"] for step in record(site)["steps"]] == [[other] for other in walk.left])


def test_no_earlier_program_is_left_and_nothing_to_do(site: Site, cluster: Cluster, walk: Walk) -> None:
    # Beside an Envoy that drains runs its manager.
    eventually(lambda: not earlier_programs(cluster, site.lab))
    walk.up("--expect-no-changes")


def test_what_was_measured_before_is_kept(cluster: Cluster, walk: Walk) -> None:
    """The volume goes from one Prometheus to the next."""
    since = Prometheus(cluster).first("min_over_time(timestamp(up)[1h:15s])")
    assert min(float(sample["value"][1]) for sample in since) < walk.began + 600
