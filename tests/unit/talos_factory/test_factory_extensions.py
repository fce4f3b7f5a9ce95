"""NVIDIA's packages must exist for the Talos version, be one fork, and have one driver version."""

from __future__ import annotations

import json

import pytest

from talos.factory.extensions import Extension, ExtensionError, check_extensions, parse_extensions
from talos.factory.schematic import FactoryError, Schematic

pytestmark = pytest.mark.row("000.12")

TAGS = {
    "iscsi-tools": "v0.2.0",
    "util-linux-tools": "2.42.2",
    "nvidia-open-gpu-kernel-modules-lts": "580.178.04-v1.13.9",
    "nvidia-open-gpu-kernel-modules-production": "595.91.07-v1.13.9",
    "nonfree-kmod-nvidia-lts": "580.178.04-v1.13.9",
    "nvidia-container-toolkit-lts": "580.178.04-v1.19.1",
    "nvidia-container-toolkit-production": "595.91.07-v1.19.1",
    "nvidia-fabricmanager-lts": "580.178.04",
    "nvidia-fabricmanager-production": "595.91.07",
}
STACK = ("nvidia-open-gpu-kernel-modules-lts", "nvidia-container-toolkit-lts", "nvidia-fabricmanager-lts")


def official(changed: dict[str, str]) -> list[Extension]:
    tags = {**TAGS, **changed}
    return [Extension(f"siderolabs/{name}", f"ghcr.io/siderolabs/{name}:{tag}") for name, tag in tags.items()]


def problems(*names: str, nvswitch: bool = True, changed: dict[str, str] | None = None) -> str:
    schematic = Schematic(extensions=tuple(f"siderolabs/{name}" for name in names))
    try:
        check_extensions(schematic, official(changed or {}), talos_version="v1.13.9", nvswitch=nvswitch)
    except ExtensionError as error:
        assert "v1.13.9" in str(error)
        return "\n".join(error.problems)
    return ""


def test_one_stack_of_one_fork_passes() -> None:
    assert problems(*STACK, "iscsi-tools") == ""
    assert problems("nonfree-kmod-nvidia-lts", *STACK[1:]) == ""


def test_machines_without_gpus_need_no_stack() -> None:
    assert problems("iscsi-tools", nvswitch=False) == ""


def test_an_unknown_extension_names_the_nearest() -> None:
    assert "did you mean siderolabs/iscsi-tools?" in problems("iscsi-tool", nvswitch=False)


def test_an_hgx_machine_without_fabric_manager_is_refused() -> None:
    assert "add siderolabs/nvidia-fabricmanager-lts" in problems(*STACK[:2])
    assert problems(*STACK[:2], nvswitch=False) == ""


def test_an_hgx_machine_without_any_stack_is_refused() -> None:
    assert "no NVIDIA kernel modules" in problems("iscsi-tools")


def test_forks_must_not_be_mixed() -> None:
    problem_text = problems(*STACK[:2], "nvidia-fabricmanager-production")
    assert "take siderolabs/nvidia-fabricmanager-lts" in problem_text


@pytest.mark.parametrize("part", ["nvidia-fabricmanager-lts", "nvidia-container-toolkit-lts"])
def test_driver_versions_must_be_one(part: str) -> None:
    problem_text = problems(*STACK, changed={part: "580.179.01-v1"})
    assert "is for driver 580.179.01" in problem_text
    assert "is driver 580.178.04" in problem_text


def test_two_sets_of_kernel_modules_are_refused() -> None:
    assert "more than one set" in problems(*STACK, "nonfree-kmod-nvidia-lts")


def test_all_mistakes_are_named_at_once() -> None:
    problem_text = problems("iscsi-tool", *STACK[:2], "nvidia-fabricmanager-production")
    assert len(problem_text.splitlines()) == 2


def test_a_saved_list_is_as_good_as_a_fresh_one() -> None:
    text = json.dumps([{"name": "siderolabs/a", "ref": "r/a:v1", "digest": "sha256:0", "author": "x"}])
    assert parse_extensions(text, source="saved.json") == (Extension("siderolabs/a", "r/a:v1", "sha256:0"),)


@pytest.mark.parametrize("text", ["", "{}", "[]", '["x"]', '[{"name": 1}]', "<html>"])
def test_anything_else_is_no_list(text: str) -> None:
    with pytest.raises(FactoryError, match=r"saved\.json"):
        parse_extensions(text, source="saved.json")
