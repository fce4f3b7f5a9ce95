"""Official Pulumi and plugins come first where they fit; the reason says why or why not."""

from __future__ import annotations

import importlib.metadata
import os
from pathlib import Path

import pytest

from lab.errors import LabError
from lab.install.choices import plugin_choice, pulumi_choice
from lab.paths import Lab

SDK = importlib.metadata.version("pulumi")


def _program(path: Path, says: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(home=tmp_path / "home", cache=tmp_path / "cache")


@pytest.mark.parametrize("version", [f"v{SDK}", "v3.999.0"])
def test_a_fitting_official_pulumi_is_preferred(lab: Lab, tmp_path: Path, version: str) -> None:
    program = _program(tmp_path / "bin" / "pulumi", version)
    _program(tmp_path / "bin" / "pulumi-language-python")
    choice = pulumi_choice(lab, {"PATH": f"/nowhere:{tmp_path / 'bin'}"})
    assert (choice.official, choice.program) == (True, program)
    assert "official" in choice.reason


@pytest.mark.parametrize(
    ("version", "host", "why"),
    [
        ("v3.100.0", True, "says 3.100.0, the SDK needs 3."),
        ("v4.0.0", True, "says 4.0.0"),
        ("nonsense", True, "says no version"),
        (f"v{SDK}", False, "has no pulumi-language-python beside it"),
    ],
)
def test_one_that_does_not_fit_is_passed_over_with_a_reason(
    lab: Lab, tmp_path: Path, version: str, host: bool, why: str
) -> None:
    _program(tmp_path / "bin" / "pulumi", version)
    if host:
        _program(tmp_path / "bin" / "pulumi-language-python")
    choice = pulumi_choice(lab, {"PATH": str(tmp_path / "bin")})
    assert not choice.official
    assert choice.program == lab.bin / "pulumi"
    assert why in choice.reason


def test_a_folder_of_path_that_this_user_cannot_enter_is_passed_over(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with root's PATH after `su`: doctor and env ended in a traceback. Root enters every folder, so it is acted."""

    def closed(_path: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr(Path, "is_file", closed)
    assert not pulumi_choice(lab, {"PATH": "/closed/bin"}).official


def test_the_one_that_we_built_is_not_official(lab: Lab, tmp_path: Path) -> None:
    built = _program(lab.cache / "tools" / "pulumi-abc" / "bin" / "pulumi", f"v{SDK}")
    _program(built.with_name("pulumi-language-python"))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("pulumi", "pulumi-language-python"):
        (elsewhere / name).symlink_to(built.with_name(name))
    choice = pulumi_choice(lab, {"PATH": f"{built.parent}:{elsewhere}"})
    assert not choice.official
    assert "no official pulumi on PATH" in choice.reason


@pytest.mark.parametrize("name", ["kubernetes", "command"])
def test_an_installed_official_plugin_is_preferred(tmp_path: Path, name: str) -> None:
    version = importlib.metadata.version(f"pulumi-{name}")
    environment = {"PULUMI_HOME": str(tmp_path)}
    before = plugin_choice(name, environment)
    assert before.kind == "stand-in"
    assert before.path.name == f"pulumi-resource-{name}"
    assert f"pulumi plugin install resource {name} v{version}" in before.reason
    official = _program(tmp_path / "plugins" / f"resource-{name}-v{version}" / f"pulumi-resource-{name}")
    after = plugin_choice(name, environment)
    assert (after.kind, after.path) == ("official", official)


def test_a_plugin_without_its_sdk_is_one_error() -> None:
    with pytest.raises(LabError, match="pulumi-nonesuch is not installed"):
        plugin_choice("nonesuch")
