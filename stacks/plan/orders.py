"""From a site's settings of one model to the proof's input."""

from __future__ import annotations

from floor.revision_ids import RevisionId
from stacks.facts.hardware import GPUS, slice_name
from stacks.plan.adapters import adapters_of
from stacks.plan.calibration import counted_of
from stacks.plan.optimisations import speculation_of
from stacks.plan.settings.definition import OF_ORDER, Override, Serving
from stacks.plan.weights import brings
from stacks.proof.cache import kv_dtype
from stacks.proof.demand import NO_TARGETS, Load, Prices, Slo, Spread
from stacks.proof.layouts import Layout, over
from stacks.proof.memory import EngineVersion
from stacks.proof.online_quantisation import as_loaded
from stacks.proof.order import Given, Order
from stacks.site.demand import OrderedModelSpec, OverriddenCount, OverriddenShare, PricesSpec, TokenCounts
from stacks.site.model import SiteConfig


def order_of(site: SiteConfig, name: str, spec: OrderedModelSpec, engine: EngineVersion | None = None) -> Order:
    """What the site requires of a revision of this model, in the proof's terms.

    engine: version of vLLM that serves it; None for any.
    """
    server, overrides = spec.server, spec.overrides
    batched = _given(overrides.max_num_batched_tokens)
    by_hand = server.max_num_batched_tokens if "max_num_batched_tokens" in server.model_fields_set else None
    entry = spec.entry
    gpu = slice_name(site.cluster.gpu, server.gpu_slice or "")
    layout = Layout(**server.layout.model_dump()) if server.layout else None
    if server.nodes > 1 and layout is None:
        layout = over(GPUS[gpu], server.nodes)
    return Order(
        name=name,
        model=as_loaded(entry, server.quantization) if server.quantization else entry,
        gpu=gpu,
        gpus=server.gpus,
        layout=layout,
        # A replica is one pod, unless the site gives it several nodes.
        one_node=server.nodes == 1,
        nodes=server.nodes,
        network_bytes_per_s=site.cluster.rdma_devices.gpu_bytes_per_s if server.nodes > 1 else None,
        simple=True,
        replicas=server.replicas,
        kv_dtype=kv_dtype(GPUS[gpu]),
        context_tokens=_given(overrides.max_model_len),
        load=load_of(spec),
        slo=Slo.of(**spec.slo.model_dump()) if spec.slo else NO_TARGETS,
        typical_request_tokens=server.typical_request_tokens,
        storage_bytes_per_s=site.storage.replica_reads_bytes_per_s,
        shared_bytes_per_s=site.storage.replicas_read_bytes_per_s,
        download_bytes_per_s=None if RevisionId.of(name).group else _download(site, spec),
        downloads=_downloads(site),
        max_num_seqs=_given(overrides.max_num_seqs),
        max_num_batched_tokens=by_hand if batched is None else batched,
        prompt_step_tokens=server.long_prefill_token_threshold,
        engine=engine,
        measured=counted_of(spec, gpu, engine),
        prices=prices_of(site.prices),
        speculation=speculation_of(server.speculative),
        adapters=adapters_of(spec.adapters, server.resident_adapters, spec.load.adapter_skew if spec.load else 0.0),
        kv_offload_gib=server.kv_offload_gib or 0,
        stored=entry.quantisation if server.quantization else None,
    )


def _given(override: OverriddenCount | None) -> Given | None:
    return Given(override.value, override.reason) if override else None


def serving_of(spec: OrderedModelSpec) -> Serving:
    """What the site sets for serving this model, with the overrides that the order does not have."""
    overrides = {}
    for key in type(spec.overrides).model_fields.keys() - OF_ORDER:
        given: OverriddenCount | OverriddenShare | None = getattr(spec.overrides, key)
        if given is not None:
            overrides[key] = Override(value=given.value, reason=given.reason)
    scaling = spec.server.scaling
    return Serving(
        longest_stream_s=spec.server.longest_stream_s, least=scaling.least if scaling else None, overrides=overrides
    )


def _download(site: SiteConfig, spec: OrderedModelSpec) -> float | None:
    """Bytes per second at which weights arrive in the volume; None where none are fetched."""
    source = site.storage.weights
    return source.download_bytes_per_s if brings(spec, source) and source.downloaded else None


def _downloads(site: SiteConfig) -> int:
    """In a row; a node that is the only one waits for no other."""
    machines = site.cluster.machines
    # Not by placement, which reads the layouts of their GPUs: one that is misspelt is not refused yet.
    alone = machines and sum(node.role == "hgx" and not node.dead for node in machines.nodes.values()) < 2
    return 1 if site.storage.weights.place == "shared" or alone else 2


def load_of(spec: OrderedModelSpec) -> Load | None:
    """The declared traffic of a model; None without one."""
    if spec.load is None:
        return None
    answers = spec.load.answer_tokens
    return Load(
        requests_per_s=spec.load.requests_per_s,
        prompt_tokens=_spread(spec.load.prompt_tokens),
        answer_tokens=_spread(answers) if spec.entry.task == "generate" else Spread(1, 1),
        prefix_hit=spec.load.prefix_hit,
        common_prefix=spec.load.common_prefix,
    )


def _spread(counts: TokenCounts) -> Spread:
    return Spread(counts.p50, counts.p95)


def prices_of(prices: PricesSpec | None) -> Prices | None:
    """What the site pays; None where it sets no prices."""
    if prices is None:
        return None
    return Prices(gpu_hour=prices.gpu_hour, currency=prices.currency, power_kwh=prices.power_kwh)
