"""The replicas that serve one model, and where their weights are: one shared volume, or a folder on each node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from components.component import Component
from components.models import liveness, node_weights, replica_groups, weights
from components.models.engines import PORT, Engine
from components.models.scaling import Scaler, scaled_object
from components.models.weights import WeightsPlan
from components.namespace import NamespaceHandle
from components.network_policies import Peer, Rule, allow_ingress
from components.objects import declare
from components.placing import budget, spread
from components.specs.model_server import SCALED, ModelServerPlan, ModelServerSpec, PodPriority
from components.specs.weights import Place
from floor import gpu_nodes
from floor.stateful import VOLUME, Keeping

# The picker has scraped a replica's absence after this; requests that it still sends meanwhile are answered.
NOTICE_S = 10
# Value of the label app.kubernetes.io/name of every model's replicas.
SERVER = "model-server"
# Time for the engine to close its sockets after the last stream has ended.
CLOSING_S = 10
# With 1, an empty node that is to be avoided outdoes one with a replica: both preferences have the same weight. Each
# above 1 brings the spread's scores nearer to each other (Kubernetes 1.36, plugins/podtopologyspread/scoring.go).
_SKEW = 2


def deployment(
    name: str,
    namespace: str,
    spec: ModelServerSpec,
    plan: ModelServerPlan,
    engine: Engine,
    store: WeightsPlan | None = None,
    *,
    unfilled: str = "",
) -> dict[str, Any]:
    """The replicas. Rolling updates stop one replica before they start its successor: GPUs have no spare to surge.

    unfilled: the claim of a volume that no Job fills. Without it and without a store, the replicas mount no volume.
    """
    gpus = {gpu_nodes.resource_of(spec.gpu_slice or ""): str(plan.pod_gpus)}
    requests = dict(gpus)
    if spec.engine == "vllm":
        # Without limits: one of memory would also count the pages of mapped weights, and drop them while they load.
        # Of a replica's pods, each has an equal part.
        cores, gib = -(-plan.cpu_request_cores // plan.nodes), -(-plan.memory_request_gib // plan.nodes)
        requests |= {"cpu": f"{cores}", "memory": f"{gib}Gi"}
    volumes, mounts = weights.server_volumes(store, unfilled), weights.server_mounts(store, unfilled)
    offloaded = (spec.kv_offload_gib or 0) if spec.engine == "vllm" else 0
    if plan.pod_gpus > 1 or offloaded:
        # NCCL's ranks talk through shared memory, and the default of 64 MiB is too little. vLLM keeps its cache on the
        # host there too, and does not start without room for all of it (v1/kv_offload/cpu/shared_offload_region.py).
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{20 + offloaded}Gi"}})
        mounts.append({"name": "shm", "mountPath": "/dev/shm"})  # noqa: S108
    first = weights.check_containers(store) if store else []
    if watching := liveness.image_of(engine, store):
        first.append(liveness.container(watching, engine))
        volumes.append(liveness.volume())
    container = {
        "name": "engine",
        "image": engine.image,
        "args": engine.args,
        "env": [
            *({"name": key, "value": value} for key, value in sorted(engine.env.items())),
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ],
        "ports": [{"name": "http", "containerPort": PORT, "protocol": "TCP"}],
        "resources": {"limits": gpus, "requests": requests},
        "startupProbe": _probe(engine, plan.startup_probe_period_s, plan.startup_probe_failures),
        "readinessProbe": _probe(engine, 1, 2),
        "livenessProbe": liveness.probe() if watching else _probe(engine, 10, 6),
        "lifecycle": {"preStop": {"sleep": {"seconds": NOTICE_S + engine.hold_s}}},
        "volumeMounts": mounts,
    }
    pod = {
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "nodeSelector": {gpu_nodes.FAMILY_LABEL: spec.gpu_family},
        "tolerations": [{"key": gpu_nodes.TAINT_KEY, "operator": "Exists", "effect": gpu_nodes.TAINT_EFFECT}],
        "terminationGracePeriodSeconds": NOTICE_S + spec.longest_stream_s + CLOSING_S,
        "affinity": _affinity(whole=plan.whole_nodes),
        **({"priorityClassName": priority_name(name, namespace, plan.priority)} if plan.priority.value else {}),
        **spread(labels(name), _SKEW),
        **({"initContainers": first} if first else {}),
        "containers": [container],
        "volumes": volumes,
    }
    if spec.engine == "vllm":
        pod["runtimeClassName"] = gpu_nodes.RUNTIME_CLASS
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "labels": labels(name), **_scaled(plan)},
        "spec": {
            # Of a model that scales, only when it is made (ADR 58).
            "replicas": spec.least,
            "progressDeadlineSeconds": _turnover_s(spec, plan),
            "selector": {"matchLabels": labels(name)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "template": {"metadata": {"labels": labels(name)}, "spec": pod},
        },
    }


def _scaled(plan: ModelServerPlan) -> dict[str, Any]:
    """A mark by which a range that ends is a change.

    The state keeps the number from before the range: the same one again would change nothing, and the autoscaler's
    would stay.
    """
    scaling = plan.scaling
    return {"annotations": {SCALED: f"{scaling.least} to {scaling.most} replicas"}} if scaling else {}


def programs_of(engine: Engine, store: WeightsPlan | None) -> list[str]:
    """The platform's own programs that the replicas and their weights' pods run, by their names in services/."""
    used = {liveness.PROGRAM: liveness.image_of(engine, store), weights.PROGRAM: store}
    return [program for program, needed in used.items() if needed]


def _affinity(*, whole: bool) -> dict[str, Any]:
    """Replicas of whole nodes go where the plan has them, and smaller ones elsewhere, as long as there is room.

    Else small replicas that start first, of which a scheduler puts one on each empty node, leave no node whole.
    """
    known = {"key": gpu_nodes.WHOLE_LABEL, "operator": "Exists" if whole else "DoesNotExist"}
    preferred = {"weight": 100, "preference": {"matchExpressions": [known]}}
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]}}


def priority_name(name: str, namespace: str, priority: PodPriority) -> str:
    """Name of a model's PriorityClass. Kubernetes changes no value of one, so another value is a new class."""
    return f"{namespace}-{name}-{'' if priority.preempts else 'waiting-'}{priority.value}"


def priority_class(name: str, namespace: str, priority: PodPriority) -> dict[str, Any]:
    """In which order the replicas are placed, and whether they stop those of other models where none has room."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": priority_name(name, namespace, priority), "labels": labels(name)},
        "value": priority.value,
        "globalDefault": False,
        "preemptionPolicy": "PreemptLowerPriority" if priority.preempts else "Never",
    }


def labels(name: str) -> dict[str, str]:
    """Labels by which the pool and the picker find the replicas of a model."""
    return {"app.kubernetes.io/name": SERVER, "app.kubernetes.io/instance": name}


def _probe(engine: Engine, period_s: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": engine.ready_path, "port": "http"},
        "periodSeconds": period_s,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def _turnover_s(spec: ModelServerSpec, plan: ModelServerPlan) -> int:
    """Longest time in which one replica drains and its successor has loaded."""
    return plan.start_budget_s + NOTICE_S + spec.longest_stream_s + CLOSING_S


def network_policy(name: str, namespace: str, clients: Sequence[Peer], egress: Sequence[Rule] | None) -> dict[str, Any]:
    """Who sends replicas requests or reads their metrics reaches their one port; they reach what their engine needs."""
    return allow_ingress(name, namespace, labels(name), [(clients, [PORT])], egress=egress)


@dataclass(frozen=True, kw_only=True)
class FilledWeights:
    """Weights that a model has already, for further replicas of it."""

    model: str
    ready: Sequence[pulumi.Resource]


@dataclass(frozen=True, kw_only=True)
class ModelServerArgs:
    """What the component needs in addition to the site's own settings."""

    spec: ModelServerSpec
    plan: ModelServerPlan
    engine: Engine
    namespace: NamespaceHandle
    place: Place
    """Where the weights are kept."""
    storage_class: str
    """Of a shared volume."""
    needs: Sequence[pulumi.Resource]
    """What offers GPUs and volumes."""
    clients: Sequence[Peer]
    """Pods that may send requests and read metrics: the gateway's proxies, the model's own pickers, what measures."""
    weights: WeightsPlan | None
    """What brings the weights; None for a simulator that has none."""
    programs: Sequence[pulumi.Resource]
    """The platform's own programs, which its pods mount."""
    token: Sequence[pulumi.Resource] = ()
    """What fills the Secret with the hub's token, for the weights' Job."""
    volume: Keeping
    """Whether the engine refuses to delete or replace the volume."""
    rdma: str = ""
    """Resource of the nodes' RDMA devices, for replicas that span several."""
    groups: Sequence[pulumi.Resource] = ()
    """What makes pods of such replicas."""
    scaler: Scaler | None = None
    """What scales it, where its plan has between which numbers."""
    filled: FilledWeights | None = None
    """Weights that its replicas mount instead of weights of their own."""


def _served(name: str, args: ModelServerArgs, unfilled: str) -> dict[str, Any]:
    """The replicas: pods of a Deployment, or groups of pods where one spans several nodes."""
    pods = deployment(name, args.namespace.name, args.spec, args.plan, args.engine, args.weights, unfilled=unfilled)
    if args.plan.nodes == 1:
        return pods
    rdma = args.rdma if args.spec.engine == "vllm" else ""
    return replica_groups.leader_worker_set(pods, args.plan.nodes, rdma, args.plan.start_budget_s)


@dataclass(frozen=True, kw_only=True)
class ModelServerHandle:
    """The running replicas: select them by `labels`, reach them on `port`."""

    labels: dict[str, str]
    port: int
    needs: Sequence[pulumi.Resource]
    """What they wait for."""
    filled: FilledWeights
    """What they mount."""
    ready: pulumi.Resource


class ModelServer(Component, token="model_server:ModelServer"):
    """Weights, replicas and disruption budget of one model, and who may reach the replicas."""

    def __init__(self, name: str, args: ModelServerArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        space = args.namespace
        priority = args.plan.priority
        ranked = [self.child("priority", priority_class(name, space.name, priority))] if priority.value else []
        filled = args.filled or FilledWeights(model=name, ready=self._filled(args))
        needs = [*ranked, *args.programs, *(args.groups if args.plan.nodes > 1 else ()), *filled.ready]
        shared = weights.claim_name(filled.model, args.storage_class) if args.place == "shared" else ""
        replicas = self.child(
            "server",
            _served(name, args, shared),
            depends_on=needs,
            # They are replaced one after the other. An option, not an annotation: a changed count shows as just that.
            patience_s=args.spec.replicas * _turnover_s(args.spec, args.plan),
            left_to_others=["spec.replicas"] if args.plan.scaling else (),
        )
        if args.plan.scaling and args.scaler:
            scaled = scaled_object(name, space.name, labels(name), args.plan.scaling, args.scaler.prometheus)
            self.child("scaling", scaled, depends_on=[replicas, *args.scaler.ready])
        drained = budget(name, space.name, labels(name), max_unavailable=args.plan.max_unavailable)
        if args.plan.nodes > 1:
            drained = replica_groups.disruption_budget(drained, args.plan.nodes)
            self.child("group-policy", replica_groups.group_policy(name, space.name), depends_on=[space.ready])
        self.child("budget", drained, depends_on=[space.ready])
        policy = network_policy(name, space.name, args.clients, args.engine.egress)
        self.child("network-policy", policy, depends_on=[space.ready])
        self.handle = ModelServerHandle(labels=labels(name), port=PORT, needs=needs, filled=filled, ready=replicas)
        self._args = args
        self.finish(name=name)

    def prune(self, others: Sequence[pulumi.Resource]) -> None:
        """Remove earlier revisions of its weights once its replicas run on the wanted ones, and all that mount them.

        On nodes' own disks, the DaemonSet that downloads a revision removes earlier ones.
        """
        args = self._args
        if args.weights and args.place == "shared" and not args.filled:
            job = weights.prune_job(self.name, args.namespace.name, args.weights)
            self.child("prune", job, depends_on=[self.handle.ready, *others])

    def _filled(self, args: ModelServerArgs) -> Sequence[pulumi.Resource]:
        """What servers wait for: their volume, and that their weights are in it."""
        space, plan = args.namespace, args.weights
        if args.place == "shared":
            claim = self._shared_volume(args)
            return [
                claim,
                *(self._brought(args, plan, claim, weights.job(self.name, space.name, plan)) if plan else ()),
            ]
        if plan is None:
            return [space.ready, *args.needs]
        volume = self.child("node-volume", node_weights.volume(space.name, plan), depends_on=args.needs)
        claim = self.stateful(
            "node-weights",
            VOLUME,
            lambda logical_name, options: declare(logical_name, node_weights.claim(space.name, plan), options),
            # The files stay on the nodes, whatever becomes of it.
            keeping="disposable",
            depends_on=[space.ready, volume],
        )
        # The provider waits for a DaemonSet until its time is up, whatever its pods report. A Job that fails ends `up`
        # at once. So a Job fills the first node, and `up` ends there if the source is wrong.
        family = args.spec.gpu_family
        first = self._brought(args, plan, claim, node_weights.first_job(self.name, space.name, plan, family))
        nodes = node_weights.daemon_set(self.name, space.name, plan, family)
        # The claim too: `up` deletes it after the pods that mount it, also where the Job stays.
        return [self.child("nodes", nodes, depends_on=[claim, *first], patience_s=plan.patience_s)]

    def _shared_volume(self, args: ModelServerArgs) -> pulumi.Resource:
        volume = weights.claim(
            self.name,
            args.namespace.name,
            labels=labels(self.name),
            weight_bytes=args.weights.volume_bytes if args.weights else args.plan.weight_bytes,
            storage_class=args.storage_class,
            keeping=args.volume,
        )
        return self.stateful(
            "weights",
            VOLUME,
            lambda logical_name, options: declare(logical_name, volume, options),
            keeping=args.volume,
            depends_on=[args.namespace.ready, *args.needs],
        )

    def _brought(
        self, args: ModelServerArgs, plan: WeightsPlan, claim: pulumi.Resource, job: dict[str, Any]
    ) -> Sequence[pulumi.Resource]:
        """The Job after which the weights are there, with what it needs."""
        space = args.namespace
        order = self.child("order", weights.order(self.name, space.name, plan), depends_on=[space.ready])
        policy = weights.network_policy(self.name, space.name, plan)
        allowed = self.child("weights-policy", policy, depends_on=[space.ready])
        after = [claim, *args.programs, order, allowed, *args.token]
        return [self.child("bring", job, depends_on=after, patience_s=plan.patience_s)]
