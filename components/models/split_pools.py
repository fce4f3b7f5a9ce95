"""Prompts and answers on replicas of their own, behind llm-d's router: objects to read, which no site deploys.

None of it ran. Labels, flags and the picker's plugins as llm-d-router v0.10.0 has them (its page on disaggregation,
deploy/config/pd-epp-config.yaml, pkg/sidecar/proxy/options.go), and the connector as vLLM's page on NIXL does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from components.models import inference_pool, model_server
from components.models.engines import PORT, Engine
from components.models.weights import WeightsPlan
from components.network_policies import allow_ingress, peer
from components.specs.inference_pool import InferencePoolSpec, PickerPlan, picker_name
from components.specs.model_server import ModelServerPlan, ModelServerSpec
from manifests.render import render_yaml

Role = Literal["prefill", "decode"]
TRANSFER = '--kv-transfer-config={"kv_connector": "NixlConnector", "kv_role": "kv_both"}'
"""Both sides send and take caches."""
_ROLE = "llm-d.ai/role"
# Where a decode replica's engine listens: its sidecar has the port of the pool.
_ENGINE_PORT = 8200
_HANDSHAKE_PORT = 5600


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Replicas of one role."""

    spec: ModelServerSpec
    plan: ModelServerPlan
    engine: Engine
    """With `TRANSFER` among its arguments."""


@dataclass(frozen=True, kw_only=True)
class SplitArgs:
    """What both pools share."""

    spec: InferencePoolSpec
    picker: PickerPlan
    apart_tokens: int
    """Tokens of a prompt that are not cached from which on it is computed apart."""
    picker_image: str
    sidecar_image: str
    store: WeightsPlan | None
    rdma: str
    """Resource of the nodes' RDMA devices; empty where the site has none."""


def split_objects(model: str, namespace: str, pools: Mapping[Role, Pool], args: SplitArgs) -> list[dict[str, Any]]:
    """What takes the place of a model's Deployment, pool and picker; volume, weights, route and budget stay."""
    selector, stream_s = model_server.labels(model), max(pool.spec.longest_stream_s for pool in pools.values())
    config, rbac = _config(model, namespace, args), inference_pool.picker_rbac(model, namespace)
    for role in (body for body in rbac if body["kind"] == "Role"):
        also = {**role["rules"][2], "apiGroups": ["llm-d.ai"]}
        role["rules"] = [*role["rules"], also]
    return [
        *(_servers(model, namespace, role, pool, args) for role, pool in pools.items()),
        # Ranks choose their own ports for what they send each other.
        allow_ingress(
            f"{model}-caches", namespace, selector, [([peer(selector)], ())], egress=[{"to": [peer(selector)]}]
        ),
        inference_pool.inference_pool(model, namespace, selector=selector, port=PORT),
        config,
        *rbac,
        inference_pool.picker_service(model, namespace),
        inference_pool.picker_deployment(
            model, namespace, args.spec, image=args.picker_image, longest_stream_s=stream_s, config_digest="not-run"
        ),
    ]


def _config(model: str, namespace: str, args: SplitArgs) -> dict[str, Any]:
    text = render_yaml(
        "split-picker.yaml.j2",
        block_tokens=args.picker.block_tokens,
        prefix_tokens=args.picker.prefix_tokens,
        kv_blocks=args.picker.kv_blocks,
        apart_tokens=args.apart_tokens,
        prefix_weight=args.spec.prefix_weight,
        queue_weight=args.spec.queue_weight,
    )
    meta = {"name": picker_name(model), "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"config.yaml": text}}


def _servers(model: str, namespace: str, role: Role, pool: Pool, args: SplitArgs) -> dict[str, Any]:
    """The Deployment of one role."""
    body = model_server.deployment(model, namespace, pool.spec, pool.plan, pool.engine, args.store)
    labels = {**model_server.labels(model), _ROLE: role}
    pod = body["spec"]["template"]["spec"]
    engine = _engine(pod["containers"][0], role, args.rdma)
    first = list(pod.get("initContainers", ()))
    if role == "decode":
        # What watches the engine asks it, and not the sidecar before it.
        first = [*({**made, "args": [_moved(arg) for arg in made["args"]]} for made in first)]
        first.append(_sidecar(args.sidecar_image))
    pod = {**pod, "containers": [engine], **({"initContainers": first} if first else {})}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {**body["spec"], "selector": {"matchLabels": labels}, "template": template}
    meta = {**body["metadata"], "name": f"{model}-{role}", "labels": labels}
    return {**body, "metadata": meta, "spec": spec}


def _engine(container: Mapping[str, Any], role: Role, rdma: str) -> dict[str, Any]:
    handshake = [
        {"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "VLLM_NIXL_SIDE_CHANNEL_PORT", "value": str(_HANDSHAKE_PORT)},
    ]
    made = {**container, "env": [*container["env"], *handshake]}
    if role == "decode":
        made["args"] = [_moved(arg) for arg in container["args"]]
        made["ports"] = [{**port, "containerPort": _ENGINE_PORT} for port in container["ports"]]
    if rdma:
        made["resources"] = {side: {**asked, rdma: "1"} for side, asked in container["resources"].items()}
        made["securityContext"] = {"capabilities": {"add": ["IPC_LOCK"]}}
    return made


def _moved(arg: str) -> str:
    """An argument, with the engine's port where it has a sidecar before it."""
    return re.sub(rf"^(--port=|--engine=.*:){PORT}$", rf"\g<1>{_ENGINE_PORT}", arg)


def _sidecar(image: str) -> dict[str, Any]:
    """Sends a prompt to the prefill replica that the picker has named, and then the request to its own engine."""
    return {
        "name": "prompts-apart",
        "image": image,
        "restartPolicy": "Always",
        "args": [
            f"--port={PORT}",
            f"--model-server-port={_ENGINE_PORT}",
            "--kv-connector=nixlv2",
            # Plain HTTP inside of the cluster, as of every replica.
            "--secure-proxy=false",
        ],
        "ports": [{"name": "proxy", "containerPort": PORT, "protocol": "TCP"}],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
    }
