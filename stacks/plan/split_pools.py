"""A split of prefill and decode as objects, out of its verdict: to read before one builds it, never deployed."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from components.addons.rdma_devices import resource_name
from components.models.split_pools import TRANSFER, Pool, Role, SplitArgs, split_objects
from components.specs.model_server import LayoutSpec
from stacks.plan.models import MODELS_NAMESPACE, RevisionPlan, engine_of
from stacks.plan.site_plan import SitePlan
from stacks.proof.case import Case
from stacks.proof.disaggregation import Split


def objects_of(plan: SitePlan, revision: RevisionPlan, split: Split) -> list[dict[str, Any]]:
    """What would take the place of a model's Deployment, pool and picker."""
    pools: dict[Role, Pool] = {
        "prefill": _pool(plan, revision, split.prefill.case, split.prefill.replicas),
        "decode": _pool(plan, revision, split.decode, split.decode.replicas),
    }
    images, devices = plan.versions.images, plan.site.cluster.rdma_devices
    args = SplitArgs(
        spec=revision.spec.pool,
        picker=revision.picker,
        # Less is computed beside the answers in one step, and costs them no more than that.
        apart_tokens=revision.server.max_num_batched_tokens,
        picker_image=images.split_picker,
        sidecar_image=images.split_sidecar,
        store=revision.weights,
        rdma="" if devices.system == "none" else resource_name(devices),
    )
    return split_objects(revision.name, MODELS_NAMESPACE, pools, args)


def _pool(plan: SitePlan, revision: RevisionPlan, case: Case, replicas: int) -> Pool:
    given = revision.spec.server
    # Each replica of a split is on one node, also of a model whose own ones span several.
    server = given.model_copy(
        update={"replicas": replicas, "nodes": 1, "scaling": None, "extra_args": (*given.extra_args, TRANSFER)}
    )
    spec = revision.spec.model_copy(update={"server": server})
    sizes = replace(
        revision.server,
        layout=LayoutSpec(**asdict(case.layout)),
        max_num_seqs=case.slots * case.layout.data,
        nodes=1,
        whole_nodes=case.layout.gpus == case.order.hardware.gpus_per_node,
        scaling=None,
    )
    engine = engine_of(revision.id.model, spec, revision.proof, sizes, plan.versions.images)
    return Pool(spec=server, plan=sizes, engine=engine)
