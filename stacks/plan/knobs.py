"""Every setting that follows from a proof, with its formula and inputs: engine, picker, gateway, probes, scaling.

A setting is written here once; a flag, a threshold or a budget is rendered from here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from stacks.proof.case import Case
from stacks.proof.figures import Explanation
from stacks.proof.memory import BLOCK_TOKENS
from stacks.proof.proof import Proof
from stacks.proof.search import with_replicas
from stacks.proof.serving import PATH_S, REQUEST_OVERHEAD_S

# Kubernetes asks a starting replica this often.
PROBE_PERIOD_S = 5
# Compilation and CUDA graphs on a slow day.
START_SLACK_S = 300
# A download and a disk may be this much slower than predicted: that is no crash.
START_MARGIN = 2
# Bytes of a body for each token of it: two characters, each escaped as JSON's \uXXXX\uXXXX; estimated, text has 4.
BODY_BYTES_PER_TOKEN = 24
# Parts of a body other than its text: settings of the request, roles, names.
_BODY_FRAME_KIB = 64
# The picker takes a body as one message of gRPC, of 4 MiB at most, with a little around it.
LARGEST_BODY_KIB = 4 * 1024 - 4
# The picker keeps at least this share of a cache for growth, and never thinks more than this is free; estimated.
_KV_SHARES = (0.5, 0.95)


@dataclass(frozen=True, kw_only=True)
class Override:
    """A knob that the site sets instead of the proof."""

    value: float
    reason: str


@dataclass(frozen=True, kw_only=True)
class Serving:
    """Settings of a site, other than the order, that the knobs need."""

    longest_stream_s: int = 600
    """A terminating replica lets its streams run for this long."""
    overrides: Mapping[str, Override] = field(default_factory=dict)
    """By the knob's name. What follows from an overridden knob follows from the site's value."""

    def settled(self, derived: Explanation) -> Explanation:
        """The site's value where it sets one, else the derived one."""
        override = self.overrides.get(derived.key)
        if override is None:
            return derived
        value = int(override.value) if isinstance(derived.value, int) else override.value
        return replace(derived, value=value, origin="override", reason=override.reason)


def knobs(proof: Proof, serving: Serving | None = None) -> dict[str, Explanation]:
    """All of them by name, in a stable order. Of a proof that does not hold they say what was tried."""
    serving = serving or Serving()
    case = proof.case
    queue = {each.key: each for each in _queue(case, serving)}
    found = [
        *_engine(case, serving),
        *queue.values(),
        *_gateway(case, serving, queue),
        *_start(proof, serving),
        *_scaling(proof, serving, queue),
    ]
    return {each.key: each for each in found}


def number(knob: Explanation) -> float:
    """A knob's value as a number. Raises TypeError for text."""
    if isinstance(knob.value, str):
        raise TypeError(f"{knob.key} is {knob.value!r}")
    return knob.value


def _engine(case: Case, serving: Serving) -> list[Explanation]:
    order, layout = case.order, case.layout
    reasons = {key: override.reason for key, override in serving.overrides.items()}
    memory = {
        "cache_bytes_per_gpu": round(max(0.0, case.room)),
        "request_bytes": round(case.cache.request_bytes(order.request_tokens)),
        "request_tokens": round(order.request_tokens),
    }
    targets = {"itl_p95_ms": order.slo.itl_p95_ms} if order.slo.itl_p95_ms is not None else {}
    cut_by: Literal["site", "derived"] = "site" if order.layout else "derived"

    def size(key: str, value: int, formula: str) -> Explanation:
        inputs = {"weight_bytes_per_gpu": round(case.weights), "usable_bytes_per_gpu": round(case.usable)}
        return Explanation(key=key, value=value, unit="GPUs", origin=cut_by, formula=formula, inputs=inputs)

    def limit(
        key: str, value: int, unit: str, formula: str, overridden: bool, inputs: Mapping[str, float]
    ) -> Explanation:
        return Explanation(
            key=key,
            value=value,
            unit=unit,
            origin="override" if overridden else "derived",
            formula=formula,
            inputs=dict(inputs),
            reason=reasons.get(key, ""),
        )

    fewest = "fewest GPUs that hold weights and the longest request, and carry the load within its targets"
    fewest = "server.layout, checked by the proof" if order.layout else fewest
    return [
        size("tensor_parallel_size", layout.tensor, fewest),
        size("pipeline_parallel_size", layout.pipeline, fewest),
        size("data_parallel_size", layout.data, fewest),
        Explanation(
            key="enable_expert_parallel",
            value=layout.expert_parallel,
            unit="",
            origin=cut_by,
            formula="whole experts where ranks are data-parallel, or a slice would not be whole blocks",
            inputs={"layout": str(layout)},
        ),
        Explanation(
            key="kv_cache_dtype",
            value="fp8" if order.kv_dtype == "fp8" else "auto",
            unit="",
            origin="derived",
            formula="fp8 where the GPU has FP8 units: half the bytes per token",
            inputs={"gpu": order.gpu},
        ),
        limit(
            "max_model_len",
            case.context,
            "tokens",
            "min(model's limit, longest request that the cache holds, what the site asks for)",
            order.context_tokens is not None,
            {"model_limit": order.model.max_context_tokens, "cache_holds": case.longest},
        ),
        limit(
            "max_num_seqs",
            case.slots,
            "requests",
            "min(cache / bytes of a mean request, largest batch whose decode step is within the ITL target, 1024)",
            order.max_num_seqs is not None,
            memory | targets,
        ),
        limit(
            "max_num_batched_tokens",
            case.batched_tokens,
            "tokens",
            "largest chunk with which the declared load keeps its ITL target; 8192 without one",
            order.max_num_batched_tokens is not None,
            targets,
        ),
        limit(
            "kv_blocks",
            case.cache_tokens // BLOCK_TOKENS,
            "blocks",
            "cache / bytes of a mean request x its tokens / 16, over data-parallel ranks",
            False,
            memory,
        ),
    ]


def queue_requests(case: Case) -> int:
    """Requests that may wait in front of one scheduler: those that it works off before the TTFT target is gone.

    Without a target as many as run, so that a full replica has its next batch at hand.
    """
    limit = case.order.slo.ttft_p95_ms
    if limit is None or not case.order.load or case.fit_problems:
        return case.slots
    # Of a full replica, so that neither load nor replicas change an argument of running engines.
    times = case.steady.busiest_prompt_service_s
    mean = sum(times) / len(times)
    left = limit / 1e3 - PATH_S - REQUEST_OVERHEAD_S - times[-2]
    return max(1, math.floor(left / mean))


def _queue(case: Case, serving: Serving) -> list[Explanation]:
    order, ranks = case.order, case.layout.data
    running = case.slots * ranks
    prompt = order.load.prompt_tokens.mean if order.load else order.request_tokens
    longest = order.load.longest_tokens if order.load else order.request_tokens
    share = 1 - case.cache.request_bytes(longest) / case.room if case.keeps_cache and case.room > 0 else 1.0
    low, high = _KV_SHARES
    targets = {"ttft_p95_ms": order.slo.ttft_p95_ms} if order.slo.ttft_p95_ms is not None else {}

    def bound(key: str, value: int | float, unit: str, formula: str, **inputs: float) -> Explanation:
        derived = Explanation(
            key=key, value=value, unit=unit, origin="derived", formula=formula, inputs=inputs | targets
        )
        return serving.settled(derived)

    held = bound(
        "max_num_queued_reqs",
        running + queue_requests(case) * ranks,
        "requests",
        "running + waiting requests of a replica, as vLLM counts them; waiting = (TTFT target - path - long prompt) / "
        "mean prompt time, at least 1; without a target as many as run",
        running=running,
    )
    waiting = max(1, int(number(held)) - running)
    return [
        held,
        bound(
            "max_num_queued_tokens",
            math.ceil(waiting * prompt),
            "tokens",
            "waiting requests x mean prompt",
            waiting=waiting,
            mean_prompt_tokens=round(prompt),
        ),
        bound(
            "picker_queue_threshold",
            max(1, waiting // ranks),
            "requests",
            "waiting requests of a replica / its data-parallel ranks: the picker sees one rank's queue",
            waiting=waiting,
            ranks=ranks,
        ),
        bound(
            "picker_kv_threshold",
            round(min(high, max(low, share)), 3),
            "share",
            "1 - cache of one long request / cache, between 0.5 and 0.95",
            long_request_tokens=round(longest),
        ),
    ]


def _gateway(case: Case, serving: Serving, queue: Mapping[str, Explanation]) -> list[Explanation]:
    held = int(number(queue["max_num_queued_reqs"]))
    text = math.ceil(case.context * BODY_BYTES_PER_TOKEN / 1024) + _BODY_FRAME_KIB
    pictures = case.order.model.vision_parameters > 0
    found = [
        Explanation(
            key="gateway_context_tokens",
            value=case.context,
            unit="tokens",
            origin="derived",
            formula="max_model_len",
            inputs={"max_model_len": case.context},
        ),
        Explanation(
            key="gateway_body_kib",
            value=LARGEST_BODY_KIB if pictures else min(LARGEST_BODY_KIB, text),
            unit="KiB",
            origin="derived",
            formula=f"min(largest message of the picker, max_model_len x {BODY_BYTES_PER_TOKEN} bytes + "
            f"{_BODY_FRAME_KIB} KiB); that message for a model that sees: pictures have few tokens for their bytes",
            inputs={"max_model_len": case.context, "largest_kib": LARGEST_BODY_KIB},
        ),
        serving.settled(
            Explanation(
                key="gateway_parallel_requests",
                value=case.replicas * held,
                unit="requests",
                origin="derived",
                formula="replicas x max_num_queued_reqs, in each Envoy pod: one alone must be able to carry them all",
                inputs={"replicas": case.replicas, "max_num_queued_reqs": held},
            )
        ),
    ]
    if case.order.model.task != "generate" or case.fit_problems:
        return found
    slow, declared = token_s(case), case.order.load
    # Answers that the site expects are never cut by the cap.
    usual = math.ceil(declared.answer_tokens.p95) if declared else 1
    return [
        *found,
        serving.settled(
            Explanation(
                key="gateway_max_tokens",
                value=min(case.context, max(usual, math.floor(serving.longest_stream_s / slow))),
                unit="tokens",
                origin="derived",
                formula="min(max_model_len, longest stream / longer of ITL target and a full batch's step): a rollout "
                "cuts longer answers; at least the declared answers' p95",
                inputs={
                    "longest_stream_s": serving.longest_stream_s,
                    "itl_ms": round(slow * 1e3, 1),
                    "answer_tokens_p95": usual,
                },
            )
        ),
    ]


def token_s(case: Case) -> float:
    """Seconds between two tokens at worst, whatever the load: of a full batch, or the target if that allows more."""
    return max(case.decode_s(case.slots), (case.order.slo.itl_p95_ms or 0.0) / 1e3)


def _start(proof: Proof, serving: Serving) -> list[Explanation]:
    download, read = (proof.cold_start[key].value for key in ("download_weights", "read_weights"))
    budget = serving.settled(
        Explanation(
            key="start_budget_s",
            value=math.ceil(START_MARGIN * (download + read)) + START_SLACK_S,
            unit="s",
            origin="derived",
            formula=f"{START_MARGIN} x (time to download the weights + time to read them) + {START_SLACK_S} for "
            "compilation and CUDA graphs",
            inputs={"download_weights_s": round(download), "read_weights_s": round(read)},
        )
    )
    return [
        budget,
        Explanation(
            key="startup_probe_failures",
            value=math.ceil(number(budget) / PROBE_PERIOD_S),
            unit="probes",
            origin="derived",
            formula=f"start budget / period of {PROBE_PERIOD_S} s",
            inputs={"start_budget_s": int(number(budget))},
        ),
    ]


def _scaling(proof: Proof, serving: Serving, queue: Mapping[str, Explanation]) -> list[Explanation]:
    case = proof.case
    needed = needed_replicas(proof)
    spare = max(1, case.replicas - needed)
    cold = math.ceil(proof.cold_start["cold_start"].value)
    tokens, kv = number(queue["max_num_queued_tokens"]), number(queue["picker_kv_threshold"])

    def scale(key: str, value: int | float, unit: str, formula: str, **inputs: float) -> Explanation:
        return Explanation(key=key, value=value, unit=unit, origin="derived", formula=formula, inputs=inputs)

    return [
        scale("autoscale_min_replicas", needed, "replicas", "fewest that carry the declared load within its targets"),
        scale(
            "autoscale_queue_tokens",
            math.ceil(tokens / 2),
            "tokens per replica",
            "half of what may wait: a new replica is asked for before the bound is reached",
            max_num_queued_tokens=tokens,
        ),
        scale(
            "autoscale_kv_share",
            round(kv - 0.1, 3),
            "share",
            "a tenth below the picker's threshold",
            picker_kv_threshold=kv,
        ),
        scale(
            "autoscale_window_s",
            cold,
            "s",
            "cold start: nothing is taken away that could not be back in time",
            cold_start_s=cold,
        ),
        serving.settled(
            scale(
                "disruption_max_unavailable",
                spare,
                "replicas",
                "replicas - those that the load needs, at least 1 so that a node can be drained",
                replicas=case.replicas,
                needed=needed,
            )
        ),
    ]


def needed_replicas(proof: Proof) -> int:
    """Replicas that carry the declared load within its targets; all of them where no load is declared."""
    case = proof.case
    if not case.order.load or not proof.holds:
        return case.replicas
    return min(case.replicas, with_replicas(replace(case.order, replicas=None), case.layout).replicas)
