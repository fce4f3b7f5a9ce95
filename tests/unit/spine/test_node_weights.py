"""Weights on each node's own disk: the volume, who fills it, and what servers mount of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from components.models import node_weights, weights
from components.models.model_server import deployment
from floor import gpu_nodes
from floor.metadata import DISPOSABLE
from services.weights.manifest import Entry, Manifest, file_name
from stacks.facts import catalogue
from stacks.plan.models import RevisionPlan
from stacks.plan.site_plan import plan_values
from tests.unit.stacks.site_examples import ON_NODES, prod
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("000.22", "001.30", "003.09", "003.12")

QWEN = catalogue.load("qwen3-32b-fp8")


def serving(change: dict[str, Any] | None = None, file: Path | str = "site.yaml") -> RevisionPlan:
    return plan_values(changed(prod(), {**ON_NODES, **(change or {})}), str(file)).models["qwen3-32b"].stable


def store(change: dict[str, Any] | None = None, file: Path | str = "site.yaml") -> weights.WeightsPlan:
    plan = serving(change, file).weights
    assert plan
    return plan


def server(model: RevisionPlan) -> dict[str, Any]:
    spec, plan = model.spec.server, model.server
    body = deployment("qwen3-32b", "m", spec, plan, model.engine, model.weights)
    return dict(body["spec"]["template"]["spec"])


def nodes_pod(plan: weights.WeightsPlan) -> dict[str, Any]:
    return dict(node_weights.daemon_set("qwen3-32b", "m", plan, "hopper")["spec"]["template"]["spec"])


def weight_mounts(container: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {mount["mountPath"]: mount for mount in container["volumeMounts"] if mount["name"] == "weights"}


def test_a_claim_takes_its_own_volume_and_no_other_claim_does() -> None:
    plan = store()
    volume, claim = node_weights.volume("m", plan), node_weights.claim("m", plan)
    reference = volume["spec"]["claimRef"]
    assert (reference["namespace"], reference["name"]) == ("m", claim["metadata"]["name"])
    assert claim["spec"]["volumeName"] == volume["metadata"]["name"]
    for key in ("storageClassName", "accessModes"):
        assert claim["spec"][key] == volume["spec"][key]
    assert claim["spec"]["resources"]["requests"]["storage"] == volume["spec"]["capacity"]["storage"]
    # Deleted, both leave the files where they are.
    assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    assert claim["metadata"]["annotations"][DISPOSABLE] == "true"
    shared = weights.claim_name("qwen3-32b", plan.storage_class)
    assert shared != plan.claim, "both exist while a site changes its place"


@pytest.mark.parametrize("change", [{"storage.weights.revisions": 3}, {"cluster.gpu": "h100-sxm"}])
def test_no_change_of_a_site_changes_a_volume_that_kubernetes_cannot_change(change: dict[str, Any]) -> None:
    more: dict[str, Any] = {
        "cluster.machines.roles.hgx.volumes.weights.provisioning.min_size": "9TB",
        "models.glm-5-1": None,
    }
    more["tenants"] = {"a": {"models": ["qwen3-32b"], "keys": {"laptop": {}}}}
    before, after = store(more), store({**more, **change})
    assert node_weights.volume("m", before) == node_weights.volume("m", after)
    assert node_weights.claim("m", before) == node_weights.claim("m", after)


def test_another_folder_is_another_volume_and_another_claim() -> None:
    other: dict[str, Any] = {
        "storage.weights.node_path": "/var/mnt/fast",
        "cluster.machines.roles.hgx.volumes": {"fast": ON_NODES["cluster.machines.roles.hgx.volumes"]["weights"]},
    }
    volumes = [node_weights.volume("m", plan) for plan in (store(), store(other))]
    assert [volume["spec"]["local"]["path"] for volume in volumes] == ["/var/mnt/weights", "/var/mnt/fast"]
    assert volumes[0]["metadata"]["name"] != volumes[1]["metadata"]["name"]
    assert store().claim != store(other).claim
    names = [weights.node_claim_name("m", path) for path in ("/srv/a-b", "/srv/a/b", "/srv/a--b", "/srv/a-b/c")]
    assert len(set(names)) == len(names)


def test_every_mount_is_the_models_own_folder() -> None:
    model = serving()
    plan = store()
    pod, job = server(model), node_weights.first_job("qwen3-32b", "m", plan, "hopper")["spec"]["template"]["spec"]
    filling = nodes_pod(plan)
    containers = [*pod["initContainers"], *pod["containers"], *job["containers"], *filling["initContainers"]]
    paths = [mount["subPath"] for container in containers for mount in weight_mounts(container).values()]
    assert set(paths) == {
        "qwen3-32b",
        f"qwen3-32b/revisions/{QWEN.revision}",
        "qwen3-32b/vllm-cache",
        "qwen3-32b/used",
    }
    for spec in (pod, job, filling):
        assert {"name": "weights", "persistentVolumeClaim": {"claimName": plan.claim}} in spec["volumes"]
        assert "hostPath" not in str(spec), "pods keep the baseline of Pod Security"
    (engine,) = pod["containers"]
    assert weight_mounts(engine)["/models/weights"]["readOnly"] is True
    assert "/models/used" not in weight_mounts(engine)


def test_nodes_are_filled_where_servers_may_run_and_all_at_once() -> None:
    model = serving()
    body, pod, servers = node_weights.daemon_set("q", "m", store(), "hopper"), nodes_pod(store()), server(model)
    first = node_weights.first_job("q", "m", store(), "hopper")["spec"]["template"]["spec"]
    for filling in (pod, first):
        assert filling["nodeSelector"] == servers["nodeSelector"]
        assert [entry for entry in filling["tolerations"] if "tolerationSeconds" not in entry] == servers["tolerations"]
        assert "affinity" not in filling
    assert body["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] == "100%"
    term = node_weights.volume("m", store())["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert term == [{"matchExpressions": [{"key": gpu_nodes.FAMILY_LABEL, "operator": "Exists"}]}]


def test_only_what_brings_has_the_token_and_the_source() -> None:
    pod = nodes_pod(store())
    (bring,), (hold,) = pod["initContainers"], pod["containers"]
    named = {variable["name"] for variable in bring["env"]}
    assert {"HF_TOKEN", "HF_ENDPOINT"} <= named
    assert named.isdisjoint({"HF_TOKEN"} & {variable["name"] for variable in hold["env"]})
    assert hold["command"][-1] == "hold"
    assert weight_mounts(hold) == {}
    selected = node_weights.daemon_set("qwen3-32b", "m", store(), "hopper")["spec"]["selector"]["matchLabels"]
    policy = weights.network_policy("qwen3-32b", "m", store())["spec"]["podSelector"]["matchLabels"]
    assert policy.items() < selected.items(), "the Job's policy is about these pods too"
    job_labels = node_weights.first_job("qwen3-32b", "m", store(), "hopper")["spec"]["template"]["metadata"]["labels"]
    assert not selected.items() <= job_labels.items(), "the DaemonSet does not take the Job's pods for its own"


def test_what_brings_on_nodes_removes_earlier_revisions_and_keeps_one_that_is_served() -> None:
    assert [store({"storage.weights.revisions": count}).order.keep for count in (2, 3)] == [2, 3]
    for pod in (nodes_pod(store()), node_weights.first_job("q", "m", store(), "hopper")["spec"]["template"]["spec"]):
        (bring,) = pod.get("initContainers") or pod["containers"]
        assert "--remove-earlier" in bring["args"]
    shared = plan_values(prod(), "site.yaml").models["qwen3-32b"].stable.weights
    assert shared
    assert "--remove-earlier" not in str(weights.job("q", "m", shared))


def test_a_servers_check_names_what_fills_its_node() -> None:
    check, _ = server(serving())["initContainers"]
    assert "--daemon-set=qwen3-32b-weights" in check["args"]
    assert "--used=/models/used" in check["args"]
    assert not any(flag.startswith("--job=") for flag in check["args"])
    assert node_weights.daemon_set("qwen3-32b", "m", store(), "hopper")["metadata"]["name"] == "qwen3-32b-weights"


def test_simulators_without_weights_have_no_volume_on_nodes() -> None:
    model = serving({"purpose": "trial", "models.qwen3-32b.server.engine": "simulator"})
    assert model.weights is None
    assert not [volume for volume in server(model)["volumes"] if volume["name"] == "weights"]


def test_a_lock_changes_the_order_of_nodes_too(tmp_path: Path) -> None:
    lock = Manifest(QWEN.repository, QWEN.revision, {"model.safetensors": Entry(50 * 2**30, "ab" * 32)})
    without = store(file=tmp_path / "Pulumi.prod.yaml")
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / file_name(QWEN.repository, QWEN.revision)).write_text(lock.text())
    plan = store(file=tmp_path / "Pulumi.prod.yaml")
    (bring,) = nodes_pod(plan)["initContainers"]
    assert f"--digest={plan.order.digest}" in bring["args"]
    assert plan.order.digest != without.order.digest


def test_a_start_reads_at_the_rate_of_the_nodes_disk() -> None:
    fast = serving({"storage.weights.node_read_bytes_per_s": 6.0e9}).server.load_s
    assert serving().server.load_s == pytest.approx(2 * fast)
