"""A site without a network: its images locked, everything packed, compared behind the wall, and pushed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from bundle.inventory import FILE as INVENTORY
from floor.digests import sha256_of
from lab.hub.server import EmulatedHubServer, Hub
from sitectl.shell.errors import Exit
from stacks.facts import versions
from stacks.facts.image_lock import FILE
from stacks.plan.site_plan import plan_file
from tests import documented
from tests.unit.bundle.stand_in_crane import StandInCrane, digest_of
from tests.unit.bundle.stand_in_helm import StandInHelm
from tests.unit.bundle.stand_in_pulumi import StandInPulumi
from tests.unit.sitectl.air_gap_sites import (
    EXPORTER,
    MIRROR,
    RENDERED,
    cilium_is_rendered,
    images_of,
    lock_all,
    programs,
    stand_in_publishers,
)
from tests.unit.sitectl.sites_to_work_on import ROOT, edit, make_checkout, run

__all__ = ["cilium_is_rendered"]

pytestmark = [pytest.mark.row("opening 14"), pytest.mark.processes]

PINS = versions.load()
CILIUM_RELEASE = f"cilium@{PINS.cilium.version}"
OPERATOR_RELEASE = f"gpu_operator@{PINS.charts['gpu_operator'].version}"


@pytest.fixture
def crane(tmp_path: Path) -> StandInCrane:
    return StandInCrane.in_folder(tmp_path)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_checkout(tmp_path / "own", sites=("prod",), accounts=False)


@pytest.fixture(scope="module")
def locked_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with a lock, and the registry that it was made from."""
    folder = tmp_path_factory.mktemp("locked")
    lock_all(make_checkout(folder / "own", sites=("prod",), accounts=False), StandInCrane.in_folder(folder))
    return folder


@pytest.fixture
def locked(locked_once: Path, tmp_path: Path) -> Path:
    """A copy of the checkout; the registry is `crane` beside it."""
    for name in ("crane", "crane.json"):
        shutil.copy2(locked_once / name, tmp_path)
    return shutil.copytree(locked_once / "own", tmp_path / "own", symlinks=True)


def test_the_list_has_what_machines_charts_and_pods_run(project: Path) -> None:
    images = images_of(project)
    assert PINS.images.vllm in images
    assert PINS.images.endpoint_picker in images
    assert [image for image in images if image.startswith("factory.talos.dev/metal-installer-secureboot/")]
    rows = run(project, "bundle", "list", "prod", "--json").data
    assert {row["image"]: row["used_by"] for row in rows["images"]}[PINS.images.endpoint_picker] == ["endpoint pickers"]
    assert f"longhorn-{PINS.charts['longhorn'].version}.tgz" in [row["file"] for row in rows["charts"]]
    assert [row["bytes"] for row in rows["weights"]] == [None, None]
    assert "siderolabs/iscsi-tools" in rows["extensions"]
    text = run(project, "bundle", "list", "prod").out
    assert "   no digest   " in text
    machines = {row["id"]: row["machines"] for row in rows["schematics"]}
    assert sorted(name for names in machines.values() for name in names) == sorted(
        f"prod/{name}" for name in ("cp-1", "cp-2", "cp-3", "hgx-1", "hgx-2", "hgx-3", "hgx-4", "infra-1", "infra-2")
    )
    hgx = next(key for key, names in machines.items() if "prod/hgx-1" in names)
    assert f"  schematic {hgx}   https://factory.talos.dev   prod/hgx-1, prod/hgx-2, prod/hgx-3, prod/hgx-4\n" in text


def test_the_pages_commands_list_what_a_site_takes(locked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for_crane = documented.argv("python -m sitectl bundle list prod --for crane --to registry.site.example")[3:]
    copied = run(locked, *for_crane).out.splitlines()
    assert copied.pop(0) == "set -e"
    path = PINS.images.vllm.partition("/")[2]
    assert f"crane copy {PINS.images.vllm}@{digest_of(PINS.images.vllm)} registry.site.example/{path}" in copied
    listed = run(locked, *documented.argv("python -m sitectl bundle list prod")[3:]).out
    assert f"images: {len(copied)}\n" in listed
    monkeypatch.chdir(locked)
    sbom = run(locked, *documented.argv("python -m sitectl bundle sbom prod --out prod.cdx.json")[3:])
    assert (sbom.status, sbom.out.split()[0]) == (Exit.OK, "prod.cdx.json:")


def test_every_image_of_the_resource_graph_is_in_the_list(project: Path) -> None:
    """What the plan says that a site runs is what its program declares, so that a preview needs no second look."""
    reported = run(project, "bundle", "list", "prod", "--json").data["images"]
    by_addition = [row["image"] for row in reported if any(" " in user and "/" in user for user in row["used_by"])]
    assert by_addition == []


def test_pods_run_the_locked_digests(locked: Path) -> None:
    lock = (locked / FILE).read_text().splitlines()
    assert f"{PINS.images.vllm}@{digest_of(PINS.images.vllm)}" in lock
    assert run(locked, "rules", "prod").status == Exit.OK
    out = locked / "rendered"
    assert run(locked, "render", "prod", "--out", str(out)).status == Exit.OK
    manifests = "".join(file.read_text() for file in out.rglob("*.yaml"))
    assert f"image: {PINS.images.vllm}@{digest_of(PINS.images.vllm)}" in manifests
    assert f"image: {PINS.images.vllm}\n" not in manifests


def test_tags_that_the_facts_do_not_know_come_out_of_the_rendered_charts(locked: Path) -> None:
    lock = (locked / FILE).read_text().splitlines()
    releases = {image: CILIUM_RELEASE if "cilium" in image else OPERATOR_RELEASE for image in RENDERED}
    assert [line for image in RENDERED if (line := f"{image}@{digest_of(image)} {releases[image]}") not in lock] == []
    assert not [image for image in lock if "nvidia/driver" in image]
    (locked / FILE).write_text("".join(f"{image}\n" for image in lock if "cilium-envoy" not in image))
    missing = f"lacks 1 image of the site: quay.io/cilium/cilium-envoy (chart cilium {PINS.cilium.version})"
    assert missing in run(locked, "validate", "prod").out
    options = programs(locked.parent)
    StandInHelm(locked.parent / "helm").renders(yaml.safe_dump({"dcgmExporter": EXPORTER}))
    result = run(locked, "bundle", "lock", "prod", *options)
    assert "the chart gpu_operator names no image of nvcr.io/nvidia/k8s-device-plugin" in result.err


def test_an_error_about_a_chart_names_the_option_for_charts(project: Path, crane: StandInCrane) -> None:
    """`--from` is the registry of images there, and leaves the image factory out."""
    helm = project.parent / "no-helm"
    helm.write_text("#!/bin/sh\nexit 1\n")
    helm.chmod(0o755)
    options = ("--from", MIRROR, "--crane", str(crane.program), "--helm", str(helm))
    reported = run(project, "bundle", "lock", "prod", *options).err
    assert "helm cannot take gpu-operator" in reported
    assert ": --charts-from ADDRESS" in reported
    reported = run(project, "bundle", "lock", "prod", *options, "--charts-from", "no-such-folder").err
    assert "--charts-from: no-such-folder is no folder here" in reported


@pytest.mark.exhaustive
def test_what_a_raised_chart_runs_is_locked_again_and_the_line_before_is_pruned(locked: Path) -> None:
    """The lock is that of an earlier version of Cilium, which ran another Envoy, and of the GPU operator."""
    lock, options = locked / FILE, programs(locked.parent)
    now = lock.read_text()
    envoy = next(line for line in now.splitlines() if "cilium-envoy" in line)
    earlier = f"quay.io/cilium/cilium-envoy:v1.30.1@{digest_of('earlier')} cilium@1.17.0"
    lock.write_text(now.replace(envoy, earlier).replace(OPERATOR_RELEASE, "gpu_operator@v25.1.0"))
    assert "quay.io/cilium/cilium-envoy (chart cilium " in (reported := run(locked, "validate", "prod").out)
    assert f"k8s-device-plugin (chart gpu_operator {PINS.charts['gpu_operator'].version})" in reported
    # What is packed then is what runs then.
    assert "quay.io/cilium/cilium-envoy" in images_of(locked)
    assert "quay.io/cilium/cilium-envoy:v1.30.1" not in images_of(locked)
    again = run(locked, "bundle", "lock", "prod", *options)
    assert f"  nvcr.io/nvidia/k8s-device-plugin:v0.20.1: of {OPERATOR_RELEASE}\n" in again.out
    assert sorted(lock.read_text().splitlines()) == sorted([*now.splitlines(), earlier])
    assert run(locked, "validate", "prod").status == Exit.OK
    assert "- quay.io/cilium/cilium-envoy:v1.30.1\n" in run(locked, "bundle", "lock", "--prune", *options).out
    assert lock.read_text() == now


def test_envoy_is_named_by_its_digest_where_images_are_locked(locked: Path) -> None:
    plans = [plan_file(file) for file in (ROOT / "Pulumi.prod.yaml", locked / "Pulumi.prod.yaml")]
    assert [plan.proxy_image for plan in plans] == [None, f"{PINS.images.envoy}@{digest_of(PINS.images.envoy)}"]
    assert run(locked, "render", "prod", "--out", str(locked / "rendered")).status == Exit.OK
    proxies = "".join(file.read_text() for file in (locked / "rendered").rglob("envoyproxy*.yaml"))
    assert f"image: {plans[1].proxy_image}" in proxies


def test_an_image_that_is_not_in_the_lock_is_refused_with_the_way_out(locked: Path) -> None:
    lock = locked / FILE
    lock.write_text("".join(line for line in lock.read_text().splitlines(keepends=True) if "vllm-openai" not in line))
    result = run(locked, "validate", "prod")
    assert result.status == Exit.REFUSED
    assert f"images.locked: images.lock lacks 1 image of the site: {PINS.images.vllm} (model " in result.out
    assert "fix: sitectl bundle lock prod" in result.out
    assert "images.lock lacks" in run(locked, "render", "prod", "--out", str(locked / "rendered")).out
    assert not (locked / "rendered").exists()


@pytest.mark.exhaustive
def test_without_a_lock_a_site_that_wants_one_is_refused_and_can_be_locked(locked: Path) -> None:
    (locked / FILE).unlink()
    assert "images.lock lacks" in run(locked, "validate", "prod").out
    assert run(locked, "bundle", "lock", "prod", *programs(locked.parent)).status == Exit.OK
    assert run(locked, "validate", "prod").status == Exit.OK


def test_a_bad_line_of_the_lock_is_an_error_with_its_number(locked: Path) -> None:
    with (locked / FILE).open("a") as lock:
        lock.write("busybox\n")
    result = run(locked, "validate", "prod")
    assert result.status == Exit.REFUSED
    assert "not a locked image; got 'busybox'" in result.out


@pytest.mark.exhaustive
def test_a_tag_that_moved_stays_as_locked_and_unused_lines_go_on_request(locked: Path) -> None:
    before, crane = (locked / FILE).read_text(), StandInCrane(locked.parent / "crane")
    crane.has({f"{MIRROR}/{PINS.images.vllm.partition('/')[2]}": "moved"})
    options = programs(locked.parent)
    again = run(locked, "bundle", "lock", *options)
    assert (again.status, (locked / FILE).read_text()) == (Exit.OK, before)
    assert again.out.startswith("images.lock: as before, ")
    old = f"docker.io/vllm/vllm-openai:v0.31.0@{digest_of('old')}\n"
    (locked / FILE).write_text(before + old)
    assert run(locked, "bundle", "lock", "prod", *options).status == Exit.OK
    assert old in (locked / FILE).read_text()
    pruned = run(locked, "bundle", "lock", "prod", "--prune", *options)
    assert "- docker.io/vllm/vllm-openai:v0.31.0" in pruned.out
    assert (locked / FILE).read_text() == before


def test_an_unknown_site_prunes_nothing(locked: Path) -> None:
    before = (locked / FILE).read_text()
    old = f"docker.io/vllm/vllm-openai:v0.31.0@{digest_of('old')}\n"
    (locked / FILE).write_text(before + old)
    result = run(locked, "bundle", "lock", "nosuch", "--prune", *programs(locked.parent))
    assert result.status != Exit.OK
    assert "nosuch" in result.err
    assert (locked / FILE).read_text() == before + old


def test_what_a_registry_lacks_is_an_error_and_nothing_is_written(project: Path, crane: StandInCrane) -> None:
    options = programs(crane.program.parent)
    result = run(project, "bundle", "lock", "prod", *options)
    assert result.status != Exit.OK
    assert f"crane finds no {MIRROR}/" in result.err
    assert not (project / FILE).exists()
    missing = run(project, "bundle", "lock", "prod", *options, "--crane", "/no/such/crane")
    assert "there is no /no/such/crane" in missing.err
    assert "install crane" in missing.err
    crane.program.write_text("#!/bin/sh\nexec sleep 600\n")
    silent = run(project, "bundle", "lock", "prod", *options, "--timeout", "0.2")
    assert "gave no answer within" in silent.err
    # The fix is one that the command has.
    assert "--timeout and --total-timeout SECONDS" in silent.err


@pytest.fixture(scope="module")
def packed_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout, and `disk` with a bundle of its site: images and charts by stand-ins, weights from a hub."""
    folder = tmp_path_factory.mktemp("packed")
    project, crane = make_checkout(folder / "own", sites=("prod",), accounts=False), StandInCrane.in_folder(folder)
    server = EmulatedHubServer(Hub())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_ENDPOINT", server.url)
        patch.setenv("HF_HOME", str(folder / "client"))
        patch.delenv("HF_TOKEN", raising=False)
        stand_in_publishers(patch)
        pulumi = StandInPulumi.in_folder(folder)
        lock_all(project, crane)
        assert run(project, "weights", "lock", "prod").status == Exit.OK
        charts = run(project, "bundle", "list", "prod", "--json").data["charts"]
        options = (*programs(folder), "--pulumi", str(pulumi.program))
        StandInHelm(folder / "helm").has_charts(*(row["file"] for row in charts if row["file"].endswith(".tgz")))
        result = run(project, "bundle", "pack", "prod", "--out", str(folder / "disk"), *options)
        assert result.status == Exit.OK, result.err
    server.close()
    return folder


@pytest.fixture
def packed(packed_once: Path, tmp_path: Path) -> Path:
    """A copy of the bundle."""
    return shutil.copytree(packed_once / "disk", tmp_path / "disk")


@pytest.fixture
def behind(packed_once: Path) -> Path:
    """The checkout behind the wall."""
    return packed_once / "own"


def test_a_packed_folder_is_whole_and_is_the_source_of_a_registry(
    packed: Path, behind: Path, crane: StandInCrane
) -> None:
    assert {path.name for path in packed.iterdir()} == {"bundle.json", "charts", "images", "programs", "weights"}
    assert {path.name for path in packed.glob("programs/bin/*")} >= {"pulumi", "helm", "crane"}
    verified = run(behind, "bundle", "verify", str(packed))
    assert verified.status == Exit.OK, verified.err
    assert f"sha256 of bundle.json: {sha256_of(packed / INVENTORY)}" in verified.out
    names = images_of(behind)
    pushed = run(behind, "bundle", "push", str(packed), "--to", "site.example/all", "--crane", str(crane.program))
    assert pushed.status == Exit.OK, pushed.err
    assert crane.images == {f"site.example/all/{image.partition('/')[2]}": image for image in names}
    assert not [words for words in crane.asked("push") if "--insecure" in words]
    there = ("push", str(packed), "--to", "other.example", "--plain-http", "--crane", str(crane.program))
    assert run(behind, "bundle", *there).status == Exit.OK
    assert len([words for words in crane.asked("push") if "--insecure" in words]) == len(names)
    assert len(list(packed.glob("weights/*/*/revisions/*/config.json"))) == 2


def test_each_spoiled_or_missing_file_of_a_bundle_is_reported(packed: Path, behind: Path) -> None:
    victims = [
        next(packed.glob("images/docker.io/vllm/vllm-openai/*/blobs/sha256/*")),
        next(packed.glob("charts/longhorn-*.tgz")),
        next(packed.glob("weights/Qwen/*/revisions/*/config.json")),
    ]
    for victim in victims:
        victim.write_bytes(b"spoiled")
    next(packed.glob("charts/*.yaml")).unlink()
    result = run(behind, "bundle", "verify", str(packed))
    assert result.status == Exit.REFUSED
    assert "4 things not as locked" in result.err
    for part in ("is spoiled; got sha256:", "longhorn-", "config.json", "missing"):
        assert part in result.err


@pytest.mark.exhaustive
def test_a_bundle_that_lacks_what_the_site_needs_now_is_reported(packed: Path, behind: Path) -> None:
    inventory = json.loads((packed / INVENTORY).read_text())
    gone = inventory["images"].pop()
    (packed / INVENTORY).write_text(json.dumps(inventory))
    result = run(behind, "bundle", "verify", str(packed))
    assert result.status == Exit.REFUSED
    assert f"{gone}: needed by " in result.err
    media = {"a/v1/metal-amd64.iso": "0" * 64}
    (packed / INVENTORY).write_text(json.dumps({**inventory, "programs": None, "boot_media": media}))
    # Another call would remove the one, and copy the others.
    fix = f"fix: sitectl bundle pack prod --out {packed} --without-programs --boot-media iso, on a machine"
    assert fix in run(behind, "bundle", "verify", str(packed)).err


@pytest.mark.exhaustive
def test_programs_are_copied_or_left_out_on_request(
    packed: Path, packed_once: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in_publishers(monkeypatch)
    words = ("bundle", "pack", "prod", "--out", str(packed), *programs(packed_once))
    lacking = run(packed_once / "own", *words, "--pulumi", "/no/such/pulumi")
    assert lacking.status != Exit.OK
    assert "are not on this machine: no pulumi" in lacking.err
    kinds = list[str]()

    def bring(_images: object, kind: str, *_: object) -> dict[str, str]:
        kinds.append(kind)
        return {}

    monkeypatch.setattr("bundle.packing.bring_boot_media", bring)
    left_out = run(packed_once / "own", *words, "--without-programs", "--boot-media", "pxe")
    assert (left_out.status, kinds) == (Exit.OK, ["pxe"]), left_out.err
    assert not (packed / "programs").exists()
    verified = run(packed_once / "own", "bundle", "verify", str(packed))
    assert (verified.status, "no programs" in verified.out) == (Exit.OK, True), verified.err


def test_images_that_would_replace_each_other_are_not_pushed(packed: Path, behind: Path, crane: StandInCrane) -> None:
    inventory = json.loads((packed / INVENTORY).read_text())
    other = f"quay.io/vllm/{PINS.images.vllm.rpartition('/')[2]}@{digest_of('other')}"
    (packed / INVENTORY).write_text(json.dumps({**inventory, "images": [*inventory["images"], other]}))
    pushed = run(behind, "bundle", "push", str(packed), "--to", "site.example", "--crane", str(crane.program))
    assert pushed.status != Exit.OK
    assert f"share theirs: {PINS.images.vllm}@{digest_of(PINS.images.vllm)} and {other}" in pushed.err
    assert crane.images == {}


@pytest.mark.exhaustive
def test_a_bundle_of_a_site_that_locks_no_images_is_refused(packed: Path, behind: Path, tmp_path: Path) -> None:
    unlocked = shutil.copytree(behind, tmp_path / "unlocked", symlinks=True)
    edit(unlocked, "prod", images={"locked": False})
    result = run(unlocked, "bundle", "verify", str(packed))
    assert result.status == Exit.REFUSED
    assert "images are not locked in prod" in result.err


def test_a_folder_without_an_inventory_is_no_bundle(packed: Path, behind: Path) -> None:
    (packed / INVENTORY).unlink()
    assert "so it is no bundle, or a half of one" in run(behind, "bundle", "verify", str(packed)).err
    assert "so it is no bundle" in run(behind, "bundle", "push", str(packed), "--to", "site.example").err


@pytest.mark.exhaustive
def test_nothing_is_packed_without_locks(project: Path, crane: StandInCrane, tmp_path: Path) -> None:
    out = tmp_path / "disk"
    words = ("bundle", "pack", "prod", "--out", str(out), "--crane", str(crane.program))
    result = run(project, *words)
    assert result.status == Exit.REFUSED
    assert "images are not locked in prod" in result.err
    assert "set images: {locked: true} in Pulumi.prod.yaml" in result.err
    edit(project, "prod", images={"locked": True})
    result = run(project, *words)
    assert result.status != Exit.OK
    assert "of the sites have no digest in images.lock" in result.err
    assert not out.exists()


@pytest.mark.exhaustive
def test_the_bill_of_materials_of_a_site_is_the_same_each_time(locked: Path, tmp_path: Path) -> None:
    out = tmp_path / "prod.cdx.json"
    assert run(locked, "bundle", "sbom", "prod", "--out", str(out)).status == Exit.OK
    assert run(locked, "bundle", "sbom", "prod").out.strip() == out.read_text().strip()
    assert len(json.loads(out.read_text())["components"]) > 20
