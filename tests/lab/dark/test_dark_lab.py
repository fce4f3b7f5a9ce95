"""A site without a network: packed where there is one, and up from its bundle where there is none."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from kubernetes import client

from floor.images import image_reference
from lab import deploy
from lab.cluster import api, network
from lab.site.supervisor import HUB_PORT
from stacks.facts import catalogue, versions
from talos.factory.schematic import Schematic
from tests.lab.dark.dark_site import SITE, DarkSite
from tests.lab.waiting import PATIENCE_S, eventually

pytestmark = [pytest.mark.exhaustive, pytest.mark.row("opening 14", "000.07")]

# Set aside for documentation (RFC 5737): on the internet, if there is a way to it.
ELSEWHERE = "192.0.2.1"
PICKER = image_reference(versions.load().images.endpoint_picker)


def statuses(site: DarkSite) -> list[Any]:
    """Of every container of every pod."""
    with api.connect(site.lab) as connection:
        pods: list[Any] = client.CoreV1Api(connection).list_pod_for_all_namespaces().items
    return [
        status
        for pod in pods
        for status in (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ()))
    ]


def test_no_way_leads_out(dark: DarkSite) -> None:
    trial = f"import socket; socket.create_connection(({ELSEWHERE!r}, 443), 5)"
    inside = network.inside(dark.lab, [sys.executable, "-c", trial])
    done = subprocess.run(inside, capture_output=True, text=True, check=False)
    assert "Network is unreachable" in done.stderr
    # Nor from where pulumi and sitectl ran.
    with pytest.raises(OSError, match="Network is unreachable"):
        socket.create_connection((ELSEWHERE, 443), 5)


def test_every_container_runs_an_image_of_the_lock(dark: DarkSite) -> None:
    started = statuses(dark)
    assert {status.image_id for status in started} <= dark.locked
    assert all(status.state.running or status.state.terminated.exit_code == 0 for status in started)
    # Also what no object of the program names: injected by a controller, and brought by the machines.
    run = {image_reference(status.image).path for status in started}
    assert {"envoyproxy/envoy", "envoyproxy/ai-gateway-extproc", "coredns/coredns"} <= run
    for digest in {status.image_id.partition("@")[2] for status in started}:
        assert (dark.lab.images / digest.replace(":", "-")).is_dir()


def test_weights_and_installers_are_those_of_the_bundle(dark: DarkSite) -> None:
    for name in ("glm-5.1-fp8", "qwen3-32b-fp8"):
        entry = catalogue.load(name)
        packed = dark.bundle / "weights" / entry.repository / "revisions" / entry.revision
        (mounted,) = dark.lab.volumes.glob(f"*/revisions/{entry.revision}")
        files = {path.name: path.read_bytes() for path in packed.iterdir() if not path.name.startswith(".")}
        assert files
        assert files == {path: (mounted / path).read_bytes() for path in files}
    another = f"http://{dark.lab.network.hub}:{HUB_PORT}/api/models/made/up"
    assert httpx.get(another, trust_env=False).status_code == httpx.codes.NOT_FOUND
    installers = [line for line in dark.locked if "/metal-installer/" in line]
    assert len(installers) == 2
    # The lab's image factory knows the schematic with nothing in it from the start, and no other was posted.
    known = dict[str, bool]()
    for installer in installers:
        factory, _, schematic = installer.partition("@")[0].split("/")
        known[schematic] = httpx.get(f"http://{factory}/schematics/{schematic}", trust_env=False).is_success
    assert {schematic for schematic, is_known in known.items() if is_known} == {Schematic().id}


def test_a_second_up_changes_nothing(dark: DarkSite) -> None:
    dark.pulumi("preview", "--expect-no-changes")


def test_pulumi_and_its_host_of_programs_are_those_of_the_bundle(dark: DarkSite) -> None:
    assert {file.name for file in dark.programs.iterdir()} >= {"pulumi", "pulumi-language-python", "helm", "crane"}
    # The engine warns of what it finds elsewhere than beside itself.
    preview = dark.pulumi("preview")
    warned = [line for line in (preview.stdout + preview.stderr).splitlines() if " from $PATH at " in line]
    assert [line for line in warned if "pulumi-resource-kubernetes" in line]
    assert [line for line in warned if "pulumi-language-python" in line] == []
    assert dark.pulumi_program == str(dark.programs / "pulumi")


def test_up_names_an_image_that_the_mirror_lacks_and_goes_on_once_it_is_there(dark: DarkSite, tmp_path: Path) -> None:
    """The pickers roll to a name of their image that no node has pulled yet."""
    repository = dark.lab.registry / "storage" / "docker" / "registry" / "v2" / "repositories" / PICKER.path
    away = tmp_path / "repository"
    (pulled,) = {status.image_id for status in statuses(dark) if image_reference(status.image).path == PICKER.path}
    repository.rename(away)
    (dark.lab.images / pulled.partition("@")[2].replace(":", "-")).rename(tmp_path / "image")
    document = yaml.safe_load(dark.file.read_text())
    for model in document["config"]["inference-platform:site"]["models"].values():
        model["pool"]["cpu"] = "110m"
    dark.file.write_text(yaml.safe_dump(document, sort_keys=False))
    with dark.pulumi_output(tmp_path / "output", "up", "--yes", "--skip-preview") as (process, output):
        reported = eventually(lambda: next((line for line in output() if "ImagePullBackOff" in line), None))
        assert str(PICKER.path) in reported
        assert "NAME_UNKNOWN" in reported or "MANIFEST_UNKNOWN" in reported
        away.rename(repository)
        assert process.wait(PATIENCE_S) == 0
    front = deploy.front(dark.lab)
    deploy.ask(front, model=front.models[0])


def test_an_image_that_is_not_in_the_lock_fails_preview(packed: DarkSite) -> None:
    lock = packed.project / "images.lock"
    text = lock.read_text()
    lock.write_text("".join(line for line in text.splitlines(keepends=True) if PICKER.path not in line))
    try:
        refused = packed.sitectl("validate", SITE, check=False)
        preview = packed.pulumi("preview", check=False)
    finally:
        lock.write_text(text)
    for reported in (refused.stdout + refused.stderr, preview.stdout + preview.stderr):
        assert f"images.lock lacks 1 image of the site: {PICKER}" in reported
    assert refused.returncode != 0
    assert preview.returncode != 0


def test_a_spoiled_blob_is_refused(packed: DarkSite) -> None:
    blob = max((packed.bundle / "images").rglob("sha256/*"), key=lambda file: file.stat().st_size)
    data = blob.read_bytes()
    blob.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
    try:
        refused = packed.sitectl("bundle", "verify", str(packed.bundle), check=False)
    finally:
        blob.write_bytes(data)
    assert refused.returncode != 0
    assert f"sha256:{blob.name} is spoiled" in refused.stdout + refused.stderr
