"""Images of a bundle: how they are called, locked, kept whole, and named to other tools."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from bundle.asking import Asking
from bundle.crane import Crane
from bundle.errors import BundleError
from bundle.fetching import PackedChart
from bundle.image_folder import ImageFolder
from bundle.locked_images import Registries
from bundle.mirror_list import TOOLS, Tool, mirror_list
from bundle.mirror_paths import require_own_paths, sharing_a_path
from bundle.sbom import sbom
from bundle.supplies import Supplies
from bundle.wheels import Package
from components.addons.charts import Chart
from floor.images import image_reference
from floor.problems import SiteError
from services.weights.manifest import Entry, Manifest
from stacks.facts.image_lock import FILE, ChartRelease, ImageLock, read_image_lock
from tests.unit.bundle.stand_in_crane import StandInCrane, blob, digest_of

pytestmark = pytest.mark.row("opening 14")

VLLM = "docker.io/vllm/vllm-openai:v0.32.0"
DIGEST = digest_of("vllm")
LOCKED = image_reference(f"{VLLM}@{DIGEST}")


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("busybox", "docker.io/library/busybox"),
        ("vllm/vllm-openai:v1", "docker.io/vllm/vllm-openai:v1"),
        ("registry:5000/a/b:v1", "registry:5000/a/b:v1"),
        ("localhost/a", "localhost/a"),
        (f"quay.io/a/b@{DIGEST}", f"quay.io/a/b@{DIGEST}"),
        (f"quay.io/a/b:v1@{DIGEST}", f"quay.io/a/b:v1@{DIGEST}"),
    ],
)
def test_a_name_means_what_it_means_to_a_container_runtime(text: str, read: str) -> None:
    assert str(image_reference(text)) == read


def test_a_mirror_has_the_path_alone() -> None:
    assert image_reference(VLLM).held_by("registry.site.example").tagged == (
        "registry.site.example/vllm/vllm-openai:v0.32.0"
    )
    assert image_reference(VLLM).held_by("site:5000/all").tagged == "site:5000/all/vllm/vllm-openai:v0.32.0"


@pytest.mark.parametrize(
    ("first", "second", "share"),
    [
        (f"docker.io/a/b:v1@{DIGEST}", f"quay.io/a/b:v1@{digest_of('other')}", True),
        (f"docker.io/a/b:v1@{DIGEST}", f"docker.io/a/b:v1@{digest_of('other')}", True),
        ("docker.io/a/b:v1", "quay.io/a/b:v1", True),
        ("docker.io/a/b:v1", f"quay.io/a/b:v1@{DIGEST}", True),
        (f"docker.io/a/b:v1@{DIGEST}", f"quay.io/a/b:v1@{DIGEST}", False),
        (f"docker.io/a/b:v1@{DIGEST}", f"quay.io/a/b:v2@{digest_of('other')}", False),
        (f"docker.io/a/b@{DIGEST}", f"quay.io/a/b@{digest_of('other')}", False),
    ],
)
def test_images_of_two_registries_with_one_path_in_a_mirror_are_refused(
    first: str, second: str, *, share: bool
) -> None:
    images = [LOCKED, *map(image_reference, (first, second))]
    assert sharing_a_path(images) == ([sorted(images[1:])] if share else [])
    if share:
        with pytest.raises(BundleError, match=" and ".join(sorted((first, second)))):
            require_own_paths(images)


def test_every_bad_line_of_a_lock_is_reported_with_its_number(tmp_path: Path) -> None:
    assert read_image_lock(tmp_path) == ImageLock({})
    wrong = [VLLM, f"busybox@{DIGEST}", str(LOCKED), f"{VLLM}@sha256:12", f"quay.io/a/b:v1@{DIGEST} cilium"]
    (tmp_path / FILE).write_text("".join(f"{line}\n" for line in (LOCKED, *wrong)))
    with pytest.raises(SiteError) as error:
        read_image_lock(tmp_path)
    assert [problem.line for problem in error.value.problems] == [2, 3, 4, 5, 6]


def test_a_lock_is_read_as_it_is_written_and_pins_what_it_has(tmp_path: Path) -> None:
    images = [LOCKED, *(image_reference(f"docker.io/a/{name}:v1@{DIGEST}") for name in "abc")]
    old, new = (ChartRelease("cilium", version) for version in ("1.0", "1.1"))
    other = ChartRelease("metallb", "0.1")
    lock = ImageLock({}).with_images(images)
    lock = lock.with_renderings({"docker.io/a/a:v1": {old}, "docker.io/a/b:v1": {old, other}})
    lock = lock.with_renderings({"docker.io/a/b:v1": {new}})
    (tmp_path / FILE).write_text(lock.text())
    assert read_image_lock(tmp_path) == lock
    assert lock.text().splitlines() == sorted(lock.text().splitlines())
    assert f"docker.io/a/b:v1@{DIGEST} cilium@1.1 metallb@0.1" in lock.text().splitlines()
    rendered = {release: [*map(str, lock.rendered("docker.io/a/b", release))] for release in (old, new, other)}
    assert rendered == {old: [], new: [f"docker.io/a/b:v1@{DIGEST}"], other: [f"docker.io/a/b:v1@{DIGEST}"]}
    assert lock.without(["docker.io/a/b:v1"]).rendered("docker.io/a/b", new) == []
    assert lock.pinned(VLLM) == lock.pinned(str(LOCKED)) == str(LOCKED)
    assert lock.pinned("docker.io/vllm/vllm-openai:v0.33.0") is None
    assert lock.pinned(f"{VLLM}@sha256:{'0' * 64}") is None


def test_a_tag_is_locked_once_and_a_digest_that_a_site_names_wins(tmp_path: Path) -> None:
    crane = StandInCrane.in_folder(tmp_path)
    crane.has({"docker.io/a/moved:v1": "today", "docker.io/a/new:v1": "new", "docker.io/a/both:v1": "by tag"})
    registries = Registries(crane=Crane(str(crane.program)), asking=Asking())
    before = ImageLock({"docker.io/a/moved:v1": digest_of("before")})
    both = image_reference(f"docker.io/a/both:v1@{digest_of('by digest')}")
    wanted = [image_reference(f"docker.io/a/{name}:v1") for name in ("moved", "new", "both")]
    lock = registries.locked([*wanted, both], before)
    assert lock.digests == {
        "docker.io/a/moved:v1": digest_of("before"),
        "docker.io/a/new:v1": digest_of("new"),
        "docker.io/a/both:v1": digest_of("by digest"),
    }
    assert [call[-1] for call in crane.asked("digest")] == ["docker.io/a/new:v1"]


def test_another_digest_than_the_locked_one_is_refused_with_both(tmp_path: Path) -> None:
    registries = Registries(crane=Crane(str(StandInCrane.in_folder(tmp_path).program)), asking=Asking())
    other = image_reference(f"{VLLM}@{digest_of('other')}")
    for images, lock, why in (
        ([other], ImageLock({VLLM: DIGEST}), "is locked"),
        ([other, LOCKED], ImageLock({}), "another part names"),
    ):
        with pytest.raises(BundleError, match=f"{VLLM} is named by two digests") as error:
            registries.locked(images, lock)
        assert {error.value.problem.got, error.value.problem.allowed.split(",")[0]} == {DIGEST, other.digest}
        assert error.value.problem.allowed.endswith(why)


def test_a_mirror_is_asked_in_the_registrys_place(tmp_path: Path) -> None:
    crane = StandInCrane.in_folder(tmp_path)
    crane.has({"mirror.example/vllm/vllm-openai:v0.32.0": "vllm"})
    registries = Registries(crane=Crane(str(crane.program)), asking=Asking(), mirror="mirror.example")
    assert registries.locked([image_reference(VLLM)], ImageLock({})).images == [LOCKED]


def test_an_image_that_no_registry_has_is_an_error_with_its_name(tmp_path: Path) -> None:
    registries = Registries(crane=Crane(str(StandInCrane.in_folder(tmp_path).program)), asking=Asking())
    with pytest.raises(BundleError, match=r"crane finds no docker\.io/vllm/vllm-openai:v0\.32\.0") as error:
        registries.locked([image_reference(VLLM)], ImageLock({}))
    assert "NAME_UNKNOWN" in error.value.problem.got


OWN = "ghcr.io/inference-platform/ledger:0.1.0"


def test_no_registry_is_asked_for_an_image_of_an_own_service_but_a_mirror(tmp_path: Path) -> None:
    crane = StandInCrane.in_folder(tmp_path)
    crane.has({OWN: "of another", "mirror.example/inference-platform/ledger:0.1.0": "built"})
    registries = Registries(crane=Crane(str(crane.program)), asking=Asking())
    with pytest.raises(BundleError, match=f"{OWN} is of this repository's sources, and no registry has it") as error:
        registries.locked([image_reference(OWN)], ImageLock({}))
    assert error.value.problem.fix.startswith("sitectl bundle services")
    built = ImageLock({OWN: digest_of("built")})
    assert registries.locked([image_reference(OWN)], built) == built
    assert replace(registries, mirror="mirror.example").locked([image_reference(OWN)], ImageLock({})) == built


def test_copy_tools_take_an_image_of_an_own_service_out_of_its_folder() -> None:
    own = image_reference(f"{OWN}@{DIGEST}")
    folder, target = (
        ".bundle/images/ghcr.io/inference-platform/ledger/0.1.0",
        "site.example/inference-platform/ledger:0.1.0",
    )
    for tool, line in {
        "crane": f"crane push {folder} {target}",
        "skopeo": f"skopeo copy --all --preserve-digests oci:{folder} docker://{target}",
        "oras": f"oras cp --from-oci-layout {folder}@{DIGEST} {target}",
    }.items():
        assert mirror_list(replace(SUPPLIES, images=(own,)), cast("Tool", tool), "site.example").splitlines()[1] == line


@pytest.fixture
def images(tmp_path: Path) -> ImageFolder:
    """With one image, whole."""
    crane, folder = StandInCrane.in_folder(tmp_path), ImageFolder(tmp_path / "images")
    crane.has({VLLM: "vllm"})
    assert folder.bring(LOCKED, Crane(str(crane.program)), None)
    assert not folder.bring(LOCKED, Crane("/no/such/crane"), None)
    assert [*folder.problems(LOCKED)] == []
    return folder


@pytest.mark.parametrize(
    ("pattern", "spoil", "says"),
    [
        ("index.json", "{}", "index.json cannot be read"),
        ("index.json", '{"manifests": [{"digest": "sha256:12"}]}', "index.json has sha256:12, expected"),
        ("index.json", '{"manifests": [{"digest": 7}]}', "index.json has 7, expected"),
        ("index.json", '{"manifests": "text"}', "index.json cannot be read"),
        ("index.json", "[" * 100_000, "index.json cannot be read"),
        ("blobs/sha256/*", "other", "is spoiled; got sha256:"),
        ("blobs/sha256/*", None, "is missing"),
    ],
)
def test_each_missing_or_spoiled_file_of_an_image_is_seen_and_brought_again(
    images: ImageFolder, pattern: str, spoil: str | None, says: str
) -> None:
    crane = Crane(str(images.folder.parent / "crane"))
    for file in sorted(images.of(LOCKED).glob(pattern)):
        kept = file.read_bytes()
        file.unlink() if spoil is None else file.write_text(spoil)
        assert says in " ".join(images.problems(LOCKED)), file
        assert images.bring(LOCKED, crane, None)
        assert file.read_bytes() == kept


def test_an_index_is_whole_with_the_images_of_all_platforms(images: ImageFolder) -> None:
    place = images.of(LOCKED)
    index = json.dumps({"manifests": [{"digest": DIGEST}, {"digest": f"sha256:{'0' * 64}"}]}).encode()
    several = image_reference(f"{VLLM}@{_put(place, index)}")
    (place / "index.json").write_text(json.dumps({"manifests": [{"digest": several.digest}]}))
    assert [*images.problems(several)] == [f"{several}: sha256:{'0' * 64} is missing"]


@pytest.mark.parametrize(
    "manifest", [[], {"layers": 7}, {"config": "text"}, {"layers": [{"digest": "sha256:../../../../../etc/passwd"}]}]
)
def test_a_blob_that_is_no_manifest_is_reported_and_leads_nowhere(images: ImageFolder, manifest: object) -> None:
    place = images.of(LOCKED)
    foreign = image_reference(f"{VLLM}@{_put(place, json.dumps(manifest).encode())}")
    (place / "index.json").write_text(json.dumps({"manifests": [{"digest": foreign.digest}]}))
    assert [*images.problems(foreign)] == [f"{foreign}: {foreign.digest} is no manifest of an image"]


def _put(layout: Path, data: bytes) -> str:
    (layout / "blobs" / blob(data).replace(":", "/")).write_bytes(data)
    return blob(data)


SUPPLIES = Supplies(
    sites=("berlin",),
    images=(LOCKED, image_reference("quay.io/a/b:v1")),
    used_by={VLLM: ["model chat"], "quay.io/a/b:v1": ["monitoring"]},
    charts=(
        PackedChart(
            "longhorn-1.12.1.tgz", Chart(chart="longhorn", version="1.12.1", repository="https://charts.example")
        ),
        PackedChart("epp-v1.5.0.yaml", None, "https://github.com/x/epp/releases/download/v1.5.0/manifests.yaml"),
    ),
    packages=(Package("pulumi", "3.1.0", frozenset({"1" * 64})), Package("pulumi-command", "1.2.1", frozenset())),
    weights=(Manifest("Qwen/Qwen3-32B", "a" * 40, {"config.json": Entry(5, "2" * 64)}),),
    unlocked_weights=(("zai-org/GLM-5.1-FP8", "b" * 40),),
    talos="v1.13.9",
    extensions=("siderolabs/iscsi-tools",),
)


def test_the_lists_are_what_the_copy_tools_take() -> None:
    lists = {tool: mirror_list(SUPPLIES, tool, "registry.site.example") for tool in TOOLS}
    assert {text.splitlines()[0] for text in lists.values()} == {"set -e"}
    assert lists["crane"].splitlines()[1] == (f"crane copy {LOCKED} registry.site.example/vllm/vllm-openai:v0.32.0")
    assert lists["oras"].splitlines()[2] == "oras cp quay.io/a/b:v1 registry.site.example/a/b:v1"
    copies = "skopeo copy --all --preserve-digests docker://"
    assert lists["skopeo"].splitlines()[1:] == [
        f"{copies}docker.io/vllm/vllm-openai@{DIGEST} docker://registry.site.example/vllm/vllm-openai:v0.32.0",
        f"{copies}quay.io/a/b:v1 docker://registry.site.example/a/b:v1",
    ]
    assert lists["helm"].splitlines()[1] == "mkdir -p charts"
    assert lists["helm"].splitlines()[2].startswith("helm pull longhorn --version 1.12.1 --repo https://charts.example")
    assert lists["helm"].splitlines()[3].startswith("curl --fail")
    assert (
        f"hf download Qwen/Qwen3-32B --revision {'a' * 40} --local-dir weights/Qwen/Qwen3-32B/revisions/" in lists["hf"]
    )
    assert "zai-org/GLM-5.1-FP8" in lists["hf"]
    assert lists["pip"].splitlines()[1].startswith("pip download --require-hashes")


@pytest.mark.parametrize("tool", ["crane", "skopeo", "oras"])
def test_images_without_a_tag_are_copied_by_no_tool(tool: Tool) -> None:
    untagged = replace(SUPPLIES, images=(LOCKED, image_reference("quay.io/cilium/cilium-envoy")))
    with pytest.raises(BundleError, match=r"no tag is known of 1 image: quay\.io/cilium/cilium-envoy\n") as error:
        mirror_list(untagged, tool, "registry.site.example")
    assert error.value.problem.fix.startswith("sitectl bundle lock berlin")


def test_the_bill_of_materials_is_valid_complete_and_the_same_each_time() -> None:
    text = sbom(SUPPLIES, {"longhorn-1.12.1.tgz": "3" * 64})
    assert text == sbom(SUPPLIES, {"longhorn-1.12.1.tgz": "3" * 64})
    assert text != sbom(SUPPLIES, {})
    # Judged by the schema that CycloneDX publishes.
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    listed = json.loads(text)["components"]
    components = {component["name"]: component for component in listed}
    # Pulumi is a package and a program.
    assert len(listed) == len(components) + 1
    assert components.keys() == {
        "docker.io/vllm/vllm-openai",
        "quay.io/a/b",
        "longhorn-1.12.1.tgz",
        "epp-v1.5.0.yaml",
        "pulumi",
        "helm",
        "crane",
        "pulumi-command",
        "pulumi-resource-command",
        "Qwen/Qwen3-32B",
        "zai-org/GLM-5.1-FP8",
        "talos",
        "siderolabs/iscsi-tools",
    }
    vllm = components["docker.io/vllm/vllm-openai"]
    assert vllm["hashes"] == [{"alg": "SHA-256", "content": DIGEST.removeprefix("sha256:")}]
    assert vllm["purl"].startswith("pkg:oci/vllm-openai@sha256:")
    assert "hashes" not in components["quay.io/a/b"]
    assert components["pulumi-resource-command"]["purl"] == "pkg:github/pulumi/pulumi-command@v1.2.1"
    assert components["longhorn-1.12.1.tgz"]["hashes"][0]["content"] == "3" * 64
    assert components["Qwen/Qwen3-32B"]["purl"] == f"pkg:huggingface/Qwen/Qwen3-32B@{'a' * 40}"
