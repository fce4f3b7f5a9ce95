"""Whether a vLLM that others configured starts on a kind of GPU, and what it holds: the proof for their manifests.

The same arithmetic as for a site's models, with the values of the container's command line in the place of derived
ones. What vLLM would choose by itself is from 0.32, engine/arg_utils.py (get_batch_defaults).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from floor.counts import counted
from stacks.facts import catalogue, engine_flags
from stacks.facts.catalogue import CatalogueModel
from stacks.facts.hardware import GPUS, Gpu
from stacks.importing.engine_lines import EngineLine, WrongLineError, engine_line
from stacks.importing.manifests import EngineContainer
from stacks.proof.cache import KvDtype
from stacks.proof.layouts import Layout, experts_of, why_illegal
from stacks.proof.memory import MEMORY_UTILISATION, EngineVersion, certain_room, longest_request
from stacks.proof.order import Order
from stacks.proof.replica import OneReplica, one_replica

Verdict = Literal["starts", "uncertain", "fails", "unknown"]
# Memory of a GPU from which vLLM takes larger steps and batches, and those: at least bytes, tokens, requests.
_DEFAULTS = ((160 * 2**30, 16384, 1024), (70 * 2**30, 8192, 1024), (0, 2048, 256))
_SMALLER_A100 = (2048, 256)
# What the judgement takes from the line; other flags that change memory or speed are named as not counted.
_COUNTED = {
    "--model",
    "--tensor-parallel-size",
    "--pipeline-parallel-size",
    "--data-parallel-size",
    "--enable-expert-parallel",
    "--max-model-len",
    "--max-num-seqs",
    "--max-num-batched-tokens",
    "--gpu-memory-utilization",
    "--kv-cache-dtype",
    "--revision",
    # They move no memory of the GPU.
    "--enable-prefix-caching",
    "--enable-chunked-prefill",
    "--long-prefill-token-threshold",
    "--scheduling-policy",
    "--load-format",
    "--shutdown-timeout",
}
# What decides about memory by itself, so that nothing is judged beside it.
_DECIDING = (
    "--config",
    "--quantization",
    "--quantization-config",
    "--cpu-offload-gb",
    "--kv-cache-memory-bytes",
    "--num-gpu-blocks-override",
    "--speculative-config",
    "--spec-model",
    "--hf-overrides",
    "--decode-context-parallel-size",
    "--prefill-context-parallel-size",
)
# Kinds of cache with as many bytes as the proof's two; others are not counted.
_CACHES: dict[str, KvDtype] = {"auto": "bf16", "bfloat16": "bf16", "float16": "bf16", "fp8": "fp8", "fp8_e4m3": "fp8"}
_DECIDES = ("proof", "adapters")
_VERSION = re.compile(r":v?(\d{1,4})\.(\d{1,4})")
_FIRST_YEAR = 20
# A replica of one pod is judged; these are of one that spans several.
_SPANNING = (
    "--nnodes",
    "--node-rank",
    "--headless",
    "--data-parallel-size-local",
    "--data-parallel-rank",
    "--data-parallel-start-rank",
    "--data-parallel-address",
    "--data-parallel-backend",
    "--data-parallel-external-lb",
    "--data-parallel-hybrid-lb",
    "--distributed-executor-backend",
)
# Parts of the label of a GPU that is shared or cut, or is of a kind that the catalogue does not have.
_OTHERS = {"mig", "shared", "nvl"}
_PRODUCT = "nvidia.com/gpu.product"


@dataclass(kw_only=True)
class EngineFit:
    """The judgement of one container."""

    where: str
    verdict: Verdict = "starts"
    title: str = ""
    """Model, GPU and layout."""
    figures: list[tuple[str, str]] = field(default_factory=list)
    """Label and words of each line."""
    problems: list[str] = field(default_factory=list)
    """Why it does not start, may not start, or cannot be judged; each with a fix."""
    remarks: list[str] = field(default_factory=list)
    """What it starts with and is not wise."""

    def text(self) -> str:
        """A block for people."""
        head = f"{self.where}: {self.verdict.upper()}" + (f". {self.title}" if self.title else "")
        rows = [
            *self.figures,
            *(("problem", text) for text in self.problems),
            *(("remark", text) for text in self.remarks),
        ]
        return "\n".join([head, *(f"  {label:<11} {words}" for label, words in rows)])


def engine_fit(container: EngineContainer, gpu: str | None, request_tokens: int, name: str | None = None) -> EngineFit:
    """Of one container on that kind of GPU, or on the one that its pod's nodeSelector names.

    request_tokens: prompt plus answer of a usual request, by which requests at once are counted.
    name: of the catalogue's entry, where the line has a path in the place of a repository.
    """
    fit = EngineFit(where=container.where)
    try:
        line = engine_line(container.words)
        _decided(container, line)
        is_path = line.model.startswith(("/", "."))
        kind, model = gpu or _kind_of(container), catalogue.load(name) if name and is_path else _entry(line.model)
        _judge(fit, container, line, kind, model, request_tokens)
    except WrongLineError as error:
        fit.verdict, fit.title = "unknown", ""
        fit.problems = [str(error)]
    return fit


def _decided(container: EngineContainer, line: EngineLine) -> None:
    """Raise WrongLineError for what decides about the engine and is not here, or not counted."""
    if container.unresolved:
        names = ", ".join(container.unresolved)
        raise WrongLineError(f"no value here of the variables {names}; fix: write their values into the manifest")
    if container.claims:
        raise WrongLineError(f"it asks for GPUs by {container.claims}, which is not judged; fix: judge whole GPUs")
    if given := [flag for flag in _DECIDING if flag in line.values]:
        raise WrongLineError(f"{', '.join(given)} decides about memory, and is not counted; fix: judge it without")
    cache = line.values.get("--kv-cache-dtype", "auto")
    if cache not in _CACHES:
        raise WrongLineError(f"a cache of {cache} is not counted; fix: one of {', '.join(_CACHES)}")


def _entry(model: str) -> CatalogueModel:
    """By its repository, or by the last part of a path."""
    wanted, is_path = model.strip("/").lower(), model.startswith(("/", "."))
    for entry in map(catalogue.load, catalogue.names()):
        repository = entry.repository.lower()
        if wanted == repository or (is_path and wanted.rpartition("/")[2] == repository.rpartition("/")[2]):
            return entry
    if is_path:
        raise WrongLineError(f"{model} is a path; fix: name what is there by --model: {', '.join(catalogue.names())}")
    raise WrongLineError(f"{model} is no repository of the catalogue; fix: sitectl catalogue add {model}")


def _kind_of(container: EngineContainer) -> str:
    """By the product that GPU feature discovery labels nodes with, such as NVIDIA-H200."""
    product = container.node_labels.get(_PRODUCT, "").lower()
    parts = set(re.split(r"[^a-z0-9]+", product))
    for kind in GPUS if not parts & _OTHERS else ():
        # An H100 PCIe and an SXM differ, and so do the memories of an A100.
        if product and all(part in parts for part in kind.replace("-sxm", "").split("-")):
            return kind
    raise WrongLineError(f"no kind of GPU is known; fix: name one by --gpu: {', '.join(GPUS)}")


def _layout(line: EngineLine, model: CatalogueModel) -> tuple[Layout, int]:
    """Of one engine, and how many there are: without experts to divide, data-parallel ranks are copies."""
    tensor, pipeline, data = (line.count(f"--{size}-parallel-size") or 1 for size in ("tensor", "pipeline", "data"))
    if not experts_of(model):
        return Layout(tensor=tensor, pipeline=pipeline), data
    experts = "--enable-expert-parallel" in line.values
    return Layout(tensor=tensor, pipeline=pipeline, data=data, expert_parallel=experts), 1


def _batch(line: EngineLine, kind: str, gpu: Gpu) -> tuple[int, int]:
    """Tokens of a step and requests at once: those of the line, else what vLLM takes on such a GPU."""
    tokens, requests = next((step, most) for least, step, most in _DEFAULTS if gpu.memory_bytes >= least)
    if kind.startswith("a100"):
        tokens, requests = _SMALLER_A100
    tokens = line.count("--max-num-batched-tokens") or tokens
    return tokens, line.count("--max-num-seqs") or min(requests, tokens)


def _judge(
    fit: EngineFit, container: EngineContainer, line: EngineLine, kind: str, model: CatalogueModel, request_tokens: int
) -> None:
    (layout, copies), gpu = _layout(line, model), GPUS[kind]
    needed = layout.gpus * copies
    fit.title = f"{model.repository} on {kind}, {copies} x {layout} = {counted(needed, 'GPU')}"
    spans = needed > gpu.gpus_per_node or any(flag in line.values for flag in _SPANNING)
    if (container.gpus or needed) < needed and spans:
        raise WrongLineError(
            "its replica spans several pods; fix: order the model in a site's file, which proves those"
        )
    if illegal := why_illegal(model, layout):
        fit.verdict = "fails"
        fit.problems.append(f"vLLM refuses {layout}: {illegal}")
        return
    batched, sequences = _batch(line, kind, gpu)
    longest = None if line.shortens else line.count("--max-model-len")
    wanted = longest or model.max_context_tokens
    if refused := [*_refusals(line, model, batched, sequences, wanted)]:
        fit.verdict, fit.problems = "fails", refused
        return
    order = Order(
        name=model.repository,
        model=model,
        gpu=kind,
        layout=layout,
        kv_dtype=_CACHES[line.values.get("--kv-cache-dtype", "auto")],
        context_tokens=wanted,
        typical_request_tokens=min(request_tokens, wanted),
        max_num_seqs=sequences,
        max_num_batched_tokens=batched,
        engine=_version(container.image),
    )
    share = line.share("--gpu-memory-utilization", MEMORY_UTILISATION)
    _memory(fit, one_replica(order, layout), share, 1 if line.shortens else wanted, copies)
    if line.unknown and fit.verdict == "starts":
        fit.verdict = "uncertain"
    if (container.gpus or 0) < needed:
        fit.verdict = "fails"
        fit.problems.append(
            f"it asks for {counted(container.gpus or 0, 'GPU')} and takes {needed}; fix: nvidia.com/gpu: {needed} in "
            "resources.limits"
        )
    fit.remarks += _remarks(container, line, order, needed)


def _refusals(line: EngineLine, model: CatalogueModel, batched: int, sequences: int, wanted: int) -> Iterator[str]:
    """What vLLM's own checks refuse (0.32, config/scheduler.py, config/model.py)."""
    if sequences > batched:
        yield (
            f"--max-num-seqs of {sequences:,} is more than the {batched:,} tokens of a step; fix: "
            f"--max-num-batched-tokens={sequences}"
        )
    if wanted > model.max_context_tokens:
        yield (
            f"--max-model-len of {wanted:,} is more than the model's {model.max_context_tokens:,} tokens; fix: "
            f"--max-model-len={model.max_context_tokens}"
        )
    if model.task != "generate" and "--max-num-batched-tokens" in line.values and batched < wanted:
        yield (
            f"a prompt of {wanted:,} tokens is not cut, and a step takes {batched:,}; fix: "
            f"--max-num-batched-tokens={wanted}"
        )


def _version(image: str) -> EngineVersion | None:
    match = _VERSION.search(image)
    # NVIDIA's own tags are years.
    return (int(match[1]), int(match[2])) if match and int(match[1]) < _FIRST_YEAR else None


def _memory(fit: EngineFit, replica: OneReplica, share: float, wanted: int, copies: int) -> None:
    """Weights, cache, context and requests at once, by what vLLM measures when it starts."""
    usable, room = replica.order.hardware.memory_bytes * share, _room(replica, share)
    reserved = usable - replica.weights - room
    fit.figures.append(
        (
            "memory",
            f"{usable / 1e9:.1f} GB per GPU ({share:g} of it) = {replica.weights / 1e9:.1f} weights + "
            f"{reserved / 1e9:.1f} steps, graphs and samples + {room / 1e9:.1f} cache  [estimated]",
        )
    )
    if room <= 0:
        fit.verdict = "fails"
        fit.problems.append(f"no room is left for a cache; fix: {_wider(replica, share, wanted, copies)}")
        return
    if not replica.keeps_cache:
        return
    certain, likely = _certain(replica, share), longest_request(replica.cache, room, batched_tokens=_batched(replica))
    wish = f"{wanted:,} tokens are wanted" if wanted > 1 else "as long as it fits"
    fit.figures.append(("context", f"{wish}, {min(likely, replica.order.model.max_context_tokens):,} fit  [estimated]"))
    if wanted > certain:
        fit.verdict = "fails" if wanted > likely else "uncertain"
        shorter = f"--max-model-len={certain}, or " if certain else ""
        word = "does not fit" if wanted > likely else "fits by less than what start-ups differ by"
        fit.problems.append(
            f"a request of the whole context {word}, and vLLM starts with no cache that is smaller; fix: "
            f"{shorter}{_wider(replica, share, wanted, copies)}"
        )
    _at_once(fit, replica, room, copies * replica.layout.data)


def _batched(replica: OneReplica) -> int:
    return replica.order.max_num_batched_tokens or 1


def _room(replica: OneReplica, share: float) -> float:
    """Bytes of a GPU for caches, where vLLM may use that share of it."""
    more = replica.order.hardware.memory_bytes * (share - MEMORY_UTILISATION)
    return replica.room(replica.order.max_num_seqs or 1, _batched(replica)) + more


def _certain(replica: OneReplica, share: float) -> int:
    """Tokens of the longest request that every start has room for."""
    room = max(0.0, certain_room(_room(replica, share), replica.weights))
    return longest_request(replica.cache, room, batched_tokens=_batched(replica))


def _wider(replica: OneReplica, share: float, wanted: int, copies: int) -> str:
    """The fewest GPUs of a node over which the model is cut so that such a request fits."""
    order, layout = replica.order, replica.layout
    most = order.hardware.gpus_per_node // (layout.pipeline * layout.data * copies)
    for tensor in range(layout.tensor + 1, most + 1):
        wider = replace(layout, tensor=tensor)
        if not why_illegal(order.model, wider) and _certain(one_replica(order, wider), share) >= wanted:
            return f"--tensor-parallel-size={tensor}"
    return "a smaller checkpoint, as the GPUs of one node are too few"


def _at_once(fit: EngineFit, replica: OneReplica, room: float, schedulers: int) -> None:
    """Each scheduler has requests and a cache of its own."""
    order = replica.order
    sequences, usual = order.max_num_seqs or 1, order.request_tokens
    free = room - replica.cache.shared_bytes(_batched(replica))
    held = int(max(0.0, free) // replica.cache.request_bytes(usual))
    fit.figures.append(
        (
            "at once",
            f"{counted(schedulers * min(held, sequences), 'request')} of {usual:,.0f} tokens; --max-num-seqs lets "
            f"{schedulers * sequences:,} in  [estimated]",
        )
    )
    if held and sequences > 2 * held:
        fit.remarks.append(
            f"with more than {counted(schedulers * held, 'request')} of {usual:,.0f} tokens vLLM preempts some, and "
            f"computes their prompts again; --max-num-seqs={held} lets them wait, and leaves more memory to the cache"
        )


def _remarks(container: EngineContainer, line: EngineLine, order: Order, needed: int) -> Iterator[str]:
    if container.gpus is not None and container.gpus > needed:
        yield f"{container.gpus - needed} of its {container.gpus} GPUs are idle; --tensor-parallel-size takes them"
    if needed > 1 and not container.shares_memory:
        yield "ranks exchange through /dev/shm, which has 64 MiB; mount an emptyDir with medium: Memory there"
    read_s = order.read_s()
    if container.started_s is not None and container.started_s < read_s:
        yield (
            f"its probe ends it after {container.started_s:,} s, and reading {order.file_bytes / 1e9:,.1f} GB takes "
            f"{read_s:,.0f} s at 1 GB/s; raise failureThreshold of a startupProbe"
        )
    if container.grace_s <= 60:
        yield (
            f"streams are cut {container.grace_s} s after a drain begins; set terminationGracePeriodSeconds to the "
            "longest one, and --shutdown-timeout below it"
        )
    flags = engine_flags.load()["vllm"]
    others = [
        flag
        for flag in line.values
        if flag not in _COUNTED
        and (row := flags.decision.get(flag.partition(".")[0]))
        and (row.by in _DECIDES or row.by.startswith("server."))
    ]
    if others:
        yield f"not counted: {', '.join(others)}"
    if line.unknown:
        yield f"not known to vLLM of the pinned release: {', '.join(line.unknown)}"
