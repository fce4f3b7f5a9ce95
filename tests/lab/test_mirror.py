"""Images of the lab in a real registry, and the pod runner's pulls out of it, without a lab."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.free_ports import free_address
from lab.machines.image_factory import VERSIONS, FactoryContent, ImageFactoryServer
from lab.machines.images import Mirrors, Puller
from lab.paths import Lab
from lab.registry import made_images, serving
from lab.runner.images import TABLE
from lab.runner.lifecycle import PullError
from lab.runner.pulling import Mirror, PulledImage
from talos.api.errors import RpcError

REPOSITORY = "registry.k8s.io/kubectl"
IMAGE = f"{REPOSITORY}:v1.36.3"
PROGRAM = TABLE[REPOSITORY]


@pytest.fixture
def address() -> str:
    return free_address()


@pytest.fixture
def registry(lab_of_tools: Lab, address: str, tmp_path: Path) -> Iterator[Path]:
    """A registry with one image, which has been restarted since; its folder."""
    program, folder = lab_of_tools.bin / "registry", tmp_path / "registry"
    with serving.running(program, address, folder):
        made_images.push_all([IMAGE], address, tools=lab_of_tools.bin)
    with serving.running(program, address, folder):
        yield folder


def pulled(lab: Lab, address: str, reference: str) -> PulledImage:
    mirror = Mirror(address=address, crane=lab.bin / "crane", store=lab.images, tools=lab.bin)
    return asyncio.run(mirror.image(reference, PROGRAM))


def spoil(registry: Path) -> None:
    """Another byte in the middle of the largest blob."""
    largest = max(registry.rglob("data"), key=lambda file: file.stat().st_size)
    data = bytearray(largest.read_bytes())
    data[len(data) // 2] ^= 1
    largest.write_bytes(data)


def test_what_runs_is_the_program_of_the_image(lab_of_tools: Lab, registry: Path, address: str) -> None:
    image = pulled(lab_of_tools, address, IMAGE)
    ((program, target),) = image.files.binds
    assert program.is_relative_to(lab_of_tools.images)
    assert program.read_bytes() == (lab_of_tools.bin / "kubectl").read_bytes()
    assert target == PROGRAM.path
    repository, digest = image.id.split("@")
    assert repository == REPOSITORY
    # By its digest, whatever the tag beside it.
    assert pulled(lab_of_tools, address, f"{REPOSITORY}:another@{digest}") == image


def test_what_is_pulled_needs_the_registry_no_more(lab_of_tools: Lab, address: str, tmp_path: Path) -> None:
    with serving.running(lab_of_tools.bin / "registry", address, tmp_path / "registry"):
        made_images.push_all([IMAGE], address, tools=lab_of_tools.bin)
        image = pulled(lab_of_tools, address, IMAGE)
    assert pulled(lab_of_tools, address, IMAGE) == image


def test_an_image_that_the_mirror_does_not_have_is_named_with_its_answer(
    lab_of_tools: Lab, registry: Path, address: str
) -> None:
    digest = f"sha256:{'0' * 64}"
    for reference in (f"{REPOSITORY}:v0", f"{REPOSITORY}@{digest}", "docker.io/another/kubectl:v1"):
        with pytest.raises(PullError, match=f'failed to pull image "{reference}": .*(MANIFEST|NAME)_UNKNOWN'):
            pulled(lab_of_tools, address, reference)


def test_a_spoiled_blob_is_not_run(lab_of_tools: Lab, registry: Path, address: str) -> None:
    spoil(registry)
    with pytest.raises(PullError, match=f'failed to pull image "{IMAGE}": .*sha256'):
        pulled(lab_of_tools, address, IMAGE)
    assert not [path for path in lab_of_tools.images.iterdir() if path.is_dir()]


def test_an_installer_of_the_factory_is_copied_as_any_image(lab_of_tools: Lab, address: str, tmp_path: Path) -> None:
    factory = ImageFactoryServer(FactoryContent())
    schematic, _ = factory.content.add(b"customization: {}\n")
    installer = f"metal-installer/{schematic}:{VERSIONS[-1]}"
    crane = lab_of_tools.bin / "crane"
    machine = Puller(networks=(), hosts={})
    try:
        with serving.running(lab_of_tools.bin / "registry", address, tmp_path / "registry"):
            subprocess.run([crane, "copy", f"{factory.registry}/{installer}", f"{address}/{installer}"], check=True)
            mirrors = {"*": Mirrors(urls=(f"http://{address}",), skip_fallback=True)}
            image = machine.pull(f"{factory.registry}/{installer}", mirrors)
        assert image == machine.pull(f"{factory.registry}/{installer}", {})
        # The factory has it still, and is not asked.
        with pytest.raises(RpcError, match="error pulling image"):
            machine.pull(f"{factory.registry}/{installer}", mirrors)
    finally:
        factory.close()
    assert image.system.schematic == schematic
