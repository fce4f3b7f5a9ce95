"""From the site's words and the capacity figures to the plan and engine of one model."""

from __future__ import annotations

from components.model import ModelSpec
from components.model_server import Engine, ModelServerPlan, simulator_engine, vllm_engine
from stacks import catalogue
from stacks.capacity import BLOCK_TOKENS, serving_figures
from stacks.hardware import GPUS
from stacks.site import SiteConfig
from stacks.versions import Images


def plan_model(site: SiteConfig, spec: ModelSpec) -> ModelServerPlan:
    """What one replica of this model can do on this site's GPUs. Raises DoesNotFitError."""
    model = catalogue.load(spec.catalogue)
    gpus = spec.server.gpus or model.gpus_per_replica
    figures = serving_figures(
        model,
        GPUS[site.cluster.gpu],
        ranks=gpus,
        typical_request_tokens=spec.server.typical_request_tokens,
        storage_bytes_per_s=site.storage.read_bytes_per_s,
    )
    return ModelServerPlan(
        gpus=gpus,
        weight_bytes=model.weight_bytes,
        max_model_len=figures.max_context_tokens,
        max_num_seqs=figures.max_running_requests,
        kv_blocks=figures.kv_blocks,
        block_tokens=BLOCK_TOKENS,
        prefill_s_per_token=figures.prefill_s_per_token,
        prefill_overhead_s=figures.prefill_overhead_s,
        decode_s_per_token=figures.decode_s_per_token,
        decode_slowdown_when_full=figures.decode_slowdown_when_full,
        load_s=figures.load_s,
    )


def engine_of(name: str, spec: ModelSpec, plan: ModelServerPlan, images: Images) -> Engine:
    """The engine that the site names for this model."""
    model = catalogue.load(spec.catalogue)
    if spec.server.engine == "simulator":
        return simulator_engine(
            spec.server, plan, image=images.simulator, repository=model.repository, served_name=name
        )
    return vllm_engine(
        spec.server,
        plan,
        image=images.vllm,
        repository=model.repository,
        served_name=name,
        flags=model.engine_flags,
    )
