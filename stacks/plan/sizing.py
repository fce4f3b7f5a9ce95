"""From the site's settings to a proof, and from the proof to the plan and engine of one model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

from components.models.engines import Engine, simulator_engine, vllm_engine
from components.models.weights import WeightsSpec
from components.specs.inference_pool import PickerPlan
from components.specs.model import ModelSpec
from components.specs.model_server import LayoutSpec, ModelServerPlan
from stacks.facts import catalogue
from stacks.facts.hardware import GPUS
from stacks.facts.versions import Images
from stacks.plan.block import block
from stacks.plan.knobs import LARGEST_BODY_KIB, PROBE_PERIOD_S, START_MARGIN, Override, Serving, knobs, number
from stacks.plan.overrides import BrokenOverride, broken_overrides
from stacks.proof.demand import Load, Prices, Slo, Spread
from stacks.proof.figures import Explanation
from stacks.proof.fixes import nearest, out_of_reach, tried
from stacks.proof.layouts import Layout
from stacks.proof.memory import BLOCK_TOKENS, KvDtype
from stacks.proof.order import Order
from stacks.proof.proof import Proof, prove
from stacks.proof.serving import REQUEST_OVERHEAD_S
from stacks.site.demand import OrderedModelSpec, OverriddenCount, OverriddenShare, TokenCounts
from stacks.site.model import SiteConfig


class DoesNotFitError(Exception):
    """A model cannot work on the GPUs that it is given, or not within its targets. Says what is wrong and the fix."""

    def __init__(self, message: str, proof: Proof) -> None:
        super().__init__(message)
        self.proof = proof


class BrokenOverridesError(DoesNotFitError):
    """Knobs that the site overrides are not consistent with the proof. `broken` holds them all."""

    def __init__(self, name: str, broken: Sequence[BrokenOverride], proof: Proof) -> None:
        lines = [
            f"models.{name}.overrides.{one.key}: {one.what}; got {one.got}; allowed: {one.allowed}\n  fix: {one.fix}"
            for one in broken
        ]
        super().__init__("\n".join(lines), proof)
        self.broken = tuple(broken)


def order_of(site: SiteConfig, spec: OrderedModelSpec, name: str = "") -> Order:
    """What the site requires of this model, in the proof's terms."""
    server, overrides = spec.server, spec.overrides
    batched = overrides.max_num_batched_tokens
    by_hand = server.max_num_batched_tokens if "max_num_batched_tokens" in server.model_fields_set else None
    return Order(
        name=name or spec.catalogue,
        model=catalogue.load(spec.catalogue),
        gpu=site.cluster.gpu,
        gpus=server.gpus,
        layout=Layout(**server.layout.model_dump()) if server.layout else None,
        # A replica is one Pod.
        one_node=True,
        simple=True,
        replicas=server.replicas,
        kv_dtype=kv_dtype(site),
        context_tokens=overrides.max_model_len.value if overrides.max_model_len else None,
        load=_load(spec),
        slo=Slo(ttft_p95_ms=spec.slo.ttft_p95_ms, itl_p95_ms=spec.slo.itl_p95_ms) if spec.slo else Slo(),
        typical_request_tokens=server.typical_request_tokens,
        storage_bytes_per_s=site.storage.read_bytes_per_s,
        download_bytes_per_s=_download(site, spec),
        max_num_seqs=overrides.max_num_seqs.value if overrides.max_num_seqs else None,
        max_num_batched_tokens=batched.value if batched else by_hand,
        prices=_prices(site),
    )


def kv_dtype(site: SiteConfig) -> KvDtype:
    """fp8 where the site's GPUs have units for it: half the bytes per token."""
    return "fp8" if "fp8" in GPUS[site.cluster.gpu].flops else "bf16"


def _download(site: SiteConfig, spec: OrderedModelSpec) -> float | None:
    """What weights arrive at in the volume; None where no replica fetches any."""
    source = site.storage.weights
    return source.download_bytes_per_s if spec.server.engine == "vllm" and source.downloaded else None


def _load(spec: OrderedModelSpec) -> Load | None:
    if spec.load is None:
        return None
    answers = spec.load.answer_tokens
    return Load(
        requests_per_s=spec.load.requests_per_s,
        prompt_tokens=_spread(spec.load.prompt_tokens),
        answer_tokens=_spread(answers) if catalogue.load(spec.catalogue).task == "generate" else Spread(1, 1),
        prefix_hit=spec.load.prefix_hit,
    )


def _spread(counts: TokenCounts) -> Spread:
    return Spread(counts.p50, counts.p95)


def _prices(site: SiteConfig) -> Prices | None:
    prices = site.prices
    if prices is None:
        return None
    return Prices(gpu_hour=prices.gpu_hour, currency=prices.currency, power_kwh=prices.power_kwh)


def prove_model(site: SiteConfig, spec: OrderedModelSpec, name: str = "") -> Proof:
    """What is proven of this model on this site's GPUs, its overrides included.

    Raises DoesNotFitError with the nearest fixes, or BrokenOverridesError.
    """
    proof = prove(order_of(site, spec, name))
    if proof.holds:
        if broken := broken_overrides(proof, serving_of(spec)):
            raise BrokenOverridesError(name or spec.catalogue, broken, proof)
        return proof
    problems = "; ".join(filter(None, [*(problem.text for problem in proof.problems), out_of_reach(proof)]))
    fixes = "; or ".join(fix.text for fix in nearest(proof)) or tried(proof)
    verdict = "does not fit" if proof.case.fit_problems else "does not keep its targets"
    raise DoesNotFitError(f"{proof.order.model.repository} {verdict}: {problems}\n  fix: {fixes}", proof)


def describe(proof: Proof) -> str:
    """The proof as text for people, with the layout that would do better."""
    return block(proof, better=prove(replace(proof.order, simple=False, layout=None)))


def plan_model(site: SiteConfig, spec: OrderedModelSpec) -> ModelServerPlan:
    """What one replica of this model can do on this site's GPUs. Raises DoesNotFitError."""
    return plan_of(prove_model(site, spec), serving_of(spec))


def serving_of(spec: OrderedModelSpec) -> Serving:
    """What the site says of serving this model, its overrides included."""
    overrides = {}
    for key in type(spec.overrides).model_fields:
        given: OverriddenCount | OverriddenShare | None = getattr(spec.overrides, key)
        if given is not None:
            overrides[key] = Override(value=given.value, reason=given.reason)
    return Serving(longest_stream_s=spec.server.longest_stream_s, overrides=overrides)


def plan_of(proof: Proof, serving: Serving | None = None) -> ModelServerPlan:
    """The engine's settings out of a proof that holds."""
    case = proof.case
    derived = knobs(proof, serving)
    answers = derived.get("gateway_max_tokens")
    speed = proof.speed
    alone = case.decode_s(1)
    full = case.decode_s(case.slots)
    budget_s, download_s = int(derived["start_budget_s"].value), proof.cold_start["download_weights"].value
    return ModelServerPlan(
        layout=LayoutSpec(**asdict(case.layout)),
        weight_bytes=proof.weights["weight_files"].value * 1e9,
        max_model_len=int(derived["max_model_len"].value),
        max_num_seqs=int(derived["max_num_seqs"].value) * case.layout.data,
        max_num_queued_reqs=int(derived["max_num_queued_reqs"].value),
        max_answer_tokens=int(answers.value) if answers else None,
        max_unavailable=int(derived["disruption_max_unavailable"].value),
        # Encoders keep nothing; the simulator needs room for one request.
        kv_blocks=max(int(derived["kv_blocks"].value), -(-case.context // BLOCK_TOKENS)),
        block_tokens=BLOCK_TOKENS,
        prefill_s_per_token=speed["prefill_per_token"].value / 1e6,
        prefill_overhead_s=REQUEST_OVERHEAD_S,
        decode_s_per_token=alone,
        decode_slowdown_when_full=max(1.0, full / alone),
        load_s=proof.cold_start["read_weights"].value,
        download_s=download_s,
        start_budget_s=budget_s,
        later_start_budget_s=max(budget_s - math.ceil(START_MARGIN * download_s), 0),
        startup_probe_period_s=PROBE_PERIOD_S,
        startup_probe_failures=int(derived["startup_probe_failures"].value),
    )


def picker_plan(proof: Proof, serving: Serving | None = None) -> PickerPlan:
    """The endpoint picker's figures out of a proof that holds."""
    derived, server = knobs(proof, serving), plan_of(proof, serving)
    return PickerPlan(
        block_tokens=server.block_tokens,
        prefix_tokens=server.max_model_len,
        kv_blocks=server.kv_blocks,
        queue_threshold=int(derived["picker_queue_threshold"].value),
        kv_threshold=number(derived["picker_kv_threshold"]),
    )


def parallel_requests(proof: Proof, serving: Serving | None = None) -> int:
    """Requests for the model that one Envoy pod may have under way at once."""
    return int(knobs(proof, serving)["gateway_parallel_requests"].value)


def longest_stream_s(site: SiteConfig) -> int:
    """How long the gateway lets streams run: its own setting, and no less than any of its models."""
    said = [site.gateway.longest_stream_s, *(spec.server.longest_stream_s for spec in site.models.values())]
    return max((seconds for seconds in said if seconds is not None), default=60)


def body_kib(site: SiteConfig, proofs: Mapping[str, Proof]) -> int:
    """Largest request body at the gateway: the site's own value, or what the largest context can need."""
    if site.gateway.max_body_mib is not None:
        # A little below, so that the picker's message around the body fits as well.
        return site.gateway.max_body_mib * 1024 - 4
    return max((int(knobs(proof)["gateway_body_kib"].value) for proof in proofs.values()), default=LARGEST_BODY_KIB)


def sized(spec: OrderedModelSpec, proof: Proof) -> ModelSpec:
    """The site's settings with what the proof derives from them."""
    derived = knobs(proof, serving_of(spec))
    batched = int(derived["max_num_batched_tokens"].value)
    return spec.model_copy(update={"server": spec.server.model_copy(update={"max_num_batched_tokens": batched})})


def explain_knobs(site: SiteConfig, spec: OrderedModelSpec, name: str = "") -> dict[str, Explanation]:
    """Why each setting of this model has its value. Raises DoesNotFitError."""
    return knobs(prove_model(site, spec, name), serving_of(spec))


def engine_of(
    name: str,
    spec: ModelSpec,
    plan: ModelServerPlan,
    images: Images,
    *,
    cache: KvDtype = "fp8",
    source: WeightsSpec | None = None,
) -> Engine:
    """The engine that the site names for this model."""
    model = catalogue.load(spec.catalogue)
    names = (name, *spec.aliases)
    if spec.server.engine == "simulator":
        return simulator_engine(
            spec.server, plan, image=images.simulator, repository=model.repository, served_names=names
        )
    engine = vllm_engine(
        spec.server,
        plan,
        image=images.vllm,
        repository=model.repository,
        served_names=names,
        flags=model.engine_flags,
        source=source or WeightsSpec(),
    )
    if cache == "fp8":
        return engine
    return replace(
        engine, args=["--kv-cache-dtype=auto" if arg == "--kv-cache-dtype=fp8" else arg for arg in engine.args]
    )
