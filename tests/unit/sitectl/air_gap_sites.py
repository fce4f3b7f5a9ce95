"""A site whose images get locked, with stand-ins for the programs that fetch, and the images that they have."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from sitectl.shell.errors import Exit
from tests.unit.bundle.stand_in_crane import StandInCrane
from tests.unit.bundle.stand_in_helm import StandInHelm
from tests.unit.sitectl.sites_to_work_on import edit, run

MIRROR = "mirror.example:5000"


def images_of(project: Path) -> list[str]:
    """Images of prod by name and tag, out of the list."""
    return [row["image"] for row in run(project, "bundle", "list", "prod", "--json").data["images"]]


# Images that only a rendering of prod's charts names, as NVIDIA's ClusterPolicy and as Cilium's manifest have them.
EXPORTER = {"repository": "nvcr.io/nvidia/k8s", "image": "dcgm-exporter", "version": "4.6.1-4.8.4-distroless"}
GPU_OPERATOR = {
    "devicePlugin": {"repository": "nvcr.io/nvidia", "image": "k8s-device-plugin", "version": "v0.20.1"},
    "dcgmExporter": EXPORTER,
    "driver": {"repository": "nvcr.io/nvidia", "image": "driver", "version": "595"},
    "args": ["--image=registry.k8s.io/nfd/node-feature-discovery:v0.19.0"],
}
CILIUM = "image: quay.io/cilium/cilium-envoy:v1.37.6\n"
RENDERED = (
    "nvcr.io/nvidia/k8s-device-plugin:v0.20.1",
    "nvcr.io/nvidia/k8s/dcgm-exporter:4.6.1-4.8.4-distroless",
    "registry.k8s.io/nfd/node-feature-discovery:v0.19.0",
    "quay.io/cilium/cilium-envoy:v1.37.6",
)


@pytest.fixture(autouse=True, scope="module")
def cilium_is_rendered() -> Iterator[None]:
    """Its manifest is pinned by digest, so no stand-in can give it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bundle.fetching.Sources.pod_network", lambda _: CILIUM)
        yield


def own_programs(folder: Path) -> tuple[str, ...]:
    """Options with the stand-ins of this folder."""
    helm = StandInHelm.in_folder(folder)
    helm.renders(yaml.safe_dump(GPU_OPERATOR))
    return ("--crane", str(folder / "crane"), "--helm", str(helm.program))


def programs(folder: Path) -> tuple[str, ...]:
    """The same, and the mirror that they play."""
    return ("--from", MIRROR, *own_programs(folder))


def known_images(project: Path) -> tuple[str, ...]:
    """Every image of prod with its tag, also where only a rendering has it."""
    return (*(image for image in images_of(project) if ":" in image.rpartition("/")[2]), *RENDERED)


def lock_all(project: Path, crane: StandInCrane) -> None:
    """A lock of every image of prod; each image's text is its name."""
    crane.has({f"{MIRROR}/{image.partition('/')[2]}": image for image in known_images(project)})
    result = run(project, "bundle", "lock", "prod", *programs(crane.program.parent))
    assert result.status == Exit.OK, result.err
    edit(project, "prod", images={"locked": True})


def stand_in_publishers(patch: pytest.MonkeyPatch) -> None:
    """For those that have no stand-in: a release's file is asked for by HTTPS, and definitions are pinned by digest."""
    patch.setattr("bundle.fetching.Sources._file", lambda *_: ("", "a release's file"))
    patch.setattr("bundle.fetching.Sources.definitions", lambda *_: "")
