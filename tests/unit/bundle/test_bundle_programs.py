"""Programs of a bundle: those of this machine, whole, with the plugins that the locked packages go with."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from importlib.metadata import distributions
from pathlib import Path

import pytest

from bundle.carried_programs import OwnPrograms
from bundle.errors import BundleError
from bundle.plugins import Plugin, plugins_of
from bundle.wheels import locked_packages
from floor.digests import sha256_of
from tests.unit.bundle.stand_in_crane import StandInCrane
from tests.unit.bundle.stand_in_helm import StandInHelm
from tests.unit.bundle.stand_in_pulumi import VERSION, StandInPulumi

pytestmark = pytest.mark.row("opening 14")

ROOT = Path(__file__).parents[3]
KUBERNETES, COMMAND = Plugin("kubernetes", "4.34.2"), Plugin("command", "1.2.1")


@pytest.fixture
def pulumi(tmp_path: Path) -> StandInPulumi:
    made = StandInPulumi.in_folder(tmp_path)
    made.has([KUBERNETES, COMMAND])
    return made


def own(pulumi: StandInPulumi) -> OwnPrograms:
    folder = pulumi.program.parent
    helm, crane = StandInHelm.in_folder(folder).program, StandInCrane.in_folder(folder).program
    return OwnPrograms(pulumi=str(pulumi.program), helm=str(helm), crane=str(crane), plugins=pulumi.home / "plugins")


def bring(programs: OwnPrograms, folder: Path) -> dict[str, str]:
    """Version of each; its files are there with their digests, and nothing else is."""
    brought = programs.bring([KUBERNETES, COMMAND], folder, lambda _: None)
    files = {path: digest for program in brought.values() for path, digest in program.files.items()}
    assert {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()} == files.keys()
    assert files == {path: sha256_of(folder / path) for path in files}
    return {name: program.version for name, program in brought.items()}


def test_plugins_are_those_that_the_installed_packages_name() -> None:
    """Each package of a provider has a file that names its plugin."""
    named = [
        json.loads(Path(str(file.locate())).read_text())
        for distribution in distributions()
        for file in distribution.files or ()
        if file.name == "pulumi-plugin.json" and distribution.name.startswith("pulumi")
    ]
    assert [*plugins_of(locked_packages(ROOT))] == sorted(Plugin(plugin["name"], plugin["version"]) for plugin in named)
    assert [plugin.name for plugin in plugins_of(locked_packages(ROOT))] == ["command", "kubernetes"]


def test_programs_are_copied_as_they_run_here(pulumi: StandInPulumi, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    versions = {"pulumi": VERSION, "helm": "v4.3.1", "crane": "v0.22.1"}
    plugins = {"resource-kubernetes": "v4.34.2", "resource-command": "v1.2.1"}
    assert bring(own(pulumi), disk) == versions | plugins
    for path in (
        "bin/pulumi",
        "bin/pulumi-language-python",
        "bin/pulumi-language-python-exec",
        "bin/helm",
        "bin/crane",
        "plugins/resource-kubernetes-v4.34.2/pulumi-resource-kubernetes",
        "plugins/resource-command-v1.2.1/LICENSE",
    ):
        assert (disk / path).is_file(), path
        assert path.endswith("LICENSE") or os.access(disk / path, os.X_OK)


def test_what_an_earlier_call_brought_and_is_not_needed_goes(pulumi: StandInPulumi, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    old = disk / "plugins" / "resource-kubernetes-v4.30.0" / "pulumi-resource-kubernetes"
    old.parent.mkdir(parents=True)
    old.write_text("an earlier version")
    (pulumi.home / "plugins" / KUBERNETES.folder / ".lock").write_text("of pulumi")
    bring(own(pulumi), disk)
    assert not old.exists()
    # A machine that runs what a bundle has may pack again into the same one.
    programs = {name: str(disk / "bin" / name) for name in ("pulumi", "helm")}
    bring(replace(own(pulumi), plugins=disk / "plugins", **programs), disk)
    assert {path.name for path in tmp_path.glob(".*")} == set()


def test_everything_that_is_not_here_is_one_error_and_nothing_is_written(pulumi: StandInPulumi, tmp_path: Path) -> None:
    programs = own(pulumi)
    Path(programs.crane).unlink()
    (pulumi.program.resolve().parent / "pulumi-language-python").unlink()
    (pulumi.home / "plugins" / COMMAND.folder / COMMAND.program).chmod(0o644)
    with pytest.raises(BundleError, match="programs of the bundle are not on this machine") as error:
        programs.bring([KUBERNETES, COMMAND], tmp_path / "disk", lambda _: None)
    for part in ("no crane", "no pulumi-language-python beside pulumi", "no resource-command 1.2.1"):
        assert part in error.value.problem.what
    assert "pulumi plugin install resource command v1.2.1" in error.value.problem.fix
    assert "--without-programs" in error.value.problem.fix
    assert "kubernetes" not in error.value.problem.what + error.value.problem.fix
    assert not (tmp_path / "disk").exists()


def test_a_program_that_states_no_version_is_an_error(pulumi: StandInPulumi, tmp_path: Path) -> None:
    for text, wrong in (("", "pulumi states no version"), ("a/b", "a version or file name that is none")):
        pulumi.program.resolve().write_text(f"#!/bin/sh\necho {text}\n")
        with pytest.raises(BundleError, match=wrong):
            own(pulumi).bring([KUBERNETES], tmp_path / "disk", lambda _: None)
