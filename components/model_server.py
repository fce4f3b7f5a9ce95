"""The engine that serves one model: vLLM, or its simulator where there is no GPU; one shared volume for its weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pulumi
from pydantic import Field, model_validator

from components import weights
from components.base import MOST_REPLICAS, MOST_SECONDS, Component, Spec
from components.namespace import NamespaceHandle
from components.network_policies import Peer, allow_ingress
from components.weights import Keeping, WeightsSpec

PORT = 8000
# On a Deployment whose first replica downloads: the start budget of all later ones, for those who foretell a restart.
LATER_START = "inference-platform/later-start-budget-s"
# The picker has scraped a replica's absence after this; requests that it still sends meanwhile are answered.
NOTICE_S = 10
# Time for the engine to close its sockets after the last stream has ended.
CLOSING_S = 10


class LayoutSpec(Spec):
    """How a replica is cut over GPUs of one node; it takes tensor x data x pipeline of them."""

    tensor: int = Field(default=1, ge=1)
    """Tensor-parallel ranks: GPUs that share each layer."""
    data: int = Field(default=1, ge=1)
    """Data-parallel ranks behind the replica's one address, each with its own queue and cache; with experts only."""
    pipeline: int = Field(default=1, ge=1)
    """Stages that the layers are divided into."""
    expert_parallel: bool = False
    """Whole experts a GPU instead of a slice of each; `data` wants it."""

    @property
    def gpus(self) -> int:
        """GPUs of one replica."""
        return self.tensor * self.data * self.pipeline


class ModelServerSpec(Spec):
    """How a model is served."""

    engine: Literal["vllm", "simulator"] = "vllm"
    """`simulator` answers with random words at the speed that the model's figures give; it says so of itself."""
    replicas: int = Field(default=2, ge=1, le=MOST_REPLICAS)
    """Pods that serve the model; two is the least that a rolling update leaves no gap with."""
    gpus: int | None = Field(default=None, ge=1)
    """GPUs a replica; without it as few as the proof finds. `layout` says it too, so give one of the two."""
    layout: LayoutSpec | None = None
    """How a replica is cut over its GPUs; without it the proof's best, tensor-parallel alone where that is enough."""
    gpu_family: str = "hopper"
    """Value of the node label `nvidia.com/gpu.family` that replicas need."""
    max_num_batched_tokens: int = Field(default=8192, ge=256)
    """Tokens that one engine step takes: more speeds prefill up, less keeps running streams smooth."""
    typical_request_tokens: int = Field(default=16_384, ge=1)
    """Prompt plus answer of a usual request; decides how many run at once."""
    longest_stream_s: int = Field(default=600, ge=1, le=MOST_SECONDS)
    """Streams run on for this long when their replica stops. When an Envoy stops, or the gateway's listener changes,
    they do so for `gateway.longest_stream_s`, or for this where it is longer."""
    simulated_load_scale: float = Field(default=1.0, gt=0, le=1)
    """The simulator takes this share of the predicted load time to start; vLLM ignores it."""
    extra_args: tuple[str, ...] = ()
    """Flags of the engine that neither a setting nor the proof depends on, such as `--seed=7`."""

    @model_validator(mode="after")
    def _gpus_are_said_once(self) -> ModelServerSpec:
        if self.gpus is not None and self.layout is not None:
            raise ValueError(
                f"got gpus with {self.gpus} and layout with {self.layout.gpus} GPUs, allowed: one of the two\n"
                "fix: take gpus out, or layout where the proof may choose it"
            )
        return self


@dataclass(frozen=True, kw_only=True)
class ModelServerPlan:
    """What the capacity figures say of a replica, as plain numbers."""

    layout: LayoutSpec
    weight_bytes: float
    max_model_len: int
    max_num_seqs: int
    """Of the whole replica, over its data-parallel ranks."""
    max_num_queued_reqs: int
    """Requests that it runs or keeps waiting; it refuses the next."""
    max_answer_tokens: int | None
    """Most tokens of an answer; None for a model that writes none."""
    max_unavailable: int
    """Replicas that may be drained at once."""
    kv_blocks: int
    """Likewise."""
    block_tokens: int
    prefill_s_per_token: float
    prefill_overhead_s: float
    decode_s_per_token: float
    decode_slowdown_when_full: float
    load_s: float
    """Time to read the weights from the volume."""
    download_s: float
    """Time to fetch them into the volume at the first start; 0 where nothing is fetched."""
    start_budget_s: int
    """A replica that has not started by then is restarted."""
    later_start_budget_s: int
    """What is left of it for a start that finds the weights in the volume."""
    startup_probe_period_s: int
    startup_probe_failures: int

    @property
    def gpus(self) -> int:
        """GPUs of one replica."""
        return self.layout.gpus


@dataclass(frozen=True, kw_only=True)
class Engine:
    """What is the engine's own in a Deployment that is otherwise the same."""

    image: str
    owned_by: str
    """Who the model card says made the model's answers."""
    args: list[str]
    env: dict[str, str]
    ready_path: str
    hold_s: int
    """A replica is kept from its stop signal for this long, where the engine itself would cut running streams."""


def vllm_engine(
    spec: ModelServerSpec,
    plan: ModelServerPlan,
    *,
    image: str,
    repository: str,
    served_name: str,
    flags: Sequence[str],
    source: WeightsSpec,
) -> Engine:
    """vLLM's arguments. Flags as vLLM 0.32 documents them; a test checks every name against its list."""
    args = [
        repository,
        f"--served-model-name={served_name}",
        f"--port={PORT}",
        *_layout_flags(plan.layout),
        "--enable-chunked-prefill",
        f"--max-num-batched-tokens={spec.max_num_batched_tokens}",
        f"--max-model-len={plan.max_model_len}",
        # vLLM counts it for each data-parallel rank.
        f"--max-num-seqs={plan.max_num_seqs // plan.layout.data}",
        f"--max-num-queued-reqs={plan.max_num_queued_reqs}",
        *_answer_cap(plan),
        "--kv-cache-dtype=fp8",
        "--enable-prefix-caching",
        "--enable-prompt-tokens-details",
        # Without it the engine drops its streams at SIGTERM.
        f"--shutdown-timeout={spec.longest_stream_s}",
        *flags,
        *spec.extra_args,
    ]
    return Engine(
        image=image,
        owned_by=repository.partition("/")[0],
        args=args,
        env={
            **weights.environment(source),
            "VLLM_ENGINE_READY_TIMEOUT_S": str(plan.start_budget_s),
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
        },
        ready_path="/health",
        hold_s=0,
    )


def _layout_flags(layout: LayoutSpec) -> Iterator[str]:
    """How vLLM is told the layout; it balances data-parallel ranks itself, behind the one port that the pool knows."""
    yield f"--tensor-parallel-size={layout.tensor}"
    if layout.pipeline > 1:
        yield f"--pipeline-parallel-size={layout.pipeline}"
    if layout.data > 1:
        yield f"--data-parallel-size={layout.data}"
        # vLLM starts one a rank by itself, and those learn of each other's requests only from time to time.
        yield "--api-server-count=1"
    if layout.expert_parallel:
        yield "--enable-expert-parallel"


def _answer_cap(plan: ModelServerPlan) -> list[str]:
    """vLLM takes max_new_tokens of this flag as a limit of every request, and not as a default alone."""
    if plan.max_answer_tokens is None:
        return []
    return [f'--override-generation-config={{"max_new_tokens": {plan.max_answer_tokens}}}']


def simulator_engine(
    spec: ModelServerSpec, plan: ModelServerPlan, *, image: str, repository: str, served_name: str
) -> Engine:
    """llm-d-inference-sim with the model's own speed, cache and limits, so that queues form where they would.

    Data-parallel ranks are one server with all their slots and blocks: its own ranks would each open a port.
    """
    # Shown in the model cards of engine and gateway: nobody takes these answers for the model's.
    origin = f"simulator of {repository}"
    return Engine(
        image=image,
        owned_by=origin,
        args=[
            f"--model={origin}",
            f"--served-model-name={served_name}",
            f"--port={PORT}",
            "--force-dummy-tokenizer",
            "--mode=random",
            "--latency-calculator=per-token",
            f"--prefill-overhead={_duration(plan.prefill_overhead_s)}",
            f"--prefill-time-per-token={_duration(plan.prefill_s_per_token)}",
            f"--inter-token-latency={_duration(plan.decode_s_per_token)}",
            f"--time-factor-under-load={plan.decode_slowdown_when_full:.2f}",
            f"--max-model-len={plan.max_model_len}",
            f"--max-num-seqs={plan.max_num_seqs}",
            # It counts those that wait alone.
            f"--max-waiting-queue-length={max(1, plan.max_num_queued_reqs - plan.max_num_seqs)}",
            "--enable-kvcache",
            f"--kv-cache-size={plan.kv_blocks}",
            f"--block-size={plan.block_tokens}",
            f"--startup-duration={_duration(plan.load_s * spec.simulated_load_scale)}",
            "--max-request-body-size-mb=64",
            *spec.extra_args,
        ],
        env={},
        ready_path="/health/ready",
        # The simulator lets streams run on for 30 s after its stop signal and then cuts them.
        hold_s=max(0, spec.longest_stream_s - 30),
    )


def deployment(
    name: str, namespace: str, spec: ModelServerSpec, plan: ModelServerPlan, engine: Engine
) -> dict[str, Any]:
    """The replicas. Rolling updates stop one replica before they start its successor: GPUs have no spare to surge."""
    gpus = {"nvidia.com/gpu": str(plan.gpus)}
    volumes = [{"name": "weights", "persistentVolumeClaim": {"claimName": f"{name}-weights"}}]
    mounts = [{"name": "weights", "mountPath": weights.MOUNT}]
    if plan.gpus > 1:
        # NCCL's ranks talk through shared memory, and the default of 64 MiB is too little.
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "20Gi"}})
        mounts.append({"name": "shm", "mountPath": "/dev/shm"})  # noqa: S108
    container = {
        "name": "engine",
        "image": engine.image,
        "args": engine.args,
        "env": [
            *({"name": key, "value": value} for key, value in sorted(engine.env.items())),
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ],
        "ports": [{"name": "http", "containerPort": PORT, "protocol": "TCP"}],
        "resources": {"limits": gpus, "requests": gpus},
        "startupProbe": _probe(engine, plan.startup_probe_period_s, plan.startup_probe_failures),
        "readinessProbe": _probe(engine, 1, 2),
        "livenessProbe": _probe(engine, 10, 6),
        "lifecycle": {"preStop": {"sleep": {"seconds": NOTICE_S + engine.hold_s}}},
        "volumeMounts": mounts,
    }
    pod = {
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "nodeSelector": {"nvidia.com/gpu.family": spec.gpu_family},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "terminationGracePeriodSeconds": NOTICE_S + spec.longest_stream_s + CLOSING_S,
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": labels(name)},
            }
        ],
        "containers": [container],
        "volumes": volumes,
    }
    if spec.engine == "vllm":
        pod["runtimeClassName"] = "nvidia"
    marks = {"annotations": {LATER_START: str(plan.later_start_budget_s)}} if plan.download_s else {}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "labels": labels(name), **marks},
        "spec": {
            "replicas": spec.replicas,
            "progressDeadlineSeconds": _turnover_s(spec, plan),
            "selector": {"matchLabels": labels(name)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "template": {"metadata": {"labels": labels(name)}, "spec": pod},
        },
    }


def disruption_budget(name: str, namespace: str, *, max_unavailable: int) -> dict[str, Any]:
    """A node drain takes so many replicas at a time."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": namespace, "labels": labels(name)},
        "spec": {"maxUnavailable": max_unavailable, "selector": {"matchLabels": labels(name)}},
    }


def labels(name: str) -> dict[str, str]:
    """Labels by which the pool and the picker find the replicas of a model."""
    return {"app.kubernetes.io/name": "model-server", "app.kubernetes.io/instance": name}


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


def network_policy(name: str, namespace: str, clients: Sequence[Peer]) -> dict[str, Any]:
    """Who may reach the replicas: who sends them requests or reads their metrics, on their one port."""
    return allow_ingress(name, namespace, labels(name), [(clients, [PORT])])


def _duration(seconds: float) -> str:
    """A Go duration with microsecond precision."""
    return f"{max(1, round(seconds * 1e6))}us"


@dataclass(frozen=True, kw_only=True)
class ModelServerArgs:
    """What the component needs beside the site's own words."""

    spec: ModelServerSpec
    plan: ModelServerPlan
    engine: Engine
    namespace: NamespaceHandle
    storage_class: str
    clients: Sequence[Peer]
    """Pods that may send requests and read metrics: the gateway's proxies and the model's own pickers."""
    volume: Keeping
    """Whether the engine refuses to delete or replace the volume."""


@dataclass(frozen=True, kw_only=True)
class ModelServerHandle:
    """The running replicas: select them by `labels`, reach them on `port`."""

    labels: dict[str, str]
    port: int
    ready: pulumi.Resource


class ModelServer(Component):
    """Volume, replicas and disruption budget of one model, and who may reach the replicas."""

    def __init__(self, name: str, args: ModelServerArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        space = args.namespace
        volume = weights.claim(
            name,
            space.name,
            labels=labels(name),
            weight_bytes=args.plan.weight_bytes,
            storage_class=args.storage_class,
            keeping=args.volume,
        )
        claim = self.child("weights", volume, depends_on=[space.ready], protect=args.volume == "protected")
        replicas = self.child(
            "server",
            deployment(name, space.name, args.spec, args.plan, args.engine),
            depends_on=[claim],
            # They are replaced one after the other. An option, not an annotation: a changed count shows as just that.
            patience_s=args.spec.replicas * _turnover_s(args.spec, args.plan),
        )
        budget = disruption_budget(name, space.name, max_unavailable=args.plan.max_unavailable)
        self.child("budget", budget, depends_on=[space.ready])
        self.child("network-policy", network_policy(name, space.name, args.clients), depends_on=[space.ready])
        self.handle = ModelServerHandle(labels=labels(name), port=PORT, ready=replicas)
        self.finish(name=name)
