"""A revision of a model: its replicas, the pool that routes to them, and the name that clients call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi

from components.component import Component
from components.gateway.gateway import GatewayHandle
from components.models.engines import Engine
from components.models.inference_pool import InferencePool, InferencePoolArgs, picker_labels
from components.models.model_route import ModelRoute, ModelRouteArgs
from components.models.model_server import FilledWeights, ModelServer, ModelServerArgs
from components.models.scaling import Scaler
from components.models.weights import WeightsPlan
from components.namespace import NamespaceHandle
from components.network_policies import Peer, peer
from components.specs.inference_pool import PickerPlan
from components.specs.model import ModelSpec
from components.specs.model_server import ModelServerPlan
from components.specs.weights import Place
from floor.stateful import Keeping


@dataclass(frozen=True, kw_only=True)
class ModelArgs:
    """The site's settings, the figures of a replica, and the gateway that the model belongs to."""

    model: str
    """What clients call it; the component has the name of its revision."""
    spec: ModelSpec
    plan: ModelServerPlan
    picker: PickerPlan
    parallel_requests: int
    """Requests for the model that one Envoy pod may have under way at once."""
    engine: Engine
    ranks: bool
    """Whether clients ask it to rank documents."""
    namespace: NamespaceHandle
    place: Place
    """Where the weights are kept."""
    storage_class: str
    hardware: Sequence[pulumi.Resource]
    """What offers GPUs and volumes."""
    weights: WeightsPlan | None
    """What brings the weights; None for a simulator that has none."""
    filled: FilledWeights | None = None
    """Weights of another revision that it mounts instead."""
    programs: Sequence[pulumi.Resource]
    """The platform's own programs, which its pods mount."""
    token: Sequence[pulumi.Resource] = ()
    """What fills the Secret with the hub's token."""
    volume: Keeping
    """Whether the weights' volume may be deleted, where the model's own key does not set it."""
    picker_image: str
    picker_asked: pulumi.Resource
    """What has Envoy ask its picker."""
    scaler: Scaler | None = None
    """What scales models; None on a site where none does."""
    rdma: str = ""
    """Resource of the nodes' RDMA devices."""
    groups: Sequence[pulumi.Resource] = ()
    """What makes pods of replicas that span several nodes."""
    gateway: GatewayHandle
    scrapers: Sequence[Peer] = ()
    """Pods that may read metrics of replicas and pickers; none where nothing measures."""
    followers: Sequence[Peer] = ()
    """Pods that read each second how full its pool is, and decide by it."""
    needs: Sequence[pulumi.Resource]
    """Definitions and controllers of the kinds that a model is made of."""


class Model(Component, token="model:Model"):
    """Replicas, pool and route of one revision of a model."""

    def __init__(self, name: str, args: ModelArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        here = pulumi.ResourceOptions(parent=self)
        self._server = ModelServer(
            name,
            ModelServerArgs(
                spec=args.spec.server,
                plan=args.plan,
                engine=args.engine,
                namespace=args.namespace,
                place=args.place,
                storage_class=args.storage_class,
                needs=args.hardware,
                weights=args.weights,
                programs=args.programs,
                token=args.token,
                clients=[args.gateway.proxies, peer(picker_labels(name)), *args.scrapers],
                volume=args.spec.volume or args.volume,
                scaler=args.scaler,
                rdma=args.rdma,
                groups=args.groups,
                filled=args.filled,
            ),
            here,
        )
        server = self._server.handle
        self.filled = server.filled
        pool = InferencePool(
            name,
            InferencePoolArgs(
                spec=args.spec.pool,
                plan=args.picker,
                namespace=args.namespace,
                selector=server.labels,
                port=server.port,
                image=args.picker_image,
                longest_stream_s=args.spec.server.longest_stream_s,
                needs=args.needs,
                asked=args.picker_asked,
                beside=server.needs,
                clients=[args.gateway.proxies],
                scrapers=args.scrapers,
                followers=args.followers,
            ),
            here,
        ).handle
        ModelRoute(
            name,
            ModelRouteArgs(
                model=args.model,
                namespace=pool.namespace,
                gateway=args.gateway.name,
                gateway_namespace=args.gateway.namespace,
                request_timeout_s=args.spec.request_timeout_s,
                owned_by=args.engine.owned_by,
                parallel_requests=args.parallel_requests,
                connections=args.gateway.max_parallel_streams,
                ranks=args.ranks,
                servers=server.labels,
                port=server.port,
                needs=[args.gateway.ready, server.ready, *pool.ready],
            ),
            here,
        )
        self.finish(name=name)

    def prune(self, others: Sequence[Model]) -> None:
        """Remove earlier revisions of its weights, once its replicas and those of `others` run on the wanted ones."""
        self._server.prune([other._server.handle.ready for other in others])
