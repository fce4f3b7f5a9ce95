"""The engines that serve a model: vLLM, or its simulator if there is no GPU. Pure: the proof of a site uses them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from components.models import weights
from components.network_policies import Rule
from components.specs.model_server import LayoutSpec, ModelServerPlan, ModelServerSpec
from components.specs.weights import SERVED

PORT = 8000
# OpenAI accepts no larger `n`. vLLM's default is 16,384, and each of them takes a place in its queue.
_MOST_ANSWERS = 128


@dataclass(frozen=True, kw_only=True)
class Engine:
    """What is the engine's own in a Deployment that is otherwise the same."""

    image: str
    owned_by: str
    """Who made the model's answers, by the model card."""
    args: list[str]
    env: dict[str, str]
    ready_path: str
    hold_s: int
    """A replica is kept from its stop signal for this long, where the engine itself would cut running streams."""
    egress: Sequence[Rule] | None
    """What its pods may reach; None leaves that open."""
    stall_s: int
    """It hangs if it holds requests for longer than that without a step."""
    has_python: bool
    """Whether its image has a Python, which can run the platform's own programs."""


def vllm_engine(
    spec: ModelServerSpec,
    plan: ModelServerPlan,
    *,
    image: str,
    repository: str,
    served_names: Sequence[str],
    flags: Sequence[str],
    generates: bool = True,
    remote_code: bool = False,
    speculative: Mapping[str, str | int] | None = None,
    adapters: Sequence[str] = (),
    adapter_places: int = 0,
    adapter_rank: int = 0,
    adapted_modules: Sequence[str] = (),
) -> Engine:
    """vLLM's arguments. Flags as vLLM 0.32 documents them; a test checks every name against its list.

    generates: whether it writes answers. For models that embed or rank, vLLM decides by attention and pooling what it
    may cut and keep. It obeys flags for more, and then an encoder's vectors are wrong (vLLM 0.32,
    vllm/engine/arg_utils.py).
    speculative: the object of --speculative-config; nothing without drafts.
    adapters: a JSON object with name and path of each. adapter_places, adapter_rank: places on a GPU, and the room of
    each. adapted_modules: projections that any of them changes.
    """
    # More is the client's error. What an empty queue cannot hold gets 503 all the same: vLLM 0.32 looks at its
    # queue before it reads this (v1/engine/async_llm.py, check_admission).
    most_answers = str(min(_MOST_ANSWERS, plan.max_num_queued_reqs))
    args = [
        weights.folder(SERVED),
        # Of the revision itself, whose files lie there.
        *(["--trust-remote-code"] if remote_code else []),
        *_served(served_names),
        f"--port={PORT}",
        *_layout_flags(plan.layout),
        *(["--enable-chunked-prefill"] if generates else []),
        f"--max-num-batched-tokens={plan.max_num_batched_tokens}",
        *_long_prefill(plan),
        f"--max-model-len={plan.max_model_len}",
        # vLLM counts it for each data-parallel rank.
        f"--max-num-seqs={plan.max_num_seqs // plan.layout.data}",
        f"--max-num-queued-reqs={plan.engine_limit}",
        # With it the smallest `priority` of a body goes first, which the gatekeeper writes.
        *(["--scheduling-policy=priority"] if plan.by_priority else []),
        *_answer_cap(plan),
        f"--kv-cache-dtype={plan.kv_cache_dtype}",
        *([f"--quantization={spec.quantization}"] if spec.quantization else []),
        *_loading_flags(spec, plan.layout),
        *([f"--speculative-config={json.dumps(speculative)}"] if speculative else []),
        *_adapted(adapters, adapter_places),
        *_adapter_room(adapter_rank, adapted_modules),
        *(["--enable-prefix-caching"] if generates else []),
        # vLLM counts it for each data-parallel rank, over all GPUs of the rank.
        *([f"--kv-offloading-size={spec.kv_offload_gib / plan.layout.data:g}"] if spec.kv_offload_gib else []),
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
            **weights.environment(),
            "VLLM_ENGINE_READY_TIMEOUT_S": str(plan.start_budget_s),
            "VLLM_MAX_N_SEQUENCES": most_answers,
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
        },
        ready_path="/health",
        hold_s=0,
        egress=[],
        stall_s=plan.stall_s,
        has_python=True,
    )


def _served(names: Sequence[str]) -> list[str]:
    """The names that the engine answers to. It gives every answer the first one, the model's own."""
    return [f"--served-model-name={names[0]}"] if len(names) == 1 else ["--served-model-name", *names]


def _adapted(adapters: Sequence[str], places: int) -> Iterator[str]:
    """Flags that vLLM and the simulator have in common: all in the node's memory, and so many on the GPU at once."""
    if adapters:
        yield from ("--lora-modules", *adapters)
        yield f"--max-loras={places}"
    if places < len(adapters):
        yield f"--max-cpu-loras={len(adapters)}"


def _adapter_room(rank: int, modules: Sequence[str]) -> Iterator[str]:
    """vLLM's flags for a place; of other projections it keeps no room for adapters."""
    if modules:
        yield "--enable-lora"
        yield f"--max-lora-rank={rank}"
        yield from ("--lora-target-modules", *modules)


def _layout_flags(layout: LayoutSpec) -> Iterator[str]:
    """vLLM's flags for the layout; it balances data-parallel ranks itself, behind the one port that the pool knows."""
    yield f"--tensor-parallel-size={layout.tensor}"
    if layout.pipeline > 1:
        yield f"--pipeline-parallel-size={layout.pipeline}"
    if layout.data > 1:
        yield f"--data-parallel-size={layout.data}"
        # vLLM starts one per rank by itself, and those learn of each other's requests only from time to time.
        yield "--api-server-count=1"
    if layout.expert_parallel:
        yield "--enable-expert-parallel"


def _loading_flags(spec: ModelServerSpec, layout: LayoutSpec) -> Iterator[str]:
    """vLLM's flags for how it reads the weights; none for its own choice."""
    if spec.loading == "streamer":
        yield "--load-format=runai_streamer"
        if layout.tensor > 1:
            # Each rank reads its part and gives it to the others; without it each of them streams all files.
            yield '--model-loader-extra-config={"distributed": true}'
    elif spec.loading != "default":
        yield f"--safetensors-load-strategy={spec.loading}"


def _long_prefill(plan: ModelServerPlan) -> list[str]:
    most = plan.long_prefill_token_threshold
    return [] if most is None else [f"--long-prefill-token-threshold={most}"]


def _answer_cap(plan: ModelServerPlan) -> list[str]:
    """vLLM takes max_new_tokens of this flag as a limit of every request, and not as a default alone."""
    if plan.max_answer_tokens is None:
        return []
    return [f'--override-generation-config={{"max_new_tokens": {plan.max_answer_tokens}}}']


def simulator_engine(
    spec: ModelServerSpec,
    plan: ModelServerPlan,
    *,
    image: str,
    repository: str,
    served_names: Sequence[str],
    adapters: Sequence[str] = (),
    adapter_places: int = 0,
) -> Engine:
    """llm-d-inference-sim with the model's own speed, cache and limits, so that queues form where they would.

    Data-parallel ranks are one server with all their slots and blocks: its own ranks would each open a port.
    """
    # Shown in the model cards of engine and gateway: so no one mistakes these answers for the model's.
    origin = f"simulator of {repository}"
    return Engine(
        image=image,
        owned_by=origin,
        args=[
            f"--model={origin}",
            *_served(served_names),
            *_adapted(adapters, adapter_places),
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
            f"--max-waiting-queue-length={max(1, plan.engine_limit - plan.max_num_seqs)}",
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
        egress=[],
        # It works a prompt off in one step, however long.
        stall_s=plan.stall_s + math.ceil(plan.prefill_s_per_token * plan.max_model_len),
        has_python=False,
    )


def _duration(seconds: float) -> str:
    """A Go duration with microsecond precision."""
    return f"{max(1, round(seconds * 1e6))}us"
