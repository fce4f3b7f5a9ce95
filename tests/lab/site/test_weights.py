"""Weights on a running site: a corrupt file ends `up` in words, servers wait for a whole revision, a disk fills up."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from components.models.weights import claim_name
from lab.cluster.parts import status_of
from lab.hub import made_up
from lab.hub.server import EmulatedHubServer
from lab.hub.server import Hub as EmulatedHub
from lab.machines import lab_rack
from lab.machines.admin import ask
from services.weights.bringing import Bringing
from services.weights.failure import Exit, WeightsError
from services.weights.hub import Hub
from services.weights.order import Wanted, WeightsOrder
from services.weights.volume import Volume
from stacks.facts import catalogue
from tests.lab.site.pulumi_runs import Pulumi
from tests.lab.site.running_site import Site
from tests.lab.site.stack_changes import Document, edited_stack
from tests.lab.waiting import eventually

pytestmark = pytest.mark.row("000.19", "000.20", "000.22", "003.12", "opening 10")

MODEL, NAMESPACE = "qwen3-32b", "inference-models"
SERVED = catalogue.load("qwen3-32b-fp8")
NEXT = "1" * 40
SHARD = "model-00003-of-00004.safetensors"


@pytest.fixture
def core(site: Site) -> Iterator[client.CoreV1Api]:
    with site.kubernetes() as connection:
        yield client.CoreV1Api(connection)


def volume(site: Site, core: client.CoreV1Api) -> Path:
    claim: Any = core.read_namespaced_persistent_volume_claim(claim_name(MODEL, "longhorn"), NAMESPACE)
    return site.lab.volumes / str(claim.spec.volume_name)


def servers(core: client.CoreV1Api) -> list[Any]:
    """Pods that serve, without those that drain."""
    labels = f"app.kubernetes.io/name=model-server,app.kubernetes.io/instance={MODEL}"
    pods: list[Any] = core.list_namespaced_pod(NAMESPACE, label_selector=labels).items
    return [pod for pod in pods if pod.metadata.deletion_timestamp is None]


def revisions(core: client.CoreV1Api) -> set[str]:
    """What the servers mount, for reading alone."""
    mounts = [mount for pod in servers(core) for mount in pod.spec.containers[0].volume_mounts]
    return {str(mount.sub_path) for mount in mounts if mount.mount_path == "/models/weights" and mount.read_only}


@pytest.mark.exhaustive
def test_a_corrupt_file_ends_the_up_in_words_and_the_next_one_goes_on(
    site: Site, core: client.CoreV1Api, tmp_path: Path
) -> None:
    def moved(document: Document) -> None:
        document["models"][MODEL]["server"]["revision"] = NEXT

    before = revisions(core)
    assert before == {f"revisions/{SERVED.revision}"}
    site.lab.hub_faults.write_text(json.dumps([{"path": SHARD, "corrupt": True}]))
    try:
        with edited_stack(site.lab, tmp_path) as stack:
            pulumi = Pulumi(site.lab, tmp_path)
            failed = pulumi("up", "--yes", "--skip-preview", *pulumi.edited(moved), check=False)
            assert failed.returncode != 0
            reported = " ".join(f"{failed.stdout}{failed.stderr}".split())
            assert f"{SHARD} of {SERVED.repository} from http://" in reported
            assert "is not the expected file: got sha256" in reported
            assert "Traceback" not in reported
            assert revisions(core) == before
            assert not (volume(site, core) / "revisions" / NEXT / ".weights.json").exists()
            site.lab.hub_faults.unlink()
            stack.up(moved)
            assert revisions(core) == {f"revisions/{NEXT}"}
            there = volume(site, core) / "revisions"
            assert (there / NEXT / SHARD).read_bytes() == made_up.files(SERVED.repository, NEXT)[SHARD]
            # Once every server runs on the new one; there is room for one alone.
            assert [folder.name for folder in there.iterdir()] == [NEXT]
    finally:
        site.lab.hub_faults.unlink(missing_ok=True)
    assert revisions(core) == before


@pytest.mark.exhaustive
def test_a_job_goes_on_elsewhere_when_its_node_is_lost(site: Site, core: client.CoreV1Api, tmp_path: Path) -> None:
    """In the same `up`. The hub falls silent within a file, and the Job's machine loses its power."""

    def moved(document: Document) -> None:
        document["models"][MODEL]["server"]["revision"] = NEXT

    def job_pods() -> dict[str, str]:
        """Node of each pod of the Job, by name."""
        labels = f"app.kubernetes.io/name=model-weights,batch.kubernetes.io/job-name={MODEL}-weights-{NEXT[:8]}"
        pods: list[Any] = core.list_namespaced_pod(NAMESPACE, label_selector=labels).items
        return {pod.metadata.name: pod.spec.node_name for pod in pods if pod.spec.node_name}

    def power(node: str, action: str) -> None:
        ask(lab_rack.folder(site.lab), {"machine": node, "action": action})

    site.lab.hub_faults.write_text(json.dumps([{"path": SHARD, "stall_at": 1024}]))
    with edited_stack(site.lab, tmp_path) as stack, ThreadPoolExecutor(1) as beside:
        up = beside.submit(stack.up, moved)
        ((first, lost),) = eventually(job_pods).items()
        eventually(lambda: status_of(core.read_namespaced_pod(first, NAMESPACE)).phase == "Running")
        power(lost, "off")
        try:
            site.lab.hub_faults.unlink()
            others = eventually(lambda: {name: node for name, node in job_pods().items() if name != first})
            assert lost not in others.values()
        finally:
            power(lost, "on")
        up.result()
        assert revisions(core) == {f"revisions/{NEXT}"}


def test_no_server_starts_on_a_revision_that_is_not_whole(site: Site, core: client.CoreV1Api) -> None:
    marker = volume(site, core) / "revisions" / SERVED.revision / ".weights.json"
    text, pod = marker.read_text(), servers(core)[0].metadata.name
    marker.unlink()
    try:
        core.delete_namespaced_pod(pod, NAMESPACE, grace_period_seconds=0)
        waiting = eventually(lambda: [status for status in _checks(core) if status.last_state.terminated])
        ended = waiting[0].last_state.terminated
        assert ended.exit_code == Exit.INCOMPLETE
        assert "it has no marker" in ended.message
        assert f"kubectl logs job/{MODEL}-weights-{SERVED.revision[:8]}" in ended.message
    finally:
        marker.write_text(text)
    eventually(lambda: len([pod for pod in servers(core) if _is_ready(pod)]) == 2)


def test_the_engine_cannot_write_the_weights(site: Site, core: client.CoreV1Api) -> None:
    pod = servers(core)[0]
    check = next(container for container in pod.spec.init_containers if container.name == "check-weights")
    mounts = [*check.volume_mounts, *pod.spec.containers[0].volume_mounts]
    mounted = {mount.mount_path: mount.read_only for mount in mounts}
    assert mounted["/models/weights"] is True
    assert mounted["/opt/platform/services/weights"] is True


def test_a_volume_that_fills_up_keeps_what_came(tmp_path: Path) -> None:
    """A real file system of 400 kB, though statvfs promised more."""
    root = tmp_path / "volume"
    root.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(root)], check=True)
    server = EmulatedHubServer(EmulatedHub())
    try:
        wanted = (Wanted(SERVED.repository, NEXT, ""),)
        order = WeightsOrder("m", "mirror", server.url, 1e9, 1, 1, "", wanted)
        with pytest.raises(WeightsError) as full:
            Bringing(order, Volume(root, free=lambda _: 10**9), Hub(server.url), lambda _: None).run()
        assert full.value.status == Exit.NO_SPACE
        assert "the volume is full" in str(full.value)
        assert "storage.weights.revisions" in str(full.value)
        kept = sum(file.stat().st_size for file in root.rglob("*") if file.is_file())
        assert kept > 300_000
    finally:
        server.close()
        subprocess.run(["umount", str(root)], check=True)


def _checks(core: client.CoreV1Api) -> list[Any]:
    return [status for pod in servers(core) for status in pod.status.init_container_statuses or ()]


def _is_ready(pod: Any) -> bool:
    return any(condition.type == "Ready" and condition.status == "True" for condition in pod.status.conditions or ())
