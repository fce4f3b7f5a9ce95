"""Replicas of a model that spans several nodes: a group of pods each, one a node, by LeaderWorkerSet (ADR 62).

The first pod of a group leads: it has the engine's front end and its scheduler, and alone takes requests. vLLM's own
processes join the others, without Ray. Fields and labels as LeaderWorkerSet v0.10.0 has them
(api/leaderworkerset/v1/leaderworkerset_types.go, pkg/webhooks/pod_webhook.go), flags as vLLM 0.32 does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from components.models.liveness import PROGRAM, WATCH_PORT
from components.network_policies import allow_ingress, peer
from floor.metadata import GROUPS_LABEL

# Value of the label app.kubernetes.io/name of pods that do not lead; no pool, monitor or route selects it.
WORKER = "model-worker"
_LEADER, _RANK = "$(LWS_LEADER_ADDRESS)", "$(LWS_WORKER_INDEX)"
# The leader's own container answers there until its engine has ended its streams. It is asked once a second, and three
# answers that fail in a row are its end, not a busy node.
_HOLD = f"""
import os, socket, time
host, missed = socket.gethostbyname(os.environ["LWS_LEADER_ADDRESS"]), 0
while missed < 3:
    try:
        socket.create_connection((host, {WATCH_PORT}), 2).close()
        missed = 0
    except OSError:
        missed += 1
    time.sleep(1)
"""
_NAMES = [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]


def leader_worker_set(deployment: Mapping[str, Any], nodes: int, rdma: str, start_s: int) -> dict[str, Any]:
    """The groups, from the Deployment of the same replicas whose pods have one node's part of the GPUs each.

    rdma: resource of the nodes' RDMA devices; empty for simulators, which are whole in each pod and join no other.
    start_s: seconds that a start may take. One group is replaced after the other, as no GPU is spare for a surge.
    """
    meta, spec = deployment["metadata"], deployment["spec"]
    template = spec["template"]
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {**meta, "annotations": {"pulumi.com/waitFor": "condition=Available"}},
        "spec": {
            "replicas": spec["replicas"],
            "startupPolicy": "LeaderCreated",
            "rolloutStrategy": {
                "type": "RollingUpdate",
                "rollingUpdateConfiguration": {"maxUnavailable": 1, "maxSurge": 0, "partition": 0},
            },
            "networkConfig": {"subdomainPolicy": "Shared"},
            "leaderWorkerTemplate": {
                "size": nodes,
                # Ranks that have lost one of them never find each other again. A check of weights that fails before all
                # have begun takes no group with it, and its log stays.
                "restartPolicy": "RecreateGroupAfterStart",
                "leaderTemplate": _leader(template, nodes, rdma, start_s),
                "workerTemplate": _worker(template, nodes, rdma, start_s),
            },
        },
    }


def _leader(template: Mapping[str, Any], nodes: int, rdma: str, start_s: int) -> dict[str, Any]:
    pod = template["spec"]
    engine = _joined(pod["containers"][0], nodes, "0", rdma, start_s)
    return {**template, "spec": {**pod, "containers": [engine]}}


def _worker(template: Mapping[str, Any], nodes: int, rdma: str, start_s: int) -> dict[str, Any]:
    """A pod that takes no requests: without probes, as it has no address of its own to ask, and without a port.

    It goes with its group. On SIGTERM it first waits until the leader has ended its streams.
    """
    pod, labels = template["spec"], template["metadata"]["labels"]
    engine = _joined(pod["containers"][0], nodes, _RANK, rdma, start_s)
    left_out = ("ports", "startupProbe", "readinessProbe", "livenessProbe")
    engine = {key: value for key, value in engine.items() if key not in left_out}
    if rdma:
        engine["args"] = [*engine["args"], "--headless"]
        engine["lifecycle"] = {"preStop": {"exec": {"command": ["python3", "-c", _HOLD]}}}
    first = [container for container in pod.get("initContainers", ()) if container["name"] != PROGRAM]
    kept = {key: value for key, value in pod.items() if key not in ("initContainers", "topologySpreadConstraints")}
    return {
        "metadata": {"labels": {**labels, "app.kubernetes.io/name": WORKER}},
        "spec": {**kept, **({"initContainers": first} if first else {}), "containers": [engine]},
    }


def _joined(engine: Mapping[str, Any], nodes: int, rank: str, rdma: str, start_s: int) -> dict[str, Any]:
    """An engine's container as one of its group's ranks; the controller sets the variables in every container."""
    if not rdma:
        return dict(engine)
    resources = engine["resources"]
    return {
        **engine,
        "args": [
            *engine["args"],
            "--distributed-executor-backend=mp",
            f"--nnodes={nodes}",
            f"--node-rank={rank}",
            f"--master-addr={_LEADER}",
            # One node may pull its image or read its weights while others wait; PyTorch's own are ten minutes, and half
            # an hour between CPUs, over which ranks meet again once they have loaded the model.
            f"--distributed-timeout-seconds={start_s}",
            f"--cpu-distributed-timeout-seconds={start_s}",
        ],
        # Without it the engine asks the kernel for the way to an address outside, which pods may not have.
        "env": [*engine["env"], {"name": "VLLM_HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        "resources": {side: {**asked, rdma: "1"} for side, asked in resources.items()},
        # What a card reads and writes by itself stays in memory.
        "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
    }


def disruption_budget(single: Mapping[str, Any], nodes: int) -> dict[str, Any]:
    """A node drain takes so many groups at a time as the budget of single pods has it.

    Each evicted pod takes its group with it. So with M groups allowed, M - 1 of them may be out whole when the next pod
    goes.
    """
    most = (single["spec"]["maxUnavailable"] - 1) * nodes + 1
    selector = {"matchLabels": {GROUPS_LABEL: single["metadata"]["name"]}}
    return {**single, "spec": {**single["spec"], "maxUnavailable": most, "selector": selector}}


def group_policy(name: str, namespace: str) -> dict[str, Any]:
    """Pods of the groups reach each other at any port, as ranks choose theirs, and names, by which they are found."""
    own = {GROUPS_LABEL: name}
    within = peer(own)
    return allow_ingress(
        f"{name}-group", namespace, own, [([within], ())], egress=[{"to": [dict(within)]}, {"ports": _NAMES}]
    )
