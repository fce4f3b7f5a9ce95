"""Installers of machines in a lock: the image factory gets to know their schematics before it is asked for them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from lab.machines.image_factory import FactoryContent, ImageFactoryServer
from sitectl.shell.errors import Exit
from stacks.plan.site_plan import plan_file
from stacks.site.loader import KEY
from tests.unit.bundle.stand_in_crane import StandInCrane
from tests.unit.sitectl.air_gap_sites import MIRROR, cilium_is_rendered, known_images, own_programs, programs
from tests.unit.sitectl.sites_to_work_on import ROOT, make_checkout, run

__all__ = ["cilium_is_rendered"]

pytestmark = [pytest.mark.row("opening 14"), pytest.mark.processes]


@pytest.fixture
def factory() -> Iterator[ImageFactoryServer]:
    server = ImageFactoryServer(FactoryContent())
    yield server
    server.close()


@pytest.fixture
def project(tmp_path: Path, factory: ImageFactoryServer) -> Path:
    """prod with an image factory that answers, and registries that have its images: `crane` beside it."""
    folder = make_checkout(tmp_path / "own", sites=("prod",), accounts=False)
    file = folder / "Pulumi.prod.yaml"
    document = yaml.safe_load(file.read_text())
    document["config"][KEY]["cluster"]["machines"]["image_factory"] = factory.url
    file.write_text(yaml.safe_dump(document))
    StandInCrane.in_folder(tmp_path).has({image: image for image in known_images(folder)})
    return folder


def schematics_of(project: Path) -> set[str]:
    machines = plan_file(project / "Pulumi.prod.yaml", without={"images"}).machines
    return {node.schematic.id for node in machines.nodes} if machines else set()


def test_lock_makes_the_factory_know_each_schematic_whose_installer_is_new(
    project: Path, factory: ImageFactoryServer
) -> None:
    nothing = set(factory.content.schematics)
    assert run(project, "bundle", "lock", "prod", *programs(project.parent)).status != Exit.OK
    assert set(factory.content.schematics) == nothing, "the registry of --from has the installers"
    locked = run(project, "bundle", "lock", "prod", *own_programs(project.parent))
    assert locked.status == Exit.OK, locked.err
    wanted = schematics_of(project)
    assert len(wanted) == 2
    assert set(factory.content.schematics) == nothing | wanted
    assert {schematic for schematic in wanted if f"schematic {schematic[:12]}... for Talos" in locked.err} == wanted
    assert "not asked" not in locked.out
    factory.close()
    again = run(project, "bundle", "lock", "prod", *own_programs(project.parent))
    assert (again.status, again.out.split(",")[0]) == (Exit.OK, "images.lock: as before")


@pytest.mark.exhaustive
def test_with_a_registry_of_installers_the_output_has_the_commands_that_the_factory_lacks(
    project: Path, factory: ImageFactoryServer
) -> None:
    before = set(factory.content.schematics)
    StandInCrane.in_folder(project.parent).has(
        {f"{MIRROR}/{image.partition('/')[2]}": image for image in known_images(project)}
    )
    locked = run(project, "bundle", "lock", "prod", *programs(project.parent))
    assert locked.status == Exit.OK, locked.err
    assert set(factory.content.schematics) == before
    assert f"not asked: {factory.url}, which boots prod/" in locked.out
    commands = [line.strip() for line in locked.out.splitlines() if line.startswith("  echo ")]
    for command in commands:
        subprocess.run(["bash", "-ec", f'python() {{ {sys.executable} "$@"; }}; {command}'], cwd=ROOT, check=True)
    assert set(factory.content.schematics) == before | schematics_of(project)
    assert len(commands) == len(schematics_of(project))
    assert "not asked" not in run(project, "bundle", "lock", "prod", *programs(project.parent)).out


@pytest.mark.exhaustive
def test_what_a_factory_was_not_asked_for_is_in_the_data_with_its_machines(
    project: Path, factory: ImageFactoryServer
) -> None:
    StandInCrane.in_folder(project.parent).has(
        {f"{MIRROR}/{image.partition('/')[2]}": image for image in known_images(project)}
    )
    record = run(project, "bundle", "lock", "prod", *programs(project.parent), "--json").data["factories_not_asked"]
    assert {entry["schematic"] for entry in record} == schematics_of(project)
    assert {entry["factory"] for entry in record} == {factory.url}
    plan = plan_file(project / "Pulumi.prod.yaml", without={"images"})
    assert plan.machines
    assert {name for entry in record for name in entry["machines"]} == {
        f"prod/{node.name}" for node in plan.machines.nodes
    }


def test_extensions_that_the_factory_lacks_lock_nothing(project: Path, factory: ImageFactoryServer) -> None:
    factory.content.tags["siderolabs/nvidia-fabricmanager-lts"] = "1.2.3"
    refused = run(project, "bundle", "lock", "prod", *own_programs(project.parent))
    assert refused.status != Exit.OK
    assert "siderolabs/nvidia-fabricmanager-lts is for driver 1.2.3" in refused.err
    assert not (project / "images.lock").exists()
