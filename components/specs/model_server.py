"""What a site may set for the servers of a model, and the derived figures of a replica."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal
from zoneinfo import available_timezones

from pydantic import AfterValidator, Field, field_validator, model_validator

from components.specs.adapters import MOST_RESIDENT
from components.specs.cron import cron_time
from floor import gpu_nodes
from floor.problems import WrongValueError
from floor.spec import MOST_REPLICAS, MOST_SECONDS, Spec

# Far more than any method drafts well; each costs cache, logits and a place in the step.
MOST_DRAFTED = 16
_SPARE = 2
# An autoscaler's window: Kubernetes' most (pkg/apis/autoscaling/validation).
LONGEST_WINDOW_S = 3600
MOST_PRIORITY = 1_000_000
# Without a priority of the site's own.
_WHOLE_NODES_PRIORITY = 100


class LayoutSpec(Spec):
    """How a replica is cut over its GPUs; it takes tensor x data x pipeline of them, of one node without `nodes`."""

    tensor: int = Field(default=1, ge=1)
    """Tensor-parallel ranks: GPUs that share each layer."""
    data: int = Field(default=1, ge=1)
    """Data-parallel ranks behind the replica's one address, each with its own queue and cache; with experts only."""
    pipeline: int = Field(default=1, ge=1)
    """Stages that the layers are divided into."""
    expert_parallel: bool = False
    """Whole experts per GPU instead of a slice of each; `data` requires it."""

    @property
    def gpus(self) -> int:
        """GPUs of one replica."""
        return self.tensor * self.data * self.pipeline


class SpeculativeSpec(Spec):
    """Speculative decoding: drafted tokens that one step of the model verifies."""

    method: Literal["ngram", "mtp", "draft"]
    """What drafts. `ngram`: earlier tokens of the same request. `mtp`: layers of the checkpoint itself, where its
    catalogue entry has `draft_layers`. `draft`: a smaller model with the same tokens, named in `catalogue`."""
    tokens: int = Field(ge=1, le=MOST_DRAFTED)
    """Drafted tokens that a step verifies."""
    acceptance: float = Field(ge=0, lt=1)
    """Probability that a drafted token is accepted if those before it are, as you measured it with your requests:
    `vllm:spec_decode_num_accepted_tokens_per_pos_total` of position 0 over `vllm:spec_decode_num_drafts_total`."""
    catalogue: str | None = None
    """Name of the draft model's file in the catalogue; required for the method `draft`, and for no other."""

    @model_validator(mode="after")
    def _draft_is_named(self) -> SpeculativeSpec:
        if (self.method == "draft") != (self.catalogue is not None):
            raise WrongValueError(
                "method and catalogue do not go together",
                got=f"method {self.method} and {'no catalogue' if self.catalogue is None else 'a catalogue'}",
                allowed="catalogue with method draft, and with no other",
                fix="write method: draft with the draft model as catalogue, or take catalogue out",
            )
        return self


class PeakSpec(Spec):
    """A time of the week at which a load is known to come, before any queue shows it."""

    start: Annotated[str, AfterValidator(cron_time)]
    """When it begins, as cron has it: minute, hour, day of the month, month, day of the week, such as
    `45 7 * * 1-5`. Set it a cold start early."""
    end: Annotated[str, AfterValidator(cron_time)]
    """When it ends, as cron has it."""
    least: int = Field(ge=1, le=MOST_REPLICAS)
    """Replicas that there are at least in between."""
    timezone: str = "UTC"
    """Time zone of both, as IANA names it, such as `Europe/Paris`."""

    @field_validator("timezone")
    @classmethod
    def _is_known(cls, zone: str) -> str:
        # Empty where a machine has no database of them.
        if (known := available_timezones()) and zone not in known:
            raise WrongValueError("is no time zone of IANA", got=zone, fix="write one such as Europe/Paris, or UTC")
        return zone

    @model_validator(mode="after")
    def _lasts(self) -> PeakSpec:
        if self.start.split() == self.end.split():
            raise WrongValueError("ends when it begins", got=self.end, fix="write another end")
        return self


class ScalingSpec(Spec):
    """Scaling between two counts: `replicas` carry the declared load, and fewer serve while less comes."""

    least: int = Field(ge=0, le=MOST_REPLICAS)
    """Replicas that there always are; below `replicas`. With 0 the last one goes once no request has come for so long
    as a replica takes to start and a cold start. The next request gets 503 `model_starting` and starts one."""
    peaks: tuple[PeakSpec, ...] = ()
    """Loads that are known to come."""


class ModelServerSpec(Spec):
    """How a model is served."""

    engine: Literal["vllm", "simulator"] = "vllm"
    """`simulator` answers with random text at the speed of the model's figures, and its model card states so."""
    replicas: int = Field(default=2, ge=1, le=MOST_REPLICAS)
    """Pods that serve the model; two is the minimum for a rolling update without a gap. With `scaling`, the most that
    there are."""
    scaling: ScalingSpec | None = None
    """Fewer replicas while less is asked, by KEDA; without it there are always as many."""
    gpus: int | None = Field(default=None, ge=1)
    """GPUs per replica; without it the fewest that the proof finds. `layout` sets it too, so set one of the two."""
    layout: LayoutSpec | None = None
    """How a replica is split over its GPUs; without it the proof's best, only tensor-parallel where that is enough."""
    nodes: int = Field(default=1, ge=1, le=gpu_nodes.MOST_OF_A_REPLICA)
    """Nodes of a replica. From two on it has every GPU of each: tensor parallelism inside of a node and a stage of the
    pipeline on each, or what `layout` sets. They run as a group by LeaderWorkerSet, over RDMA devices, and one lost
    node is a lost replica. Simulators need no such device, as those of a group do not join."""
    priority: int | None = Field(default=None, ge=0, le=MOST_PRIORITY)
    """Priority of its Pods. Where a replica finds no room, Kubernetes stops replicas of models with a lower one for it,
    which drain their streams and start again where there is room. Without it, replicas of whole nodes have 100 and
    others 0: those with 100 are placed first, and stop no other."""
    gpu_family: str = "hopper"
    """Value of the node label `nvidia.com/gpu.family` that replicas need."""
    gpu_slice: str | None = None
    """Profile of the MIG slice that a replica has in place of a whole GPU, such as `1g.18gb`; machines with `mig:
    all-1g.18gb` offer it. Without it, whole GPUs."""
    max_num_batched_tokens: int = Field(default=8192, ge=256)
    """Tokens that one engine step processes: more speeds prefill up, fewer keep running streams smooth."""
    long_prefill_token_threshold: int | None = Field(default=None, ge=256)
    """Tokens of one prompt in one engine step while other requests run. A long prompt then takes more steps and its
    first token comes later; gaps of other streams are shorter, and shorter prompts pass it."""
    typical_request_tokens: int = Field(default=16_384, ge=1)
    """Prompt plus answer of a usual request; decides how many run at once."""
    longest_stream_s: int = Field(default=600, ge=1, le=MOST_SECONDS)
    """Streams run on for this long when their replica stops. When an Envoy stops, or the gateway's listener changes,
    they do so for `gateway.longest_stream_s`, or for this where it is longer."""
    speculative: SpeculativeSpec | None = None
    """Speculative decoding; without it each step gives a running request one token."""
    quantization: Literal["fp8_per_tensor", "fp8_per_block"] | None = None
    """What vLLM makes of 16-bit weights as it loads them, as its `--quantization` calls it: FP8 with one scale for a
    matrix, or for 128 x 128 elements of it. What the answers lose is not proven."""
    loading: Literal["default", "lazy", "eager", "prefetch", "streamer"] = "default"
    """How vLLM reads the weights. `default` maps the files, and reads them ahead from NFS where they fit into 90 % of
    the free memory. `lazy`, `eager` and `prefetch` are its `--safetensors-load-strategy`: mapped and never ahead; each
    file as a whole; all ahead. `streamer` is its `--load-format=runai_streamer`: several reads at once. The cold start
    has no factor for any of them: set `storage.read_bytes_per_s` to what is measured with it."""
    kv_offload_gib: int | None = Field(default=None, ge=1, le=8192)
    """GiB of a node's memory in which each replica keeps KV cache that its GPUs have dropped, by vLLM's
    `--kv-offloading-size`. A prompt that begins as an earlier one is copied back in place of being computed. The
    replica requests them of its node. Without it, what the GPUs drop is computed again."""
    resident_adapters: int | None = Field(default=None, ge=1, le=MOST_RESIDENT)
    """Adapters that have a place on each GPU at once; the others are in the memory of its node, which the replica
    requests. A request whose adapter has no place takes that of another one, and waits while requests for others have
    all of them. Without it, each has a place, of 16 adapters at most."""
    revision: str | None = None
    """Commit of the model's repository at the hub, 40 hexadecimal digits. Without it the catalogue's."""
    simulated_load_scale: float = Field(default=1.0, gt=0, le=1)
    """The simulator needs this share of the predicted load time to start; vLLM ignores it."""
    engine_release: str | None = Field(default=None, pattern=r"^[0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,4}$")
    """Release of vLLM that runs in place of the platform's, such as `0.33.0`, of the same image: below `canary`, to try
    an upgrade on a share. Its arguments are those of the platform's release, so it may be no older one."""
    extra_args: tuple[str, ...] = ()
    """Flags of the engine that neither a setting nor the proof depends on, such as `--seed=7`."""

    @field_validator("replicas", mode="before")
    @classmethod
    def _is_no_range(cls, given: object) -> object:
        """Autoscalers elsewhere take a range here; the proof is of one number."""
        if isinstance(given, dict) and given.keys() & {"least", "most"}:
            most, least = given.get("most", given.get("least")), given.get("least", 1)
            raise WrongValueError(
                "is a range, and this is the most of one",
                got=", ".join(f"{key}: {given[key]}" for key in ("least", "most") if key in given),
                allowed="one whole number",
                fix=f"write replicas: {most if isinstance(most, int) else 2} and, beside it, "
                f"scaling: {{least: {least if isinstance(least, int) else 1}}}",
            )
        return given

    @model_validator(mode="after")
    def _scales_down(self) -> ModelServerSpec:
        if self.scaling is None:
            return self
        if self.scaling.least >= self.replicas:
            raise WrongValueError(
                "scaling.least is not below replicas",
                got=f"{self.scaling.least} and {self.replicas}",
                fix=f"raise replicas to at least {self.scaling.least + 1}, or take scaling out",
            )
        for number, peak in enumerate(self.scaling.peaks):
            if not self.scaling.least < peak.least <= self.replicas:
                raise WrongValueError(
                    f"scaling.peaks[{number}].least is not between scaling.least and replicas",
                    got=f"{peak.least}, with {self.scaling.least} and {self.replicas}",
                    allowed=f"from {self.scaling.least + 1} to {self.replicas}",
                    fix=f"write {self.replicas}",
                )
        return self

    @property
    def least(self) -> int:
        """Replicas that there always are."""
        return self.scaling.least if self.scaling else self.replicas

    @model_validator(mode="after")
    def _gpus_are_set_once(self) -> ModelServerSpec:
        if self.gpus is not None and self.layout is not None:
            raise WrongValueError(
                "has gpus and layout",
                got=f"gpus with {self.gpus} and layout with {self.layout.gpus} GPUs",
                allowed="one of the two",
                fix="take gpus out, or layout where the proof may choose it",
            )
        return self


@dataclass(frozen=True, kw_only=True)
class PodPriority:
    """In which order replicas of models are placed, and whether one stops others to find room."""

    value: int
    preempts: bool
    """Whether it stops replicas of a lower priority; only where the site sets it."""

    def outranks(self, other: PodPriority) -> bool:
        """Whether a replica with it may stop one with the other."""
        return self.preempts and self.value > other.value


def pod_priority(spec: ModelServerSpec, *, whole_nodes: bool) -> PodPriority:
    """The site's own, or by the size of a replica."""
    if spec.priority is not None:
        return PodPriority(value=spec.priority, preempts=True)
    return PodPriority(value=_WHOLE_NODES_PRIORITY if whole_nodes else 0, preempts=False)


SCALED = "inference-platform/scaled"
"""Annotation of a Deployment whose number follows the load: `2 to 4 replicas`."""
ENGINE_IMAGE = "engine-image"
"""Name of the DaemonSet that pulls the engine's image onto GPU nodes."""


@dataclass(frozen=True, kw_only=True)
class FirstTokens:
    """When requests have their first token: so large a share of them, 0 to 1, within so many seconds."""

    share: float
    seconds: float

    @property
    def fewest(self) -> int:
        """Of fewer requests, one alone would be all that is beyond the share."""
        return round(1 / (1 - self.share))


@dataclass(frozen=True, kw_only=True)
class ZeroPlan:
    """What holds while a model may have no replica."""

    cooldown_s: int
    """The last replica goes once no request has come for so long."""
    start_s: int
    """Until the first one serves, as clients get it in the refusal."""
    retry_after_s: int
    """When a client that is refused meanwhile is to ask again."""
    noticed_s: int = 15
    """How often it is looked whether a request came."""
    seen_s: int = 120
    """Requests of so many seconds count: some scrapes, and none is passed over."""


@dataclass(frozen=True, kw_only=True)
class ScalingPlan:
    """Between which numbers of replicas a model is scaled, and by what."""

    least: int
    most: int
    peaks: tuple[PeakSpec, ...]
    requests: int
    """That a replica runs or keeps waiting when another one is due."""
    kv_share: float
    """Of a replica's cache that is in use when another one is due, 0 to 1."""
    first_token: FirstTokens | None = None
    """Later ones make another replica due; None where no target is declared."""
    zero: ZeroPlan | None = None
    """None where a replica always runs."""
    window_s: int
    """A replica goes only when fewer were enough for so long."""
    burst_s: int = 30
    """What asks for one more must last so long: a replica takes minutes to start."""
    step_s: int = 60
    """One replica goes in so many seconds; with long streams several end at once."""
    seen_s: int = 120
    """First tokens of so many seconds count."""
    late_step: float = 1.15
    """Of those that serve, so many are due while first tokens are late: the autoscaler takes a tenth for nothing."""


@dataclass(frozen=True, kw_only=True)
class ModelServerPlan:
    """The capacity figures of a replica, as plain numbers."""

    layout: LayoutSpec
    weight_bytes: float
    kv_cache_dtype: str
    max_model_len: int
    max_num_seqs: int
    """Of the whole replica, over its data-parallel ranks."""
    max_num_batched_tokens: int
    """Tokens that one engine step processes."""
    long_prefill_token_threshold: int | None
    """Of these, those of one prompt while others run; None for all."""
    max_num_queued_reqs: int
    """Requests that it is to run or keep waiting; see `engine_limit`."""
    max_answer_tokens: int | None
    """Most tokens of an answer; None for a model that writes none."""
    max_unavailable: int
    """Replicas that may be drained at once."""
    whole_nodes: bool
    """Whether a replica takes every GPU of its nodes."""
    priority: PodPriority
    by_priority: bool
    """Whether requests wait in the engine in the order of their tiers, and not of their arrival."""
    kv_blocks: int
    """Blocks of the KV cache of one replica."""
    block_tokens: int
    prefill_s_per_token: float
    prefill_overhead_s: float
    decode_s_per_token: float
    decode_slowdown_when_full: float
    load_s: float
    """Time to read the weights from the volume."""
    start_budget_s: int
    """A replica that has not started by then is restarted."""
    startup_probe_period_s: int
    startup_probe_failures: int
    stall_s: int
    """A replica hangs if it holds requests for longer than that without a step."""
    cpu_request_cores: int
    memory_request_gib: int
    scaling: ScalingPlan | None = None
    """None where their number is fixed."""

    @property
    def engine_limit(self) -> int:
        """Requests that its engine runs or keeps waiting before it refuses: twice as many as it is to.

        Gateway and picker keep it from refusing. But the picker knows a queue only as of its last scrape: until then a
        burst with one prefix goes to one replica, as all does while its neighbour is replaced. vLLM 0.32 refuses some
        streams of such a burst by HTTP 200 and an event, which no status, retry or count of the gateway shows.
        """
        return _SPARE * self.max_num_queued_reqs

    nodes: int = 1
    """Of a replica; each has an equal part of its GPUs, in a pod of its own."""

    @property
    def gpus(self) -> int:
        """GPUs of one replica."""
        return self.layout.gpus

    @property
    def pod_gpus(self) -> int:
        """GPUs of one of its pods."""
        return self.gpus // self.nodes
