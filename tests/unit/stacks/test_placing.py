"""All models of a site on the nodes that it names: fit, a lost node, a rollout."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.models import model_server
from floor import gpu_nodes
from floor.problems import SiteError
from stacks.plan.orders import order_of
from stacks.plan.placement import place
from stacks.plan.placing import crowds, demands_of, describe_placement, fewest_nodes, nodes_of
from stacks.plan.site_plan import plan_file, plan_values
from stacks.proof.proof import Proof, prove
from stacks.site.loader import KEY
from stacks.site.model import SiteConfig
from tests.unit.stacks.site_examples import prod

pytestmark = pytest.mark.row("opening 1", "002.12")

ROOT = Path(__file__).parents[3]
VALID = ROOT / "tests" / "fixtures" / "sites" / "valid"
FULL: dict[str, Any] = yaml.safe_load((VALID / "full-nodes.yaml").read_text())["config"][KEY]


def site(**models: dict[str, Any]) -> SiteConfig:
    """The site of two HGX nodes (and one that is tainted), with these servers of its models."""
    values = copy.deepcopy(FULL)
    for name, server in models.items():
        values["models"][name]["server"] = server
    return plan_values(values, "site.yaml").site


def proofs(config: SiteConfig) -> dict[str, Proof]:
    return {name: prove(order_of(config, name, spec)) for name, spec in config.models.items()}


def reported(config: SiteConfig) -> str:
    return describe_placement(config, proofs(config), config.models)


def test_nodes_are_the_machines_that_take_replicas() -> None:
    config = site()
    assert [(node.name, node.gpus) for node in nodes_of(config) or []] == [("hgx-1", 8), ("hgx-2", 8)]
    values = copy.deepcopy(FULL)
    values["cluster"]["machines"]["roles"] = {"hgx": {"taints": {"nvidia.com/gpu": "present:NoSchedule"}}}
    values["cluster"]["machines"]["nodes"]["hgx-3"]["taints"] = {"example.org/soft": "yes:PreferNoSchedule"}
    assert len(nodes_of(plan_values(values, "site.yaml").site) or []) == 3
    assert nodes_of(plan_file(VALID / "one-hgx-node.yaml").site) is None


def test_every_replica_takes_the_gpus_of_its_layout() -> None:
    config = site(llama={"replicas": 1, "layout": {"tensor": 2, "pipeline": 2}})
    demands = [(demand.model, demand.gpus, demand.replicas) for demand in demands_of(proofs(config))]
    assert demands == [("glm", 8, 1), ("llama", 4, 1), ("qwen", 1, 2)]


def test_a_site_that_is_full_says_what_a_lost_node_ends() -> None:
    text = reported(site())
    assert text.startswith("placement: fits, A LOST NODE ENDS A MODEL. 16 of 16 GPUs on 2 nodes of 8 h200-sxm\n")
    assert "free        0 GPUs; not counted: hgx-3 (taint example.org/training)" in text
    assert "lost node   hgx-1: glm has no replica until a node is back" in text
    assert "without a replica meanwhile: glm; no room for one more of any" in text


def test_one_replica_more_than_there_is_room_for_is_refused_with_the_fix() -> None:
    with pytest.raises(SiteError) as caught:
        site(qwen={"replicas": 3})
    message = str(caught.value)
    assert "models.qwen.server.replicas: 1 of 3 replicas find no room: each takes 1 GPU of one node" in message
    assert "fix: lower models.qwen.server.replicas from 3 to 2; or add 1 node of role hgx" in message


def test_the_fixes_work() -> None:
    """Both ways out of the refusal above."""
    assert site(qwen={"replicas": 2})
    values = copy.deepcopy(FULL)
    values["models"]["qwen"]["server"] = {"replicas": 3}
    values["cluster"]["machines"]["nodes"]["hgx-4"] = {"role": "hgx", "address": "10.5.0.24"}
    assert plan_values(values, "site.yaml").site


def test_new_nodes_do_not_help_where_their_role_is_tainted() -> None:
    values = copy.deepcopy(FULL)
    roles = values["cluster"]["machines"].setdefault("roles", {})
    roles["hgx"] = {"taints": {"dedicated": "x:NoSchedule"}}
    with pytest.raises(SiteError) as caught:
        plan_values(values, "site.yaml")
    assert "fix: take dedicated out of cluster.machines.roles.hgx.taints" in str(caught.value)
    assert "add" not in caught.value.problems[0].fix
    values["models"]["qwen"]["server"] = {"replicas": 3}
    with pytest.raises(SiteError, match=r"roles\.hgx\.taints, and add 1 node of role hgx"):
        plan_values(values, "site.yaml")
    roles["hgx"]["taints"] = {}
    values["models"]["qwen"]["server"] = {"replicas": 2}
    assert plan_values(values, "site.yaml").site


def test_a_cut_that_misses_targets_is_no_fix() -> None:
    values = copy.deepcopy(FULL)
    values["models"] = {
        "glm": {
            "catalogue": "glm-5.1-fp8",
            "load": {"requests_per_s": 2.5, "prefix_hit": 0.5},
            "slo": {"ttft_p95_ms": 6000, "itl_p95_ms": 100},
            "server": {"replicas": 3, "gpus": 8},
        }
    }
    with pytest.raises(SiteError, match=r"find no room(.|\n)*fix: add 1 node of role hgx to cluster\.machines\.nodes$"):
        plan_values(values, "site.yaml")


def test_a_lost_node_is_judged_by_the_targets_of_what_is_left() -> None:
    values = prod()
    values["models"]["glm-5-1"]["load"]["requests_per_s"] = 1.0
    del values["models"]["glm-5-1"]["server"]["priority"]
    result = reported(plan_values(values, "site.yaml").site)
    assert "hgx-1, hgx-2: glm-5-1 has 1 of 2 replicas and may miss its targets" in result
    assert "hgx-3, hgx-4: holds once its replicas have started on other nodes" in result
    assert "; uncertain meanwhile: glm-5-1" in result
    values["models"]["glm-5-1"]["load"]["requests_per_s"] = 0.1
    result = reported(plan_values(values, "site.yaml").site)
    assert "hgx-1, hgx-2: glm-5-1 has 1 of 2 replicas and keeps its targets" in result
    assert "uncertain meanwhile: qwen3-32b;" in result
    values["models"]["glm-5-1"]["load"]["requests_per_s"] = 1.35
    result = reported(plan_values(values, "site.yaml").site)
    assert "hgx-1, hgx-2: glm-5-1 has 1 of 2 replicas and misses its targets" in result
    assert "beyond their targets meanwhile: glm-5-1" in result


def test_a_dead_node_is_no_room_and_no_refusal() -> None:
    """Removing a dead node takes an `up` before the site can become smaller."""
    values = copy.deepcopy(FULL)
    values["cluster"]["machines"]["nodes"]["hgx-2"]["dead"] = True
    plan = plan_values(values, "site.yaml")
    config = plan.site
    assert list(crowds(config, proofs(config))) == []
    assert [warning.what for warning in plan.warnings if "3 of 3 replicas find no room" in warning.what]
    text = reported(config)
    assert text.startswith("placement: DOES NOT FIT\n")
    assert "llama       3 of 3 replicas find no room" in text
    assert "not counted: hgx-2 (dead), hgx-3 (taint example.org/training)" in text


def test_nodes_that_nobody_names_are_unknown() -> None:
    config = plan_file(VALID / "three-hundred-nodes.yaml").site
    text = reported(config)
    assert text.startswith("placement: unknown, as cluster.kubeconfig does not list the nodes. 2,400 GPUs are needed")
    assert text.endswith("on at least 300 nodes of 8 h200-sxm")


def test_the_fewest_nodes_hold_all_and_one_less_does_not() -> None:
    config = site()
    demands = demands_of(proofs(config))
    assert fewest_nodes(demands) == 2
    nodes = nodes_of(config) or []
    assert place(nodes, demands).fits
    assert not place(nodes[:1], demands).fits


@pytest.mark.exhaustive
def test_a_large_site_is_a_few_lines() -> None:
    values = yaml.safe_load((VALID / "three-hundred-nodes.yaml").read_text())["config"][KEY]
    machines = copy.deepcopy(FULL["cluster"]["machines"])
    machines["networks"] = {"nodes": ["10.5.0.0/16"], "pods": "10.64.0.0/12"}
    machines["nodes"] = {"cp-1": {"role": "controlplane", "address": "10.5.0.11"}}
    for number in range(300):
        address = f"10.5.{1 + number // 100}.{number % 100 + 1}"
        machines["nodes"][f"hgx-{number:03}"] = {"role": "hgx", "address": address}
    values["cluster"] = {"machines": machines}
    text = reported(SiteConfig.model_validate(values))
    assert text.startswith(
        "placement: fits, a replica of every model outlives any one node. 2,400 of 2,400 GPUs on 300 nodes"
    )
    assert len(text.splitlines()) < 16
    assert max(map(len, text.splitlines())) < 240


def test_machines_that_a_replica_fills_are_labelled_and_no_others() -> None:
    """The label that replicas of whole nodes prefer and smaller ones avoid (ADR 45)."""
    plan = plan_values(prod(), "site.yaml")
    assert plan.machines
    labels = {node.name: plan.machines._node(node, {}).settings.node_labels for node in plan.machines.nodes}
    assert {name for name, own in labels.items() if gpu_nodes.WHOLE_LABEL in own} == {"hgx-1", "hgx-2"}
    assert "kept whole  hgx-1, hgx-2, which smaller replicas take last" in plan.placement_text
    preferences = {
        name: _preference(model_server.deployment(name, "m", of.spec.server, of.server, of.engine))
        for name, of in ((name, model.stable) for name, model in plan.models.items())
    }
    assert preferences == {"glm-5-1": "Exists", "qwen3-32b": "DoesNotExist"}


def test_a_priority_is_a_class_of_the_models_own_and_another_value_another_class() -> None:
    """Kubernetes changes no value of a class. Without the key, whole nodes are placed first and stop no other."""
    values = prod()
    classes = {}
    for priority in (100, 200, None, 0):
        values["models"]["glm-5-1"]["server"]["priority"] = priority
        of = plan_values(values, "site.yaml").models["glm-5-1"].stable
        pod = model_server.deployment("glm-5-1", "m", of.spec.server, of.server, of.engine)["spec"]["template"]["spec"]
        made = model_server.priority_class("glm-5-1", "m", of.server.priority)
        assert pod.get("priorityClassName") == (made["metadata"]["name"] if priority != 0 else None)
        classes[made["metadata"]["name"]] = (made["value"], made["preemptionPolicy"])
    assert classes == {
        "m-glm-5-1-100": (100, "PreemptLowerPriority"),
        "m-glm-5-1-200": (200, "PreemptLowerPriority"),
        "m-glm-5-1-waiting-100": (100, "Never"),
        "m-glm-5-1-0": (0, "PreemptLowerPriority"),
    }
    small = plan_values(values, "site.yaml").models["qwen3-32b"].stable
    assert (small.server.priority.value, small.server.priority.preempts) == (0, False)


def test_the_placement_shows_what_a_priority_would_do_and_what_it_does() -> None:
    values = prod()
    line = "hgx-1, hgx-2: holds once its replicas have started on other nodes, where 2 of qwen3-32b make room and "
    assert line in plan_values(values, "site.yaml").placement_text
    del values["models"]["glm-5-1"]["server"]["priority"]
    text = plan_values(values, "site.yaml").placement_text
    assert "hgx-1, hgx-2: glm-5-1 has 1 of 2 replicas and may miss its targets" in text
    assert "priority    models.glm-5-1.server.priority: 100 would keep all its replicas after the loss of hgx-1" in text
    # On three nodes it would leave the small model without any.
    del values["cluster"]["machines"]["nodes"]["hgx-4"]
    assert "server.priority" not in plan_values(values, "site.yaml").placement_text


def test_models_without_smaller_ones_beside_them_need_no_word_about_whole_nodes() -> None:
    values = prod()
    del values["models"]["qwen3-32b"]
    for tenant in values["tenants"].values():
        tenant["models"] = ["glm-5-1"]
    plan = plan_values(values, "site.yaml")
    assert "kept whole" not in plan.placement_text


def _preference(deployment: dict[str, Any]) -> str:
    affinity = deployment["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (preferred,) = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
    (wanted,) = preferred["preference"]["matchExpressions"]
    assert (wanted["key"], preferred["weight"]) == (gpu_nodes.WHOLE_LABEL, 100)
    operator: str = wanted["operator"]
    return operator
