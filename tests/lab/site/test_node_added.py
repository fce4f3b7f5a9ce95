"""A node more by an edit of the site's file, whose machine dies half-way through its install."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes import client

from lab import deploy, session
from lab.cluster.parts import name_of, present, status_of
from lab.machines import lab_rack
from lab.machines.admin import ask
from lab.paths import Lab
from tests.lab.site.project_copies import copy_project
from tests.lab.site.pulumi_runs import Document, Pulumi
from tests.lab.site.running_site import Site
from tests.lab.waiting import eventually

pytestmark = [pytest.mark.exhaustive, pytest.mark.row("opening 4")]

NODE, ORDINAL = "hgx-5", 5
GPUS = 8
_UP = ("up", "--yes", "--skip-preview")
_IMPATIENT = """\
import pulumi

from components.machines.machine_commands import Limits
from stacks.program.engine_config import plan_stack
from stacks.program.platform import declare_platform

declare_platform(plan_stack(pulumi.get_stack()), Limits(install_s=15))
"""


@pytest.fixture
def pulumi(site: Site, tmp_path: Path) -> Iterator[Pulumi]:
    """Afterwards the site is again what its checked-in file says, and the machine in maintenance mode."""
    made = Pulumi(site.lab, tmp_path)
    yield made
    tell(site.lab, "clear")
    tell(site.lab, "on")
    made(*_UP)
    eventually(lambda: tell(site.lab, "show") == "maintenance")


@pytest.fixture
def impatient(tmp_path: Path) -> Path:
    """The project with a program that waits for an install for seconds instead of minutes."""
    project = copy_project(tmp_path / "project")
    (project / "__main__.py").write_text(_IMPATIENT)
    return project


def tell(lab: Lab, action: str, **more: object) -> str:
    """Tell the machine something; the stage that it is in then."""
    (shown,) = ask(lab_rack.folder(lab), {"machine": NODE, "action": action, **more})
    return str(shown["stage"])


def gpus(site: Site) -> dict[str, int]:
    """GPUs that Kubernetes may give out, by node."""
    with site.kubernetes() as connection:
        nodes = client.CoreV1Api(connection).list_node().items
    return {name_of(node): int(present(status_of(node).allocatable).get("nvidia.com/gpu", 0)) for node in nodes}


def test_a_machine_that_dies_while_it_is_added_is_named_and_added_by_the_next_up(
    site: Site, pulumi: Pulumi, impatient: Path
) -> None:
    def with_node(document: Document) -> None:
        address = str(site.lab.network.node_address(ORDINAL))
        document["cluster"]["machines"]["nodes"][NODE] = {"role": "hgx", "address": address}

    options = pulumi.edited(with_node)
    before = gpus(site)
    shown = pulumi("preview", *options)
    output = shown.stdout + shown.stderr
    assert f"{NODE}: the machine is in maintenance mode: Talos v1.13.9 is INSTALLED on its disk" in output
    for node in before:
        assert f"{node}: nothing changes on the machine" in output

    tell(site.lab, "fault", fault={"kind": "die", "at": "install"})
    failed = session.run_pulumi(site.lab, *_UP, "--stack", session.STACK, *options, project=impatient, check=False)
    assert failed.returncode != 0
    assert f"{NODE}: waited 15 s to install and boot" in failed.stdout + failed.stderr
    assert gpus(site) == before
    for model in site.front.models:
        deploy.ask(site.front, model=model)

    tell(site.lab, "clear")
    tell(site.lab, "on")
    pulumi(*_UP, *options)
    assert gpus(site) == before | {NODE: GPUS}
    pulumi("preview", "--expect-no-changes", *options)
