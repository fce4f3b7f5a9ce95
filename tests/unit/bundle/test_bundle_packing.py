"""A bundle's folder after a call that failed or was killed: the next one makes it whole, and nothing else is in it."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest

from bundle.boot_media import Kind
from bundle.crane import Crane
from bundle.definitions import definitions_file
from bundle.errors import BundleError
from bundle.fetching import PackedChart, Sources
from bundle.image_folder import ImageFolder
from bundle.inventory import read_inventory, spoiled
from bundle.locked_weights import HubMetadata
from bundle.packing import Packer
from bundle.schematics import FactoryImage
from bundle.supplies import BOOT, BUILT, CHARTS, Supplies
from components.addons.charts import Chart
from floor.images import image_reference
from lab.hub.server import EmulatedHubServer, Hub
from lab.machines.image_factory import FactoryContent, ImageFactoryServer
from stacks.facts import versions
from talos.factory.schematic import Schematic
from tests.unit.bundle.stand_in_crane import StandInCrane, digest_of, write_layout
from tests.unit.bundle.stand_in_helm import StandInHelm
from tests.unit.bundle.test_bundle_definitions import FIRST, LAST

pytestmark = pytest.mark.row("opening 14")

ASKED = httpx.Request("GET", "https://publisher.example")
IMAGE = "docker.io/vllm/vllm-openai:v0.32.0"
CHART = "longhorn-1.12.1.tgz"


@dataclass(frozen=True)
class OneChart(Sources):
    """Of a site that takes one chart, and has definitions of its own."""

    defined: bool = False

    def packed(self) -> Iterator[PackedChart]:
        yield PackedChart(CHART, Chart(chart="longhorn", version="1.12.1", repository="https://charts.example"))


@dataclass(frozen=True)
class Publishers:
    """Stand-ins for everyone, and the folder that a bundle goes to."""

    folder: Path
    hub: EmulatedHubServer
    supplies: Supplies

    @property
    def disk(self) -> Path:
        return self.folder / "disk"

    def pack(self, image_mirror: str | None = None, boot_media: Kind = "none") -> None:
        helm = StandInHelm.in_folder(self.folder)
        helm.has_charts(CHART)
        packer = self.packer(image_mirror, boot_media)
        packer.pack(self.supplies, [OneChart(versions=versions.load(), helm=helm.helm())], self.folder)

    def packer(self, image_mirror: str | None = None, boot_media: Kind = "none") -> Packer:
        return Packer(
            folder=self.disk,
            crane=Crane(str(self.folder / "crane")),
            image_mirror=image_mirror,
            chart_digests={},
            hub=self.hub.url,
            token="",
            programs=None,
            boot_media=boot_media,
            note=lambda _: None,
        )

    def problems(self) -> list[str]:
        return [*spoiled(self.disk, read_inventory(self.disk), self.supplies, {}, lambda _: None)]


@pytest.fixture
def publishers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Publishers]:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "client"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    server = EmulatedHubServer(Hub())
    crane = StandInCrane.in_folder(tmp_path)
    crane.has({IMAGE: "vllm"})
    metadata = HubMetadata(endpoint=server.url, note=lambda _: None)
    supplies = Supplies(
        sites=("berlin",),
        images=(image_reference(f"{IMAGE}@{digest_of('vllm')}"),),
        used_by={IMAGE: ["model chat"]},
        charts=(),
        packages=(),
        weights=tuple(metadata.manifest("Qwen/Qwen3-32B", digit * 40) for digit in "ab"),
    )
    publishers = Publishers(tmp_path, server, supplies)
    publishers.pack()
    yield publishers
    server.close()


def test_two_revisions_of_a_repository_are_packed(publishers: Publishers) -> None:
    assert read_inventory(publishers.disk).weights == tuple(f"Qwen/Qwen3-32B@{digit * 40}" for digit in "ab")
    assert publishers.problems() == []


def test_images_of_own_services_come_from_where_they_were_built(publishers: Publishers) -> None:
    """Out of a mirror where one has all images."""
    image = image_reference(f"ghcr.io/inference-platform/ledger:0.1.0@{digest_of('ledger')}")
    own = replace(publishers, supplies=replace(publishers.supplies, images=(image,), used_by={image.tagged: []}))
    with pytest.raises(BundleError, match=r"is not in .*\.bundle/images as locked; got missing") as error:
        own.pack()
    assert error.value.problem.fix.startswith("sitectl bundle services")
    write_layout(ImageFolder(own.folder / BUILT).of(image), "ledger")
    own.pack()
    assert own.problems() == []
    assert not [call for call in StandInCrane(own.folder / "crane").asked("pull") if "ledger" in call[-2]]
    StandInCrane(own.folder / "crane").has({"mirror.example/inference-platform/ledger:0.1.0": "ledger"})
    shutil.rmtree(own.disk / "images")
    own.pack("mirror.example")
    assert own.problems() == []


@pytest.mark.parametrize("name", ["config.json", "model-00001-of-*.safetensors"])
@pytest.mark.parametrize("spoil", [True, False])
def test_spoiled_weights_are_brought_again_alone(publishers: Publishers, name: str, *, spoil: bool) -> None:
    """Also where the size is right, which a marker alone does not show."""
    victim = next(publishers.disk.glob(f"weights/*/*/revisions/{'b' * 40}/{name}"))
    kept = victim.read_bytes()
    if spoil:
        victim.write_bytes(bytes([kept[0] ^ 1]) + kept[1:])
    else:
        victim.unlink()
    asked = publishers.hub.hub.requests
    asked.clear()
    publishers.pack()
    assert victim.read_bytes() == kept
    assert {path for path, _ in asked} == {victim.name}
    assert publishers.problems() == []


@pytest.mark.parametrize("networked", [True, False])
def test_definitions_and_pod_network_that_are_not_as_pinned_are_not_packed(
    publishers: Publishers, monkeypatch: pytest.MonkeyPatch, *, networked: bool
) -> None:
    monkeypatch.setattr("bundle.fetching.httpx.get", lambda *_, **__: httpx.Response(200, text=FIRST, request=ASKED))
    pinned = hashlib.sha256(definitions_file(FIRST, "").encode()).hexdigest()
    pins = versions.load().model_copy(update={"crds": dict.fromkeys(versions.load().crds, pinned)})
    helm = StandInHelm.in_folder(publishers.folder)
    sources = Sources(versions=pins, helm=helm.helm(), networked=networked)
    helm.has_charts(*(packed.file for packed in sources.packed() if packed.chart))
    for text, says in ((LAST, " out of .* is not the pinned one"), (FIRST, "the manifest of Cilium|Cilium .*: ")):
        helm.renders(text)
        if text is LAST or networked:
            with pytest.raises(BundleError, match=says):
                publishers.packer().pack(publishers.supplies, [sources], publishers.folder)
            with pytest.raises(BundleError, match="so it is no bundle"):
                read_inventory(publishers.disk)
    if not networked:
        publishers.packer().pack(publishers.supplies, [sources], publishers.folder)
        assert publishers.problems() == []
    rendered = [call for call in helm.asked() if call[0] == "template"]
    assert {str(Path(call[2]).parent) for call in rendered} == {str(publishers.disk / CHARTS)}


def test_what_a_killed_call_left_is_removed_and_not_listed(publishers: Publishers) -> None:
    place = publishers.disk / "images" / "docker.io" / "vllm" / "vllm-openai"
    for folder in (publishers.disk, publishers.disk / CHARTS, publishers.disk / BOOT, place):
        (folder / ".pulled-x1" / "layout").mkdir(parents=True)
        (folder / ".pulled-x1" / "half").write_text("half")
    (publishers.disk / CHARTS / "longhorn-1.11.0.tgz").write_text("of an earlier pin")
    publishers.pack()
    assert [*publishers.disk.rglob(".pulled-*")] == []
    assert [*read_inventory(publishers.disk).charts] == [CHART]
    assert publishers.problems() == []


def test_schematics_of_missing_installers_are_posted_first_but_not_with_a_mirror(publishers: Publishers) -> None:
    installer = replace(publishers.supplies.images[0], registry="factory.example", path="metal-installer/a")
    schematic = Schematic(extensions=("siderolabs/iscsi-tools",))
    server = ImageFactoryServer(FactoryContent())
    try:
        image = FactoryImage(
            factory=server.url, schematic=schematic, talos="v1.13.9", nvswitch=False, installer=installer
        )
        supplies = replace(publishers.supplies, images=(installer,), factory_images=(image,))
        both = replace(publishers, supplies=supplies)
        # Neither has the installer yet.
        with pytest.raises(BundleError, match=r"crane cannot pull mirror\.example"):
            both.pack("mirror.example")
        assert schematic.id not in server.content.schematics
        StandInCrane(both.folder / "crane").has({installer.tagged: "vllm"})
        both.pack()
        assert server.content.schematics.pop(schematic.id)
        both.pack()
        assert schematic.id not in server.content.schematics
        # Boot media are in no registry.
        StandInCrane(both.folder / "crane").has({installer.held_by("mirror.example").tagged: "vllm"})
        both.pack("mirror.example", "iso")
        assert [*read_inventory(both.disk).boot_media] == [f"{schematic.id}/v1.13.9/metal-amd64.iso"]
        assert both.problems() == []
    finally:
        server.close()


def test_images_that_share_a_path_are_refused_before_anything_is_written(publishers: Publishers) -> None:
    inventory = read_inventory(publishers.disk)
    other = image_reference(f"quay.io/vllm/vllm-openai:v0.32.0@{digest_of('other')}")
    sharing = replace(publishers, supplies=replace(publishers.supplies, images=(*publishers.supplies.images, other)))
    with pytest.raises(BundleError, match=r"share theirs: docker\.io/vllm/vllm-openai"):
        sharing.pack()
    assert read_inventory(publishers.disk) == inventory
