"""What a bundle holds, as its inventory states it: read strictly, and compared with the locks of the project."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bundle.errors import BundleError
from bundle.fetching import PackedChart
from bundle.inventory import FILE, Inventory, PackedProgram, missing, read_inventory, spoiled
from bundle.schematics import FactoryImage
from bundle.supplies import BOOT, CHARTS, PROGRAMS, WHEELS, Supplies, weights_folder
from bundle.wheels import Package
from floor.digests import sha256_of
from floor.images import image_reference
from services.weights.manifest import Entry, Manifest
from talos.factory.schematic import Schematic

pytestmark = pytest.mark.row("opening 14")

IMAGE = f"docker.io/vllm/vllm-openai:v0.32.0@sha256:{'1' * 64}"
CHART = "longhorn-1.12.1.tgz"
QWEN = "Qwen/Qwen3-32B"
SCHEMATIC = Schematic(extensions=("siderolabs/iscsi-tools",))
INSTALLER = image_reference(f"factory.example/metal-installer/{SCHEMATIC.id}:v1.13.9")
BUILT = FactoryImage(
    factory="https://factory.example", schematic=SCHEMATIC, talos="v1.13.9", nvswitch=False, installer=INSTALLER
)
REVISIONS = ("a" * 40, "b" * 40)
WHOLE = Inventory(
    sites=("berlin",),
    images=(IMAGE,),
    charts={CHART: "3" * 64},
    packages={"tiny": "1.0", "pulumi-kubernetes": "4.34.2"},
    programs={
        "pulumi": PackedProgram(version="v3.246.0", files={"bin/pulumi": "6" * 64}),
        "helm": PackedProgram(version="v4.3.1", files={"bin/helm": "6" * 64}),
        "crane": PackedProgram(version="v0.22.1", files={"bin/crane": "6" * 64}),
        "resource-kubernetes": PackedProgram(version="v4.34.2", files={"plugins/kubernetes/program": "6" * 64}),
    },
    boot_media={f"{SCHEMATIC.id}/v1.13.9/metal-amd64.iso": "7" * 64},
    weights=tuple(f"{QWEN}@{revision}" for revision in REVISIONS),
)
SUPPLIES = Supplies(
    sites=("berlin",),
    images=(image_reference(IMAGE),),
    used_by={image_reference(IMAGE).tagged: ["model chat"]},
    charts=(PackedChart(CHART, None),),
    packages=(
        Package("pulumi-kubernetes", "4.34.2", frozenset({"2" * 64})),
        Package("tiny", "1.0", frozenset({"2" * 64})),
    ),
    weights=tuple(Manifest(QWEN, revision, {"config.json": Entry(5, "4" * 64)}) for revision in REVISIONS),
    factory_images=(BUILT,),
)


def test_an_inventory_is_read_as_it_is_written(tmp_path: Path) -> None:
    WHOLE.write(tmp_path)
    assert read_inventory(tmp_path) == WHOLE
    assert [*missing(WHOLE, SUPPLIES)] == []


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"images": [IMAGE.replace("docker.io", "../../etc")]}, "images.0"),
        ({"images": [IMAGE.replace("/vllm/", "/../")]}, "images.0"),
        ({"images": [IMAGE.replace("v0.32.0", "..")]}, "images.0"),
        ({"images": [IMAGE.partition("@")[0]]}, "images.0"),
        ({"images": IMAGE}, "images"),
        ({"images": [7]}, "images.0"),
        ({"charts": {"../outside.tgz": "3" * 64}}, "charts"),
        ({"charts": {CHART: "3" * 63}}, f"charts.{CHART}"),
        ({"charts": [CHART]}, "charts"),
        ({"weights": {QWEN: REVISIONS[0]}}, "weights"),
        ({"weights": [f"{QWEN}@main"]}, "weights.0"),
        ({"weights": [f"../..@{REVISIONS[0]}"]}, "weights.0"),
        ({"packages": {"tiny": None}}, "packages.tiny"),
        ({"programs": {"helm": {"version": "v4", "files": {"../outside": "3" * 64}}}}, "programs.helm.files"),
        ({"programs": {"helm": {"version": "v4", "files": {"bin/../../outside": "3" * 64}}}}, "programs.helm.files"),
        ({"programs": {"helm": {"version": "v4", "files": {"/usr/bin/helm": "3" * 64}}}}, "programs.helm.files"),
        ({"programs": {"helm": {"version": "v4", "files": {}}}}, "programs.helm.files"),
        ({"programs": {"helm": {"version": "v4 or so", "files": {"bin/helm": "3" * 64}}}}, "programs.helm.version"),
        ({"sites": []}, "sites"),
        ({"sites": None, "images": None}, "; images"),
        ({"boot_media": {"../metal-amd64.iso": "7" * 64}}, "boot_media"),
        ({"charts": {CHART: 7}}, f"charts.{CHART}"),
        ({"form": 2}, "form"),
        ({"form": "3"}, "form"),
        ({"other": 1}, "other"),
    ],
)
def test_a_foreign_inventory_is_one_error_that_names_each_place(
    tmp_path: Path, wrong: dict[str, Any], says: str
) -> None:
    (tmp_path / FILE).write_text(json.dumps({**WHOLE.model_dump(mode="json"), **wrong}))
    with pytest.raises(BundleError, match=r"bundle\.json is no inventory of a bundle") as error:
        read_inventory(tmp_path)
    assert says in error.value.problem.got


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"null", b"[" * 100_000])
def test_a_damaged_inventory_is_an_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(BundleError, match="is no inventory of a bundle"):
        read_inventory(tmp_path)


def test_everything_that_sites_need_and_a_bundle_lacks_is_reported() -> None:
    raised = replace(
        SUPPLIES,
        packages=(
            Package("tiny", "1.1", frozenset()),
            Package("new", "2.0", frozenset()),
            Package("pulumi-kubernetes", "4.35.0", frozenset()),
            Package("pulumi-random", "1.0.0", frozenset()),
        ),
        unlocked_weights=(("zai-org/GLM-5.1-FP8", "c" * 40),),
        images=(*SUPPLIES.images, image_reference("quay.io/a/b:v1")),
        used_by={**SUPPLIES.used_by, "quay.io/a/b:v1": ["monitoring"]},
        factory_images=(BUILT, replace(BUILT, talos="v1.13.10")),
    )
    programs = {name: program for name, program in (WHOLE.programs or {}).items() if name != "helm"}
    held = WHOLE.model_copy(update={"weights": WHOLE.weights[1:], "programs": programs})
    assert [*missing(held, raised)] == [
        "quay.io/a/b:v1: needed by monitoring, and not in images.lock",
        "wheels: tiny 1.1: needed, and the bundle has 1.0",
        "wheels: new 2.0: needed, and the bundle has none",
        "wheels: pulumi-kubernetes 4.35.0: needed, and the bundle has 4.34.2",
        "wheels: pulumi-random 1.0.0: needed, and the bundle has none",
        "programs: helm: needed, and not in the bundle",
        "programs: resource-kubernetes v4.35.0: needed, and the bundle has v4.34.2",
        "programs: resource-random v1.0.0: needed, and the bundle has none",
        f"boot/{SCHEMATIC.id}/v1.13.10: needed, and not in the bundle",
        f"{QWEN} at {REVISIONS[0]}: needed, and not in the bundle",
        f"zai-org/GLM-5.1-FP8 at {'c' * 40}: needed, and no lock lists its files",
    ]


def test_a_bundle_that_was_packed_without_programs_or_boot_media_lacks_none() -> None:
    assert [*missing(WHOLE.model_copy(update={"programs": None, "boot_media": {}}), SUPPLIES)] == []


@pytest.fixture
def bundle(tmp_path: Path) -> tuple[Inventory, Supplies]:
    """Charts, packages and weights in a folder, whole; and the locks that list them."""
    (tmp_path / CHARTS).mkdir()
    (tmp_path / CHARTS / CHART).write_text("a chart")
    (tmp_path / WHEELS).mkdir()
    wheel = tmp_path / WHEELS / "tiny-1.0-py3-none-any.whl"
    wheel.write_text("a package")
    manifests = []
    for revision in REVISIONS:
        file = weights_folder(tmp_path, QWEN) / "revisions" / revision / "config.json"
        file.parent.mkdir(parents=True)
        file.write_text(revision)
        manifests.append(Manifest(QWEN, revision, {"config.json": Entry(file.stat().st_size, sha256_of(file))}))
    (tmp_path / PROGRAMS / "bin").mkdir(parents=True)
    helm = tmp_path / PROGRAMS / "bin" / "helm"
    helm.write_text("a program")
    iso = tmp_path / BOOT / "a" / "v1" / "metal-amd64.iso"
    iso.parent.mkdir(parents=True)
    iso.write_text("an image")
    inventory = WHOLE.model_copy(
        update={
            "images": (),
            "charts": {CHART: sha256_of(tmp_path / CHARTS / CHART)},
            "boot_media": {"a/v1/metal-amd64.iso": sha256_of(iso)},
            "programs": {"helm": PackedProgram(version="v4.3.1", files={"bin/helm": sha256_of(helm)})},
        }
    )
    packages = (Package("tiny", "1.0", frozenset({sha256_of(wheel)})),)
    return inventory, replace(SUPPLIES, images=(), packages=packages, weights=tuple(manifests))


def compared(
    folder: Path, inventory: Inventory, supplies: Supplies, chart_digests: dict[str, str] | None = None
) -> list[str]:
    return [*spoiled(folder, inventory, supplies, chart_digests or {}, lambda _: None)]


def test_each_revision_of_a_repository_is_compared(tmp_path: Path, bundle: tuple[Inventory, Supplies]) -> None:
    assert compared(tmp_path, *bundle) == []
    for revision in REVISIONS:
        (weights_folder(tmp_path, QWEN) / "revisions" / revision / "config.json").write_text("other")
    assert len(compared(tmp_path, *bundle)) == 2


def test_files_whose_lock_the_checkout_lost_are_not_whole(tmp_path: Path, bundle: tuple[Inventory, Supplies]) -> None:
    inventory, supplies = bundle
    unlocked = replace(supplies, weights=supplies.weights[1:], unlocked_weights=((QWEN, REVISIONS[0]),), packages=())
    assert compared(tmp_path, inventory, unlocked) == [
        "wheels/tiny-1.0-py3-none-any.whl: no file that requirements.lock lists",
        f"weights: {QWEN}@{REVISIONS[0]}: no lock that the sites have lists its files, so they were not compared",
    ]


def test_a_package_that_the_bundle_lacks_is_no_spoiled_file(tmp_path: Path, bundle: tuple[Inventory, Supplies]) -> None:
    """`missing` states it, by the version that the bundle has."""
    inventory, supplies = bundle
    raised = Package("other", "2.0", frozenset({"8" * 64}))
    assert compared(tmp_path, inventory, replace(supplies, packages=(*supplies.packages, raised))) == []
    assert compared(tmp_path, inventory, replace(supplies, packages=(Package("tiny", "1.1", frozenset()),))) == [
        "wheels/tiny-1.0-py3-none-any.whl: no file that requirements.lock lists"
    ]


def test_a_chart_is_compared_with_the_lock_of_the_project(tmp_path: Path, bundle: tuple[Inventory, Supplies]) -> None:
    inventory, supplies = bundle
    assert compared(tmp_path, inventory, supplies, {CHART: inventory.charts[CHART]}) == []
    (wrong,) = compared(tmp_path, inventory, supplies, {CHART: "5" * 64})
    assert wrong == f"charts/{CHART}: sha256 {inventory.charts[CHART]}, expected {'5' * 64}"


def test_programs_are_compared_and_no_other_file_is_among_them(
    tmp_path: Path, bundle: tuple[Inventory, Supplies]
) -> None:
    (tmp_path / PROGRAMS / "bin" / "helm").write_text("another")
    (tmp_path / PROGRAMS / "bin" / "sudo").symlink_to("/usr/bin/sudo")
    (tmp_path / PROGRAMS / "plugins").symlink_to("/usr/bin")
    spoiled_program, *unlisted = compared(tmp_path, *bundle)
    assert spoiled_program.startswith("programs/bin/helm: sha256 ")
    assert unlisted == [f"programs/{path}: no file that bundle.json lists" for path in ("bin/sudo", "plugins")]
    (tmp_path / PROGRAMS / "bin" / "helm").unlink()
    assert compared(tmp_path, *bundle)[0] == "programs/bin/helm: missing"


def test_no_file_that_the_inventory_does_not_list_is_among_boot_media(
    tmp_path: Path, bundle: tuple[Inventory, Supplies]
) -> None:
    """But for the sum beside each, which `pack` writes."""
    (tmp_path / BOOT / "a" / "v1" / "metal-amd64.iso.sha256").write_text("a sum")
    assert compared(tmp_path, *bundle) == []
    (tmp_path / BOOT / "a" / "v0").symlink_to("/usr/bin")
    (tmp_path / BOOT / "b.iso").write_text("an image")
    (tmp_path / BOOT / "b.iso.sha256").write_text("its sum")
    assert compared(tmp_path, *bundle) == [
        f"boot/{path}: no file that bundle.json lists" for path in ("a/v0", "b.iso", "b.iso.sha256")
    ]


def test_boot_media_are_compared(tmp_path: Path, bundle: tuple[Inventory, Supplies]) -> None:
    (tmp_path / BOOT / "a" / "v1" / "metal-amd64.iso").write_text("another")
    (wrong,) = compared(tmp_path, *bundle)
    assert wrong.startswith("boot/a/v1/metal-amd64.iso: sha256 ")
