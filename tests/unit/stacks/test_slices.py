"""Models on slices of GPUs (MIG): what is proven, where they are placed, and what is refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from floor.problems import SiteError
from stacks.facts import catalogue, mig, versions
from stacks.facts.hardware import GPUS, GpuSlice, slice_name, slices_per_node
from stacks.plan.conflicts import conflicts
from stacks.plan.images import untagged_repositories
from stacks.plan.placing import nodes_of
from stacks.plan.promises import site_promise
from stacks.plan.site_plan import SitePlan, plan_values
from stacks.proof import several_nodes
from stacks.proof.bands import fidelity_of
from stacks.proof.demand import Prices
from stacks.proof.fixes import nearest
from stacks.proof.money import gpu_hourly
from stacks.proof.order import Order
from stacks.proof.proof import prove
from tests.unit.stacks.site_examples import prod, under_later_operator
from tests.unit.stacks.wrong_sites import M, Wrong, changed, refused_and_fixed

pytestmark = pytest.mark.row("000.12", "001.08")

KIND = "h200-sxm/1g.18gb"
SLICE = "models.embed.server.gpu_slice"
LAYOUT = f"{M}.nodes.hgx-4.mig"
EXTERNAL = {"cluster.gpu_stack": "external"}
SLICED: dict[str, Any] = {
    **EXTERNAL,
    LAYOUT: "all-1g.18gb",
    "models.embed": {"catalogue": "qwen3-embedding-0.6b", "server": {"gpu_slice": "1g.18gb", "replicas": 3}},
}


def sliced(**more: Any) -> SitePlan:
    return plan_values(changed(prod(), SLICED | more), "site.yaml")


# ----- figures


@pytest.mark.parametrize("gpu", mig.cut_kinds())
def test_no_layout_gives_out_more_than_the_gpu_has(gpu: str) -> None:
    whole = GPUS[gpu]
    for profile, own in mig.slices_of(gpu).items():
        part = GPUS[slice_name(gpu, profile)]
        assert isinstance(part, GpuSlice)
        count = own.of_a_gpu
        assert count * part.memory_bytes <= whole.memory_bytes * 1.001, profile
        assert count * part.memory_bytes_per_s <= whole.memory_bytes_per_s * 1.001, profile
        assert all(count * part.flops[precision] <= peak * 1.001 for precision, peak in whole.flops.items()), profile
        assert count * part.pcie_bytes_per_s <= whole.pcie_bytes_per_s * 1.001, profile
        assert slices_per_node(slice_name(gpu, profile)) == count * whole.gpus_per_node


def test_a_slice_has_its_shares_of_the_gpu_that_its_file_describes() -> None:
    """An eighth of 4.8 TB/s, 16 of 132 multiprocessors, and the memory that the driver reports of it."""
    part, whole = GPUS[KIND], GPUS["h200-sxm"]
    assert part.memory_bytes == 16 * 2**30
    assert part.memory_bytes_per_s == whole.memory_bytes_per_s / 8 == 600e9
    assert part.flops["fp8"] == pytest.approx(whole.flops["fp8"] * 16 / 132)
    assert (part.link_domain, part.family, part.board) == (1, "hopper", "hgx")


def test_a_slice_is_as_slow_as_its_smaller_share_of_the_way_to_memory() -> None:
    """A 1g.35gb has two eighths of the memory, and one eighth of the cache in front of it."""
    wide, whole = GPUS["h200-sxm/1g.35gb"], GPUS["h200-sxm"]
    assert wide.memory_bytes == GPUS["h200-sxm/2g.35gb"].memory_bytes
    assert wide.memory_bytes_per_s == whole.memory_bytes_per_s / 8


def test_slices_are_no_kinds_that_nodes_have() -> None:
    assert not [name for name in GPUS if "/" in name]
    with pytest.raises(KeyError):
        GPUS["h200-sxm/1g.99gb"]
    with pytest.raises(KeyError):
        GPUS["l40s/1g.18gb"]


@pytest.mark.parametrize("gpu", mig.cut_kinds())
def test_all_slices_of_a_gpu_cost_what_the_gpu_costs(gpu: str) -> None:
    prices = Prices(gpu_hour=3.5, currency="EUR", power_kwh=0.3)
    for profile, own in mig.slices_of(gpu).items():
        bill = gpu_hourly(GPUS[slice_name(gpu, profile)], prices) * own.of_a_gpu
        assert bill == pytest.approx(gpu_hourly(GPUS[gpu], prices)), profile


def order(model: str, gpu: str) -> Order:
    return Order(name=model, model=catalogue.load(model), gpu=gpu, one_node=True, simple=True, replicas=2)


def test_what_is_proven_on_a_slice_is_estimated_with_the_widest_band() -> None:
    on_slice, on_gpu = (order("llama-3.2-1b", gpu) for gpu in (KIND, "h200-sxm"))
    assert (fidelity_of(on_slice), fidelity_of(on_gpu)) == ("estimated", "calibrated")
    wide, narrow = prove(on_slice).ends.band, prove(on_gpu).ends.band
    assert wide.low <= narrow.low < narrow.high < wide.high


def test_a_model_that_a_slice_cannot_hold_is_moved_to_a_larger_one() -> None:
    proof = prove(order("qwen3-8b", KIND))
    assert proof.verdict == "fails"
    assert "h200-sxm/1g.18gb has 15.8 GB" in proof.problems[0].text
    (fix,) = nearest(proof)
    assert fix.text.startswith("write gpu_slice: 1g.35gb, on machines with mig: all-1g.35gb (TP1)")


def test_a_model_that_no_slice_of_a_gpu_holds_goes_to_whole_ones() -> None:
    proof = prove(order("llama-3.3-70b", KIND))
    assert several_nodes.over_nodes(proof) is None, "slices reach no other, on no number of nodes"
    (fix,) = nearest(proof)
    assert fix.text.startswith("take gpu_slice out, for machines with whole GPUs: ")


# ----- sites


def test_a_replica_has_one_slice_of_a_node_that_is_cut() -> None:
    plan = sliced()
    assert {node.name: (node.gpu, node.gpus) for node in nodes_of(plan.site) or []} == {
        "hgx-1": ("h200-sxm", 8),
        "hgx-2": ("h200-sxm", 8),
        "hgx-3": ("h200-sxm", 8),
        "hgx-4": (KIND, 56),
    }
    proof = plan.proofs["embed"]
    assert (proof.order.gpu, proof.case.gpus, proof.holds) == (KIND, 3, True)
    assert "of 24 GPUs on 3 nodes of 8 h200-sxm; 3 of 56 slices on 1 node of 56 h200-sxm/1g.18gb" in plan.placement_text
    assert "hgx-4: embed has no replica until a node is back" in plan.placement_text


def test_the_block_of_a_model_on_slices_names_them() -> None:
    text = sliced().models["embed"].stable.text()
    assert "Qwen/Qwen3-Embedding-0.6B on h200-sxm/1g.18gb, 3 x TP1 = 3 slices" in text
    assert "a 1g.18gb of h200-sxm (MIG), 7 of a GPU: 17.2 GB, 0.6 TB/s" in text
    assert "published figures of all models, as none are of slices" in text


def test_a_site_without_slices_is_planned_as_before() -> None:
    """A layout of whole GPUs is no other kind of node."""
    plan = plan_values(prod(), "site.yaml")
    stated = plan_values(changed(prod(), EXTERNAL | {LAYOUT: "all-disabled"}), "site.yaml")
    assert nodes_of(plan.site) == nodes_of(stated.site)
    assert plan.placement_text == stated.placement_text


def test_a_machine_asks_for_its_layout_by_a_label() -> None:
    plan = sliced()
    assert plan.machines
    labels = {planned.name: plan.machines._node(planned, {}).settings.node_labels for planned in plan.machines.nodes}
    assert {name: own.get("nvidia.com/mig.config") for name, own in labels.items() if name.startswith("hgx")} == {
        "hgx-1": None,
        "hgx-2": None,
        "hgx-3": None,
        "hgx-4": "all-1g.18gb",
    }


def test_a_layout_for_all_machines_cuts_those_with_gpus_alone() -> None:
    values = changed(prod(), EXTERNAL | {f"{M}.mig": "all-disabled"})
    plan = plan_values(values, "site.yaml").machines
    assert plan
    asking = {
        node.name for node in plan.nodes if plan._node(node, {}).settings.node_labels.get("nvidia.com/mig.config")
    }
    assert asking == {"hgx-1", "hgx-2", "hgx-3", "hgx-4"}


def test_alerts_hold_nodes_to_their_slices_and_count_a_slice_as_its_part() -> None:
    promise = site_promise(sliced(), 99.9, [])
    assert promise.node_gpus == {"hgx-1": 8, "hgx-2": 8, "hgx-3": 8, "hgx-4": 56}
    assert promise.slices == {"nvidia.com/mig-1g.18gb": pytest.approx(1 / 7)}
    assert {model.model: model.gpus for model in promise.models}["embed"] == pytest.approx(3 / 7)
    assert site_promise(plan_values(prod(), "site.yaml"), 99.9, []).slices == {}


def test_slices_that_no_model_has_are_warned_of() -> None:
    plan = sliced(**{f"{M}.nodes.hgx-3.mig": "all-2g.35gb", "models.glm-5-1.server.replicas": 1})
    unused = [str(warning) for warning in plan.warnings if "no model has such a slice" in str(warning)]
    assert len(unused) == 1 and "cuts the GPUs of hgx-3" in unused[0]


@pytest.mark.parametrize("layout", ["all-1g.18gb", "all-disabled"])
def test_an_operator_that_cuts_no_gpu_on_talos_is_refused_and_each_way_of_the_fix_works(layout: str) -> None:
    models = {"models.embed": SLICED["models.embed"]} if layout == "all-1g.18gb" else {}
    change, whole = {LAYOUT: layout, **models}, {LAYOUT: None, **({SLICE: None} if models else {})}
    refused_and_fixed(Wrong(change, "cluster.gpu_stack", "connects to systemd before it cuts a GPU", EXTERNAL))
    refused_and_fixed(Wrong(change, "cluster.gpu_stack", "NVIDIA/mig-parted#356", whole))


def test_a_later_operator_may_cut_gpus() -> None:
    plan = under_later_operator(sliced())
    assert [conflict.row.id for conflict in conflicts(versions.load(), plan.site)] == ["gpu-operator-talos-mig"]
    assert conflicts(plan.versions, plan.site) == []


def test_a_lock_has_the_image_of_what_cuts_gpus() -> None:
    manager = "nvcr.io/nvidia/cloud-native/k8s-mig-manager"
    plan, whole = under_later_operator(sliced()), plan_values(prod(), "site.yaml")
    assert [release.chart for release in untagged_repositories(plan.site, plan.versions)[manager]] == ["gpu_operator"]
    assert manager not in untagged_repositories(whole.site, whole.versions)


WRONG = {
    "profile of another kind": Wrong(
        SLICED | {SLICE: "1g.10gb"}, SLICE, "is no MIG profile of h200-sxm; got", {SLICE: "1g.18gb"}
    ),
    "profile that no machine offers": Wrong(
        SLICED | {SLICE: "3g.71gb"}, SLICE, "no machine of role hgx is cut into such slices", {SLICE: "1g.18gb"}
    ),
    "profile without a machine that is cut": Wrong(
        EXTERNAL | {"models.embed": SLICED["models.embed"]},
        SLICE,
        "fix: write mig: all-1g.18gb at a machine of role hgx",
        {LAYOUT: "all-1g.18gb"},
    ),
    "two slices for a replica": Wrong(
        SLICED | {"models.embed.server.gpus": 2},
        "models.embed.server.gpus",
        "a replica has one MIG slice",
        {"models.embed.server.gpus": 1},
    ),
    "ranks on slices": Wrong(
        SLICED | {"models.embed.server.layout": {"tensor": 2}},
        "models.embed.server.layout.tensor",
        "slices do not reach each other's memory over NVLink or PCIe",
        {"models.embed.server.layout": {"tensor": 1}},
    ),
    "kind of GPU without known profiles": Wrong(
        EXTERNAL | {"cluster.gpu": "b200", "models": {}, "tenants": {}, LAYOUT: "all-1g.18gb"},
        LAYOUT,
        "MIG is not known of b200; it is of h100-sxm, h200-sxm",
        {"cluster.gpu": "h200-sxm"},
    ),
    "slice of a kind of GPU without known profiles": Wrong(
        {
            "cluster.gpu": "b200",
            "models": {"embed": {"catalogue": "qwen3-embedding-0.6b", "server": {"gpu_family": "blackwell"}}},
            "tenants": {},
            SLICE: "1g.18gb",
        },
        SLICE,
        "MIG is not known of b200",
        {SLICE: None},
    ),
    "layout that is misspelt": Wrong(
        SLICED | {LAYOUT: "all-1g18gb"}, LAYOUT, "did you mean 'all-1g.18gb'", {LAYOUT: "all-1g.18gb"}
    ),
    "layout of all machines that is misspelt": Wrong(
        EXTERNAL | {f"{M}.mig": "all-1g18gb"}, f"{M}.mig", "is no layout of h200-sxm", {f"{M}.mig": "all-disabled"}
    ),
    "layout that is a number": Wrong(SLICED | {LAYOUT: 7}, LAYOUT, "not text; got 7", {LAYOUT: "all-1g.18gb"}),
    "layout that mixes profiles": Wrong(
        SLICED | {LAYOUT: "all-balanced"}, LAYOUT, "is no layout of h200-sxm", {LAYOUT: "all-1g.18gb"}
    ),
    "layout of a machine without GPUs": Wrong(
        {f"{M}.roles.controlplane.mig": "all-1g.18gb"},
        f"{M}.roles.controlplane.mig",
        "cuts GPUs, and role controlplane has none",
        {f"{M}.roles.controlplane.mig": None},
    ),
    "layout and its label": Wrong(
        SLICED | {f"{M}.nodes.hgx-4.labels": {"nvidia.com/mig.config": "all-1g.18gb"}},
        f"{M}.nodes.hgx-4.labels.nvidia.com/mig.config",
        "is the label that mig becomes",
        {f"{M}.nodes.hgx-4.labels": {}},
    ),
    "a stack that cuts nothing": Wrong(
        SLICED | {"cluster.gpu_stack": "device_plugin"},
        "cluster.gpu_stack",
        "NVIDIA's MIG manager comes with the operator alone",
        {"cluster.gpu_stack": "external"},
    ),
    "a model that a slice cannot hold": Wrong(
        SLICED | {"models.embed.catalogue": "qwen3-8b"},
        "models.embed.server.gpus",
        "fix: write gpu_slice: 1g.35gb, on machines with mig: all-1g.35gb",
        {SLICE: "1g.35gb", LAYOUT: "all-1g.35gb"},
    ),
    "more replicas than slices": Wrong(
        SLICED | {"models.embed.server.replicas": 57},
        "models.embed.server.replicas",
        "each takes 1 slice of one node; 0 slices left beside the others on 1 node of 56 h200-sxm/1g.18gb, at most 0 "
        "on one\n    fix: lower models.embed.server.replicas from 57 to 56; or add 1 node of role hgx with mig: "
        "all-1g.18gb",
        {"models.embed.server.replicas": 56},
    ),
    "time slicing": Wrong(
        {"cluster.time_slicing": 4},
        "cluster.time_slicing",
        "divide no bandwidth of a GPU's memory, so no proof would hold",
        {"cluster.time_slicing": None},
    ),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_slice_that_cannot_be_is_refused_and_the_fix_works(wrong: Wrong) -> None:
    refused_and_fixed(wrong)


def test_a_cluster_whose_machines_are_unknown_promises_its_slices() -> None:
    values = changed(prod(), {"models.embed": SLICED["models.embed"]})
    values["cluster"] = {"kubeconfig": "kubeconfig.prod"}
    values["storage"] = {"storage_class": "fast"}
    for key in ("addresses", "certificates"):
        values.pop(key, None)
    for stack in ("operator", "device_plugin"):
        values["cluster"]["gpu_stack"] = stack
        with pytest.raises(SiteError, match="offers whole GPUs alone on machines that the site does not list"):
            plan_values(values, "site.yaml")
    values["cluster"]["gpu_stack"] = "external"
    plan = plan_values(values, "site.yaml")
    assert "3 slices are needed, on at least 1 node of 56 h200-sxm/1g.18gb" in plan.placement_text


def test_an_order_of_a_slice_is_one_gpu_wide() -> None:
    wide = dataclasses.replace(order("llama-3.2-1b", KIND), gpus=2)
    assert prove(wide).verdict == "fails"
