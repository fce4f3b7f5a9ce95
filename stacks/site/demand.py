"""What a site expects of a model and what its GPUs cost: the input of the capacity and cost proof."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, StringConstraints, model_validator

from components.specs.inference_pool import InferencePoolSpec
from components.specs.model import ModelSpec
from components.specs.model_server import MOST_PRIORITY, ModelServerSpec
from floor.problems import WrongValueError
from floor.revision_ids import RevisionId
from floor.spec import MOST_REPLICAS, MOST_SECONDS, Day, Name, Spec
from stacks.facts import catalogue
from stacks.facts.catalogue import CatalogueModel
from stacks.site.quiet_hours import QuietHours

# Blanks around it are no reason.
Reason = Annotated[str, StringConstraints(strip_whitespace=True), Field(min_length=10)]
# A request ends before, whatever it is promised.
_LONGEST_MS = MOST_SECONDS * 1000
# Of any currency; more is a slip of the exponent.
_MOST_COST = 10**9


class TokenCounts(Spec):
    """How many tokens a request has, as two points of their distribution."""

    p50: int = Field(gt=0)
    """Half of the requests have at most this many."""
    p95: int = Field(gt=0)
    """19 of 20 requests have at most this many."""

    @model_validator(mode="after")
    def _in_order(self) -> TokenCounts:
        if self.p95 < self.p50:
            raise WrongValueError(
                f"p95 is {self.p95}, which is below p50 with {self.p50}", fix=f"raise p95 to at least {self.p50}"
            )
        return self


class LoadSpec(Spec):
    """The traffic that one model is expected to carry at its busiest hour, over all replicas and tenants."""

    requests_per_s: float = Field(gt=0)
    """Requests that arrive a second."""
    prompt_tokens: TokenCounts = TokenCounts(p50=2000, p95=16_000)
    """Tokens of a prompt, history included."""
    answer_tokens: TokenCounts = TokenCounts(p50=400, p95=2000)
    """Tokens of an answer, reasoning included."""
    prefix_hit: float = Field(default=0.0, ge=0, le=1)
    """Share of the prompt tokens that a replica finds in its cache; 0 if it was not measured."""
    common_prefix: float = Field(default=0.0, ge=0, le=1)
    """Share of the prompt tokens that several tenants send, such as the system prompt of a tool that all of them use;
    a part of `prefix_hit`, as one cache for all would find it. Where a gatekeeper keeps tenants' caches apart, preview
    counts what of it is computed again, and what that costs."""
    adapter_skew: float = Field(default=0.0, ge=0, le=3)
    """Of a model whose adapters take turns on its GPUs (`server.resident_adapters`): the exponent of Zipf's law by
    which requests are for them. 0: all are asked alike, which has the fewest requests at once."""
    quiet_hours: QuietHours = Field(default_factory=dict)
    """Hours of the site's day in which less comes: the share of `requests_per_s`, such as `{22-06: 0.1}`. The proof
    then shows what the replicas can do for jobs in them."""


_TargetMs = Annotated[float | None, Field(gt=0, le=_LONGEST_MS)]


class SloSpec(Spec):
    """What users of a model may count on, under its declared load. In milliseconds; any of them, at least one."""

    ttft_p50_ms: _TargetMs = None
    """Half of the requests get their first token within this many milliseconds."""
    ttft_p95_ms: _TargetMs = None
    """19 of 20 requests get their first token within this many milliseconds."""
    ttft_p99_ms: _TargetMs = None
    """99 of 100 requests get their first token within this many milliseconds."""
    itl_p50_ms: _TargetMs = None
    """Half of the tokens come at most this long after the previous one; the mean as well."""
    itl_p95_ms: _TargetMs = None
    """19 of 20 tokens come at most this many milliseconds after the previous one; the mean time as well."""
    itl_p99_ms: _TargetMs = None
    """99 of 100 tokens come at most this long after the previous one; the mean as well."""
    tpot_p50_ms: _TargetMs = None
    """Of half of the requests, the mean time between tokens is at most this long; the mean of all as well."""
    tpot_p95_ms: _TargetMs = None
    """Of 19 of 20 requests, the mean time between tokens is at most this long; the mean of all as well."""
    tpot_p99_ms: _TargetMs = None
    """Of 99 of 100 requests, the mean time between tokens is at most this long; the mean of all as well."""

    @model_validator(mode="after")
    def _says_something(self) -> SloSpec:
        given = {key: ms for key, ms in self.model_dump().items() if ms is not None}
        if not given:
            keys = ", ".join(type(self).model_fields)
            raise WrongValueError("names no target", fix=f"give at least one of {keys}, or take slo out")
        for (lower, least), (higher, most) in pairwise(given.items()):
            if lower.split("_")[0] == higher.split("_")[0] and least > most:
                raise WrongValueError(
                    f"{higher} is {most:g}, which is below {lower} with {least:g}",
                    fix=f"raise {higher} to at least {least:g}, or lower {lower}",
                )
        return self


class OverriddenCount(Spec):
    """A figure that the site sets instead of the one that the proof derives."""

    value: int = Field(gt=0)
    """The figure; the proof checks it like its own."""
    reason: Reason
    """Why the derived figure does not do, for those who read the file later; at least 10 letters."""


class OverriddenShare(Spec):
    """A share that the site sets instead of the one that the proof derives."""

    value: float = Field(gt=0, le=1)
    """The share; the proof checks it like its own."""
    reason: Reason
    """Why the derived share does not do, for those who read the file later; at least 10 letters."""


class OverridesSpec(Spec):
    """Settings that the proof derives and this site overrides."""

    max_num_seqs: OverriddenCount | None = None
    """Requests that one replica runs at once."""
    max_num_batched_tokens: OverriddenCount | None = None
    """Tokens that one engine step processes."""
    max_model_len: OverriddenCount | None = None
    """Longest prompt plus answer, in tokens."""
    max_num_queued_reqs: OverriddenCount | None = None
    """Requests that one replica is to run or queue. Thresholds of picker and gateway follow; its engine refuses from
    twice as many on."""
    picker_queue_threshold: OverriddenCount | None = None
    """Waiting requests from which on the picker prefers another replica."""
    picker_kv_threshold: OverriddenShare | None = None
    """Share of a replica's cache in use from which on the picker prefers another replica."""
    gateway_parallel_requests: OverriddenCount | None = None
    """Parallel requests for this model in one Envoy pod; it refuses the next."""
    gateway_max_tokens: OverriddenCount | None = None
    """Most tokens of an answer, whatever its request asks for."""
    start_budget_s: OverriddenCount | None = None
    """Seconds that a replica may take to start before it is restarted."""
    stall_s: OverriddenCount | None = None
    """Seconds without a step, while it holds requests, after which a replica is restarted."""
    disruption_max_unavailable: OverriddenCount | None = None
    """Replicas that may be drained at the same time."""
    cpu_request_cores: OverriddenCount | None = None
    """Cores that a replica requests of its node, as Kubernetes counts them: in hardware threads."""
    memory_request_gib: OverriddenCount | None = None
    """GiB of the node's memory that a replica requests; with more in use, it is evicted earlier than others."""


class CanarySpec(Spec):
    """A second revision of a model beside its stable one: who gets it, and the keys in which it differs."""

    percent: int = Field(ge=0, le=100)
    """Share of the model's sessions that it serves. As this grows, no session goes back; with 0 it has only tenants
    that are pinned to it."""
    sticky: Literal["session", "tenant"] = "session"
    """What stays on one revision. `session`: a tenant's requests with the same `prompt_cache_key`, else the same
    `safety_identifier` or `user`, else with the same key. `tenant`: all requests of a tenant."""
    pinned: dict[Name, Literal["stable", "canary"]] = Field(default_factory=dict)
    """Tenants that have one revision whatever the share is."""
    catalogue: str | None = None
    """Name of its file in the catalogue; without it the model's own."""
    server: ModelServerSpec | None = None
    """How it is served, where that differs from the model's `server`; its other keys are the model's."""
    pool: InferencePoolSpec | None = None
    """How requests are spread over its replicas, where that differs from the model's `pool`."""
    overrides: OverridesSpec | None = None
    """Derived figures that are overridden for it, beside those of the model."""


class DedicatedServerSpec(Spec):
    """How dedicated replicas are served, where that differs from the model's `server`."""

    replicas: int = Field(ge=1, le=MOST_REPLICAS)
    """Replicas for these tenants; with one, a rollout leaves them none for a while."""
    priority: int | None = Field(default=None, ge=0, le=MOST_PRIORITY)
    """As `server.priority`; the model's own without it."""


class DedicatedSpec(Spec):
    """Replicas of a model that answer some tenants alone, on the model's own weights."""

    tenants: tuple[Name, ...]
    """Tenants that these replicas answer, and no others do; each may call the model. `[]` starts them for none yet."""
    server: DedicatedServerSpec
    """How they are served; all other keys are the model's."""
    load: LoadSpec | None = None
    """Traffic of these tenants, on top of the model's `load`, whose other keys it has. Without it the targets are not
    proven for them."""
    when_away: Literal["refuse", "shared"] = "refuse"
    """While none of these replicas is ready: `refuse` answers 503 with Retry-After, `shared` takes the replicas of all
    other tenants."""


class OverflowSpec(Spec):
    """Where requests go while a model is full or away."""

    to: Name
    """A smaller model of this site that answers them: of tenants with `overflow: accept` that may call it too."""


# How many replicas there are, and how they start, end and are placed.
_NOT_OF_ANSWERS = (
    "replicas",
    "scaling",
    "longest_stream_s",
    "priority",
    "typical_request_tokens",
    "simulated_load_scale",
    "loading",
)
_Section = TypeVar("_Section", bound=Spec)
# What a site sets once for a model, beside its stable revision.
_OF_THE_NAME: Mapping[str, Any] = {"canary": None, "dedicated": {}, "overflow": None}
_OF_ALL_REPLICAS = ("disruption_max_unavailable", "gateway_parallel_requests")
# Of these a server has one, so one of the canary's takes the place of the model's other.
_ONE_OF = ("gpus", "layout")


def _over(section: _Section, given: _Section | None) -> _Section:
    """The section, with the keys that are given."""
    if given is None:
        return section
    return section.model_copy(update={key: getattr(given, key) for key in given.model_fields_set})


class CalibrationSpec(Spec):
    """Step times that `sitectl calibrate` has measured, over those that the proof computes."""

    pace: float = Field(ge=0.2, le=5)
    """Median over the periods."""
    low: float = Field(ge=0.1, le=5)
    """Nine of ten periods have no less than this, and no more than `high`."""
    high: float = Field(ge=0.2, le=10)
    """Nine of ten periods have no more than this, and no less than `low`."""
    periods: int = Field(ge=12)
    """Periods of ten minutes with enough requests."""
    gpu: str
    """Kind of GPU that they ran on."""
    engine: str | None = Field(default=None, pattern=r"^[0-9]{1,4}\.[0-9]{1,4}$")
    """Version of vLLM, such as `0.32`; not set where a digest alone names the image."""
    settings: str = Field(pattern=r"^[0-9a-f]{8}$")
    """Digest of the model's catalogue entry, its engine's settings and its adapters. With others, on another GPU or
    another version of vLLM, the proof takes published figures again."""
    until: Day
    """The last day that was looked at."""

    @model_validator(mode="after")
    def _in_order(self) -> CalibrationSpec:
        if not self.low <= self.pace <= self.high:
            raise WrongValueError(
                f"pace {self.pace:g} is not between low {self.low:g} and high {self.high:g}",
                fix="write what sitectl calibrate prints",
            )
        return self


class OrderedModelSpec(ModelSpec):
    """A model that a site serves, with what the site expects of it."""

    load: LoadSpec | None = None
    """Expected traffic, without that of tenants with `dedicated` replicas; without it the proof shows what a replica
    can hold, and nothing about targets."""
    slo: SloSpec | None = None
    """Latency targets; without them any latency is accepted."""
    overrides: OverridesSpec = Field(default_factory=OverridesSpec)
    """Derived figures that this site overrides, each with its reason."""
    canary: CanarySpec | None = None
    """A second revision that serves a share of its sessions, to try it before it serves all."""
    dedicated: dict[Name, DedicatedSpec] = Field(default_factory=dict)
    """Replicas for some tenants alone, by a name of your choice; all other tenants share the model's `server`."""
    overflow: OverflowSpec | None = None
    """Another model that answers requests while this one is full or has no ready replica."""
    calibration: CalibrationSpec | None = None
    """What `sitectl calibrate` has measured of its replicas, which the proof takes in the place of published figures;
    not of a canary."""
    served_until: Day | None = None
    """The last day on which tenants may count on this checkpoint under this name: "2027-06-30". The portal shows it,
    and `plan` and `diff` name each change that takes the model from them before."""

    @property
    def of_canary(self) -> OrderedModelSpec | None:
        """What its canary is as a model of its own, with its share of the load; None without one."""
        canary = self.canary
        if canary is None:
            return None
        # Its replicas are a number, as the proof of its share is of one.
        server = self.server.model_copy(update={"scaling": None})
        if canary.server and any(getattr(canary.server, key) is not None for key in _ONE_OF):
            server = server.model_copy(update=dict.fromkeys(_ONE_OF))
        update: dict[str, Any] = {
            **_OF_THE_NAME,
            # A canary goes again, and its weights can be downloaded again.
            "volume": "disposable",
            "calibration": None,
            "catalogue": canary.catalogue or self.catalogue,
            "server": _over(server, canary.server),
            "pool": _over(self.pool, canary.pool),
            "overrides": _over(self.overrides, canary.overrides),
        }
        if self.load is not None and canary.percent < 100:
            rate = self.load.requests_per_s * canary.percent / 100
            # Nothing is known of what pinned tenants send.
            share = self.load.model_copy(update={"requests_per_s": rate}) if rate else None
            update |= {"load": share, "slo": self.slo if share else None}
        return self.model_copy(update=update)

    def of_dedicated(self, group: DedicatedSpec) -> OrderedModelSpec:
        """What dedicated replicas are as a model of their own, with their load and no volume."""
        server: dict[str, Any] = {"replicas": group.server.replicas, "scaling": None}
        if group.server.priority is not None:
            server["priority"] = group.server.priority
        load = _over(self.load, group.load) if self.load else group.load
        update: dict[str, Any] = {
            **_OF_THE_NAME,
            "server": self.server.model_copy(update=server),
            "load": load if group.load else None,
            "slo": self.slo if group.load else None,
            # Overridden figures of all replicas together are those of the model's own number.
            "overrides": self.overrides.model_copy(update=dict.fromkeys(_OF_ALL_REPLICAS)),
        }
        return self.model_copy(update=update)

    def revisions(self, name: str) -> Iterator[tuple[RevisionId, OrderedModelSpec]]:
        """The stable revision, its canary and its dedicated replicas. name: the model's."""
        yield RevisionId(name), self
        if (canary := self.of_canary) is not None:
            yield RevisionId(name, canary.digest), canary
        for group, spec in sorted(self.dedicated.items()):
            yield RevisionId(name, group=group), self.of_dedicated(spec)

    @property
    def digest(self) -> str:
        """Of what answers depend on: the catalogue entry, the engine's settings that are not the default, adapters.

        8 hexadecimal digits.
        """
        entry = self.entry.model_dump(mode="json", exclude_defaults=True)
        parts = [entry, self.server.model_dump(mode="json", exclude_defaults=True, exclude=set(_NOT_OF_ANSWERS))]
        if self.adapters:
            parts.append({name: [spec.repository, spec.revision] for name, spec in sorted(self.adapters.items())})
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:8]

    @property
    def entry(self) -> CatalogueModel:
        """Its entry of the catalogue."""
        return catalogue.load(self.catalogue)

    @property
    def draft(self) -> CatalogueModel | None:
        """The entry of the model that drafts for it; None where none does."""
        name = self.server.speculative.catalogue if self.server.speculative else None
        return catalogue.load(name) if name else None

    @model_validator(mode="after")
    def _targets_under_a_load(self) -> OrderedModelSpec:
        if self.slo and not self.load:
            raise WrongValueError(
                "slo is given and load is not, so whether the targets hold cannot be proven",
                fix="add load with requests_per_s, or take slo out",
            )
        return self


class TakeOverSpec(Spec):
    """Another site whose requests come here while it is away."""

    share: float = Field(default=1.0, gt=0, le=1)
    """Of its declared load: the part that has to be answered meanwhile, such as that without jobs."""


class PricesSpec(Spec):
    """What the site pays."""

    gpu_hour: float = Field(gt=0, le=_MOST_COST)
    """Cost of one GPU for one hour, with its share of machine, room and staff."""
    currency: str = Field(default="EUR", pattern=r"^[A-Z]{3}$")
    """Three capital letters, as ISO 4217 has them."""
    power_kwh: float = Field(default=0.0, ge=0, le=_MOST_COST)
    """Cost of one kilowatt-hour; 0 if gpu_hour includes it."""
