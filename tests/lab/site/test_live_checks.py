"""The checks of `tests/live` on the lab: all pass, and each turns red with the fault that it is there for."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from components.gateway.gateway_controllers import AI_NAMESPACE, ENVOY_NAMESPACE
from components.models.weights import claim_name
from lab import session
from lab.cluster.parts import spec_of
from lab.paths import CHECKOUT
from tests import documented
from tests.lab.site.cluster_objects import kubectl
from tests.lab.site.open_gateway import open_gateway
from tests.lab.site.pulumi_runs import Pulumi
from tests.lab.site.replicas import Cluster, Replica, until
from tests.lab.site.running_site import Site
from tests.lab.site.skipped_checks import SKIPPED
from tests.lab.site.test_picker import ENGINE
from tests.lab.site.test_upgrade_path import RELEASE, kill_helm_in_an_upgrade, revisions

pytestmark = pytest.mark.row("opening 5")

FRONT, MODELS = "inference-gateway", "inference-models"
# Red where the gateway lets everyone in; the others of its file pass, or ask the cluster.
OPEN = {
    "a request without a valid key is refused[none]",
    "a request without a valid key is refused[unknown]",
    "who a client claims to be opens nothing",
    "each key lists the models of its tenant",
    "no key calls a model that its tenant does not have",
    "a body past the limit is refused",
    "every model streams an answer under each of its names",
    "a prompt that comes again is found cached",
}
# What the lab cannot make wrong: tests/unit/live/test_live_faults.py does.
BY_UNIT_TEST = {
    "every control plane is a voting member of etcd",
    "the endpoint is reachable from here",
    "the endpoint s certificate is valid for two weeks",
}


def checked(site: Site, folder: Path, *options: str) -> dict[str, dict[str, Any]]:
    """Findings of one run by check."""
    run = documented.argv(
        "python -m pytest tests/live --site lab --endpoint-ca .lab/gateway-ca.crt --evidence evidence"
    )
    here = {".lab/gateway-ca.crt": str(site.lab.gateway_ca), "evidence": str(folder)}
    done = subprocess.run(
        [sys.executable, *(here.get(word, word) for word in run[1:]), "-q", "-p", "no:cacheprovider", *options],
        cwd=CHECKOUT,
        env=session.environment(site.lab),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    written = (folder / "evidence.json").read_text()
    assert not [key for key in site.front.keys.values() if key in written + done.stdout], "a key is in the evidence"
    assert "| check |" in (folder / "evidence.md").read_text()
    return {finding["check"]: finding for finding in json.loads(written)["findings"]}


def red(findings: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {check: finding["reason"] for check, finding in findings.items() if finding["outcome"] == "failed"}


def states(site: Site) -> dict[str, str]:
    """State of each node with GPUs, by `sitectl gpu-nodes`."""
    asked = [sys.executable, "-m", "sitectl", "gpu-nodes", "lab", "--json"]
    done = subprocess.run(asked, cwd=CHECKOUT, env=session.environment(site.lab), capture_output=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    by_node = {node["node"]: node["state"] for node in json.loads(done.stdout)["nodes"]}
    assert done.returncode == int(set(by_node.values()) != {"well"})
    return by_node


@pytest.mark.row("000.12", "002.11")
def test_gpu_nodes_shows_the_state_of_each_machine(site: Site) -> None:
    well = dict.fromkeys(("hgx-1", "hgx-2", "hgx-3", "hgx-4"), "well")
    assert states(site) == well
    kubectl(site.lab, "label", "node", "hgx-1", "nvidia.com/gpu.family-")
    machines(site, "fault", "hgx-2", "module-missing", "--names", "nvidia")
    machines(site, "fault", "hgx-3", "service-down", "--names", "ext-nvidia-fabricmanager")
    machines(site, "fault", "hgx-4", "refuse", "--calls", "connect")
    try:
        broken = ("not-labelled", "modules-not-loaded", "fabric-manager-down", "machine-silent")
        assert states(site) == dict(zip(well, broken, strict=True))
    finally:
        machines(site, "clear", "all")
        kubectl(site.lab, "label", "node", "hgx-1", "nvidia.com/gpu.family=hopper")
    assert states(site) == well


def test_every_check_passes_on_the_lab(site: Site, tmp_path: Path) -> None:
    findings = checked(site, tmp_path)
    assert red(findings) == {}
    skipped = {check: finding["reason"] for check, finding in findings.items() if finding["outcome"] == "skipped"}
    assert skipped.keys() == SKIPPED.keys(), skipped
    assert all(SKIPPED[check] in reason for check, reason in skipped.items())
    assert all(finding["rows"] for finding in findings.values())
    assert all(finding["seen"] for finding in findings.values() if finding["outcome"] == "passed")


def test_checks_turn_red_on_a_gateway_that_is_open(site: Site, tmp_path: Path) -> None:
    with open_gateway() as endpoint:
        findings = checked(site, tmp_path, "--endpoint", endpoint, "-k", "gateway or models")
    assert red(findings).keys() == OPEN


# Check -> what its reason states, of faults that are all there at once.
PLANTED = {
    "machines run the pinned talos and image": "hgx-4: does not answer",
    "services of machines are well": "hgx-3: ext-nvidia-fabricmanager is Waiting",
    "hgx machines carry driver and fabric manager of one version": "hgx-4: does not answer",
    "nodes are ready with the pinned kubelet": "hgx-3 is cordoned",
    "gpu nodes offer all their gpus": "hgx-2 offers 0 of 8 GPUs, not-labelled: no label nvidia.com/gpu.family",
    "the gateway is programmed": "not Programmed",
    "every model has an accepted route": "glm-5-1: {'Accepted': 'False'}",
    "every model has its replicas ready with the planned image": "of 1 declared, the site sets 2",
    "every replica is probed": "qwen3-32b has no livenessProbe",
    "no replica restarts": "restarted 1 times",
    "replicas of a model are on nodes of their own": "all replicas of qwen3-32b are on hgx-",
    "a drain leaves every model a replica": "glm-5-1 has no PodDisruptionBudget",
    "all replicas of a model mount its one volume": "does not mount it",
    "every model has its pickers and its pool": "qwen3-32b: 0 of 1 pickers are Ready",
    "every model streams an answer under each of its names": "qwen3-32b sent 0 chunks",
    "a prompt that comes again is found cached": "qwen3-32b answered with 5",
    "pods refuse what no policy lets in[inference-gateway]": "does not deny by default",
    "pods refuse what no policy lets in[inference-models]": "does not deny by default",
    "pods refuse what no policy lets in[envoy-gateway-system]": "does not deny by default",
    "pods refuse what no policy lets in[envoy-ai-gateway-system]": "does not deny by default",
    "a namespace admits no pod with more rights[envoy-gateway-system]": "enforces none",
    "a namespace admits no pod with more rights[envoy-ai-gateway-system]": "enforces none",
    "the release is deployed in its pinned version[envoy gateway]": "eg is pending-upgrade",
    "the release is deployed in its pinned version[ai gateway]": "there is no release of ai_gateway",
    "an addon s pods are ready[envoy-gateway-system]": "deployment envoy-gateway: 0 of 0 Ready",
    "an addon s pods are ready[envoy-ai-gateway-system]": "deployment ai-gateway-controller: 0 of 0 Ready",
    "a namespace admits no pod with more rights[inference-gateway]": "enforces baseline",
    "a namespace admits no pod with more rights[inference-models]": "enforces privileged",
    "the platform s pods run pinned images": "stray runs docker.io/library/stray",
    "a preview has nothing to change": "preview would change",
}
PSA = "pod-security.kubernetes.io/enforce"
NOW = "2026-01-01T00:00:00Z"
CONTROLLERS = ((ENVOY_NAMESPACE, "envoy-gateway"), (AI_NAMESPACE, "ai-gateway-controller"))
OTHERS = claim_name("glm-5-1", "longhorn")
# The container without its liveness probe, and a volume that is not the model's and nothing that looks at it.
STRIPPED = [
    {"op": "remove", "path": "/spec/template/spec/containers/0/livenessProbe"},
    {"op": "replace", "path": "/spec/template/spec/volumes/0/persistentVolumeClaim/claimName", "value": OTHERS},
    {"op": "remove", "path": "/spec/template/spec/initContainers"},
]
# Nodes that another fault leaves with GPUs and open for pods.
FREE_NODES = ("hgx-1", "hgx-4")
STRAY = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "stray", "namespace": MODELS},
    "spec": {"containers": [{"name": "stray", "image": "docker.io/library/stray"}], "nodeSelector": {"no": "node"}},
}


def selector(model: str) -> str:
    return f"app.kubernetes.io/name=model-server,app.kubernetes.io/instance={model}"


def replicas_of(model: str) -> tuple[str, ...]:
    """Words that name a model's replicas for kubectl."""
    return "-n", MODELS, "pods", "-l", selector(model)


def scale(site: Site, model: str, replicas: int) -> None:
    kubectl(site.lab, "scale", "-n", MODELS, f"deployment/{model}", f"--replicas={replicas}")


def staying(cluster: Cluster, model: str, count: int) -> list[Replica]:
    """The replicas that are not ending; none while they are not as many."""
    replicas = [replica for replica in cluster.pods(MODELS, selector(model)) if not replica.leaving]
    return replicas if len(replicas) == count else []


def placed(cluster: Cluster, model: str, count: int) -> bool:
    replicas = staying(cluster, model, count)
    return bool(replicas) and all(node_of(cluster, replica) for replica in replicas)


def node_of(cluster: Cluster, replica: Replica) -> str | None:
    """Where it runs; None while it waits for room."""
    return spec_of(cluster.core.read_namespaced_pod(replica.name, MODELS)).node_name


def on_one_node(node: str) -> list[dict[str, Any]]:
    return [
        *STRIPPED,
        {"op": "add", "path": "/spec/template/spec/nodeSelector/kubernetes.io~1hostname", "value": node},
    ]


def deny(site: Site, namespace: str, resource: str, condition: str) -> None:
    """Write a condition that its controller, which is away, would correct."""
    conditions = [{"type": condition, "status": "False", "reason": "Planted", "message": "", "lastTransitionTime": NOW}]
    patch = json.dumps({"status": {"conditions": conditions}})
    kubectl(site.lab, "patch", "-n", namespace, resource, "--subresource=status", "--type=merge", "-p", patch)


def plant(site: Site, cluster: Cluster, folder: Path) -> None:
    """Every fault of PLANTED."""
    machines(site, "fault", "hgx-4", "refuse", "--calls", "connect")
    machines(site, "fault", "hgx-3", "service-down", "--names", "ext-nvidia-fabricmanager")
    kubectl(site.lab, "cordon", "hgx-3")
    kubectl(site.lab, "label", "node", "hgx-2", "nvidia.com/gpu.family-")
    kill_helm_in_an_upgrade(site)
    lose_release(site, folder)
    for namespace, name in CONTROLLERS:
        kubectl(site.lab, "scale", "-n", namespace, f"deployment/{name}", "--replicas=0")
        kubectl(site.lab, "delete", "-n", namespace, "networkpolicy/deny-ingress")
        kubectl(site.lab, "label", "namespace", namespace, f"{PSA}-")
    for namespace, level in ((MODELS, "privileged"), (FRONT, "baseline")):
        kubectl(site.lab, "delete", "-n", namespace, "networkpolicy/deny-ingress")
        kubectl(site.lab, "label", "namespace", namespace, f"{PSA}={level}", "--overwrite")
    kubectl(site.lab, "delete", "-n", MODELS, "poddisruptionbudget/glm-5-1")
    kubectl(site.lab, "scale", "-n", MODELS, "deployment/qwen3-32b-epp", "--replicas=0")
    stray = folder / "stray.json"
    stray.write_text(json.dumps(STRAY))
    kubectl(site.lab, "create", "-f", str(stray))
    scale(site, "glm-5-1", 1)
    (left,) = until(lambda: staying(cluster, "glm-5-1", 1), what="one replica of glm-5-1")
    # It takes a whole node.
    node = next(name for name in FREE_NODES if name != node_of(cluster, left))
    # Down and up, so that no replica of the old template is left.
    scale(site, "qwen3-32b", 0)
    patch = json.dumps(on_one_node(node))
    kubectl(site.lab, "patch", "-n", MODELS, "deployment/qwen3-32b", "--type=json", "-p", patch)
    kubectl(site.lab, "delete", *replicas_of("qwen3-32b"), "--force", "--grace-period=0")
    scale(site, "qwen3-32b", 2)
    cluster.kill(left, ENGINE)
    until(lambda: any(replica.restarts for replica in staying(cluster, "glm-5-1", 1)), what="a restarted engine")
    until(lambda: placed(cluster, "qwen3-32b", 2), what="two stripped replicas on a node")
    for namespace, name in CONTROLLERS:
        until(partial(is_away, site, namespace, name), what=f"{name} away")
    deny(site, FRONT, "gateway/inference", "Programmed")
    deny(site, MODELS, "aigatewayroute/glm-5-1", "Accepted")


def lose_release(site: Site, folder: Path) -> None:
    """Helm's Secrets of the AI gateway, out of the cluster and into a file."""
    of_release = ("secrets", "-n", AI_NAMESPACE, "-l", "owner=helm,name=aieg")
    (folder / "release.json").write_text(kubectl(site.lab, "get", *of_release, "-o", "json"))
    kubectl(site.lab, "delete", *of_release)


def restore_releases(site: Site, folder: Path) -> None:
    kubectl(site.lab, "create", "-f", str(folder / "release.json"))
    back = str(max(revisions(site)) - 1)
    argv = ["helm", "rollback", RELEASE, back, "--namespace", ENVOY_NAMESPACE]
    subprocess.run(argv, env=session.environment(site.lab), capture_output=True, check=True)


def is_away(site: Site, namespace: str, deployment: str) -> bool:
    pods = json.loads(kubectl(site.lab, "get", "pods", "-n", namespace, "-o", "json"))["items"]
    return not [pod for pod in pods if pod["metadata"]["name"].startswith(f"{deployment}-")]


def machines(site: Site, *words: str) -> None:
    """An order to the emulated rack."""
    order = [sys.executable, "-m", "lab.machines", *words]
    subprocess.run(order, cwd=CHECKOUT, env=session.environment(site.lab), check=True, capture_output=True)


def undo(site: Site, folder: Path) -> None:
    """The site as its file states it: what the program declares by `up`, and by hand what it does not."""
    machines(site, "clear", "all")
    kubectl(site.lab, "uncordon", "hgx-3")
    kubectl(site.lab, "label", "node", "hgx-2", "nvidia.com/gpu.family=hopper")
    for namespace, name in CONTROLLERS:
        kubectl(site.lab, "scale", "-n", namespace, f"deployment/{name}", "--replicas=1")
    kubectl(site.lab, "delete", "-n", MODELS, "pod/stray", "--force", "--grace-period=0")
    restore_releases(site, folder)
    Pulumi(site.lab, folder)("up", "--yes", "--refresh", "--skip-preview")
    # Each on the nodes that the plan has for it: large replicas first, while no small one holds a GPU of theirs.
    for model in ("qwen3-32b", "glm-5-1"):
        scale(site, model, 0)
        kubectl(site.lab, "delete", *replicas_of(model), "--force", "--grace-period=0")
    for model in ("glm-5-1", "qwen3-32b"):
        scale(site, model, 2)
        kubectl(site.lab, "rollout", "status", "-n", MODELS, f"deployment/{model}", "--timeout=120s")


@pytest.mark.exhaustive
def test_each_check_turns_red_with_its_fault(site: Site, cluster: Cluster, tmp_path: Path) -> None:
    plant(site, cluster, tmp_path)
    try:
        findings = checked(site, tmp_path / "planted")
    finally:
        undo(site, tmp_path)
    reasons = red(findings)
    silent = {check for check, reason in PLANTED.items() if reason not in reasons.get(check, "")}
    assert not silent, {check: findings[check] for check in silent}
    known = PLANTED.keys() | OPEN | BY_UNIT_TEST | SKIPPED.keys()
    assert findings.keys() == known, "a check without a planted fault"
    assert red(checked(site, tmp_path / "undone")) == {}
