"""Weights on each node's own disk: filled once per node, also one that is emptied, and through a new commit.

The site moves its weights onto the nodes for this, and back at the end.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from components.models.weights import claim_name
from lab import session
from lab.cluster.parts import name_of
from lab.hub import made_up
from lab.paths import Lab
from stacks.facts import catalogue
from tests.lab.site.pulumi_runs import Document, Pulumi
from tests.lab.site.running_site import Site
from tests.lab.waiting import eventually

pytestmark = [pytest.mark.exhaustive, pytest.mark.row("000.22", "001.30", "003.09", "003.12")]

MODEL, NAMESPACE = "qwen3-32b", "inference-models"
SERVED = catalogue.load("qwen3-32b-fp8")
NEXT = "2" * 40
SHARD = "model-00003-of-00004.safetensors"
FILES = set(made_up.files(SERVED.repository, NEXT))
_UP = ("up", "--yes", "--skip-preview")
# More than the two nodes that GLM-5.1 leaves, so that one of them runs two.
REPLICAS = 3


def on_nodes(document: Document) -> None:
    weights = {"place": "nodes", "revisions": 2, "download_bytes_per_s": 1.0e11, "node_read_bytes_per_s": 1.0e11}
    document["storage"]["weights"].update(weights)
    volume = {"provisioning": {"disk_selector": 'disk.serial == "WEIGHTS"', "min_size": "4TB", "grow": True}}
    document["cluster"]["machines"]["roles"] = {"hgx": {"volumes": {"weights": volume}}}
    for model in document["models"].values():
        # Its pods end sooner.
        model["server"]["longest_stream_s"] = 30
    document["models"][MODEL]["server"]["replicas"] = REPLICAS


def moved(document: Document) -> None:
    on_nodes(document)
    document["models"][MODEL]["server"]["revision"] = NEXT


@pytest.fixture(scope="module")
def pulumi(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pulumi]:
    """The site with its weights on nodes; afterwards it is again what its checked-in file says."""
    made = Pulumi(site.lab, tmp_path_factory.mktemp("on-nodes"))
    try:
        made(*_UP, *made.edited(on_nodes))
        yield made
    finally:
        site.lab.hub_faults.unlink(missing_ok=True)
        made(*_UP)


@pytest.fixture
def core(site: Site) -> Iterator[client.CoreV1Api]:
    with site.kubernetes() as connection:
        yield client.CoreV1Api(connection)


def gpu_nodes(core: client.CoreV1Api) -> list[str]:
    nodes: list[Any] = core.list_node(label_selector="nvidia.com/gpu.family").items
    return sorted(node.metadata.name for node in nodes)


def disk(lab: Lab, node: str) -> Path:
    """The model's folder on a node."""
    return lab.node_folder(node, f"/var/mnt/weights/{MODEL}")


def revisions(lab: Lab, node: str) -> set[str]:
    """Those that are whole."""
    return {marker.parent.name for marker in (disk(lab, node) / "revisions").glob("*/.weights.json")}


def sent(lab: Lab, revision: str) -> Counter[str]:
    """How often the hub has sent each file of a revision."""
    begin = f"sends {revision}/"
    lines = (lab.logs / "emulated-hub.log").read_text().splitlines()
    return Counter(line.removeprefix(begin).split()[0] for line in lines if line.startswith(begin))


def pods(core: client.CoreV1Api, name: str) -> list[Any]:
    """Pods of the model by the name of their part, without those that end."""
    labels = f"app.kubernetes.io/name={name},app.kubernetes.io/instance={MODEL}"
    there: list[Any] = core.list_namespaced_pod(NAMESPACE, label_selector=labels).items
    return [pod for pod in there if pod.metadata.deletion_timestamp is None and pod.status.phase == "Running"]


def is_ready(pod: Any) -> bool:
    return any(condition.type == "Ready" and condition.status == "True" for condition in pod.status.conditions or ())


def test_each_node_is_filled_once_however_many_replicas_it_runs(
    site: Site, pulumi: Pulumi, core: client.CoreV1Api
) -> None:
    nodes = gpu_nodes(core)
    servers = pods(core, "model-server")
    on_node = Counter(pod.spec.node_name for pod in servers)
    assert len(nodes) > 2
    assert sum(on_node.values()) == REPLICAS
    assert max(on_node.values()) >= 2, "one node runs two of them"
    assert all((disk(site.lab, node) / "used" / SERVED.revision).exists() for node in on_node)
    assert all(is_ready(pod) for pod in servers)
    for node in nodes:
        assert revisions(site.lab, node) == {SERVED.revision}
        there = disk(site.lab, node) / "revisions" / SERVED.revision
        assert (there / SHARD).read_bytes() == made_up.files(SERVED.repository, SERVED.revision)[SHARD]
    (claim,) = {
        volume.persistent_volume_claim.claim_name
        for pod in servers
        for volume in pod.spec.volumes
        if volume.name == "weights"
    }
    claims = {name_of(existing) for existing in core.list_namespaced_persistent_volume_claim(NAMESPACE).items}
    assert claim in claims
    shared = claim_name(MODEL, "longhorn")
    assert shared not in claims, "the shared volume was disposable, and went after its last reader"
    pulumi("preview", "--expect-no-changes", *pulumi.edited(on_nodes))


def test_a_node_whose_disk_is_empty_is_filled_without_an_up(site: Site, pulumi: Pulumi, core: client.CoreV1Api) -> None:
    """As one that joins, or comes back with another disk: its pod begins with what brings the weights."""
    del pulumi
    node = next(pod.spec.node_name for pod in pods(core, "model-server"))
    shutil.rmtree(disk(site.lab, node))
    (filling,) = [pod for pod in pods(core, "model-weights") if pod.spec.node_name == node]
    core.delete_namespaced_pod(filling.metadata.name, NAMESPACE)
    eventually(lambda: revisions(site.lab, node) == {SERVED.revision})
    server = next(pod for pod in pods(core, "model-server") if pod.spec.node_name == node)
    core.delete_namespaced_pod(server.metadata.name, NAMESPACE, grace_period_seconds=0)
    eventually(lambda: len([pod for pod in pods(core, "model-server") if is_ready(pod)]) == REPLICAS)


def test_a_server_waits_for_its_own_node(site: Site, pulumi: Pulumi, core: client.CoreV1Api) -> None:
    del pulumi
    # On any of them, as the scheduler chooses where its successor runs.
    markers = [disk(site.lab, node) / "revisions" / SERVED.revision / ".weights.json" for node in gpu_nodes(core)]
    texts = {marker: marker.read_text() for marker in markers}
    for marker in markers:
        marker.unlink()
    try:
        core.delete_namespaced_pod(pods(core, "model-server")[0].metadata.name, NAMESPACE, grace_period_seconds=0)
        reasons = eventually(lambda: [ended.message for ended in _ended_checks(core)])
        assert f"see the pod of the DaemonSet {MODEL}-weights on this server's node" in " ".join(reasons[0].split())
    finally:
        for marker, text in texts.items():
            marker.write_text(text)
    eventually(lambda: len([pod for pod in pods(core, "model-server") if is_ready(pod)]) == REPLICAS)


def test_a_corrupt_file_ends_the_up_in_words_before_all_nodes_ask_for_it(
    site: Site, pulumi: Pulumi, core: client.CoreV1Api
) -> None:
    site.lab.hub_faults.write_text(json.dumps([{"path": SHARD, "corrupt": True}]))
    failed = session.run_pulumi(site.lab, *_UP, "--stack", session.STACK, *pulumi.edited(moved), check=False)
    assert failed.returncode != 0
    reported = " ".join(f"{failed.stdout}{failed.stderr}".split())
    assert f"{SHARD} of {SERVED.repository} from http://" in reported
    assert "is not the expected file: got sha256" in reported
    begun = [node for node in gpu_nodes(core) if (disk(site.lab, node) / "revisions" / NEXT).exists()]
    # The Job's tries, each on the node that the scheduler chooses.
    assert 1 <= len(begun) <= 3 < len(gpu_nodes(core))
    for node in gpu_nodes(core):
        assert revisions(site.lab, node) == {SERVED.revision}


def test_a_new_commit_comes_to_every_node_once_and_the_earlier_one_stays(
    site: Site, pulumi: Pulumi, core: client.CoreV1Api
) -> None:
    site.lab.hub_faults.unlink(missing_ok=True)
    before, nodes = sent(site.lab, NEXT), gpu_nodes(core)
    pulumi(*_UP, *pulumi.edited(moved))
    for node in nodes:
        assert revisions(site.lab, node) == {SERVED.revision, NEXT}
    mounted = {
        str(mount.sub_path)
        for pod in pods(core, "model-server")
        for mount in pod.spec.containers[0].volume_mounts
        if mount.mount_path == "/models/weights"
    }
    assert mounted == {f"{MODEL}/revisions/{NEXT}"}
    # What the node that failed had verified is not asked for again.
    counts = sent(site.lab, NEXT) - before
    assert set(sent(site.lab, NEXT)) == FILES
    assert counts[SHARD] == len(nodes)
    assert all(count <= len(nodes) for count in counts.values())


def _ended_checks(core: client.CoreV1Api) -> list[Any]:
    labels = f"app.kubernetes.io/name=model-server,app.kubernetes.io/instance={MODEL}"
    servers: list[Any] = core.list_namespaced_pod(NAMESPACE, label_selector=labels).items
    ended = [status.last_state.terminated for pod in servers for status in pod.status.init_container_statuses or ()]
    return [state for state in ended if state]
