"""Lines of a proof's block about what the site chose: drafts, adapters, weights that are quantised as they load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stacks.proof.figures import Figure, shown
from stacks.proof.proof import Proof


def drafts(proof: Proof) -> Iterator[tuple[str, str, Mapping[str, Figure]]]:
    """(label, text, figures behind it): what drafts and what a step gives; then what that changes."""
    speculation, figures = proof.order.speculation, proof.speculation
    if speculation is None or not figures:
        return
    drafter = f" by {speculation.draft.repository}" if speculation.draft else ""
    yield (
        "drafts",
        f"{speculation.method}{drafter}, {speculation.tokens} per step, {100 * speculation.acceptance:.3g} % accepted "
        f"as the site declares: {figures['tokens_per_step']} per step of {figures['step_alone']} for one request, "
        f"{figures['step_full']} when full",
        figures,
    )
    parts = [_change("one request", figures, "gain_alone")]
    if "gain_full" in figures:
        parts.append(_change("answers when full", figures, "gain_full"))
        parts[-1] += f", of {figures['plain_parallel']} at once"
    if "gain_saturation" in figures:
        parts.append(_change("whole requests when full", figures, "gain_saturation"))
    if "plain_tpot_mean" in figures:
        parts.append(f"at this load a mean of {figures['plain_tpot_mean']} per token without drafts")
    yield "gain", "; ".join(parts), figures


def quantised(proof: Proof) -> Iterator[tuple[str, str, Mapping[str, Figure]]]:
    """What a start quantises, and what is not known of it."""
    if figures := proof.loading:
        yield (
            "quantised",
            f"to {proof.order.model.quantisation.format} while the files are read, which has up to "
            f"{figures['loading_per_gpu']} per GPU; what the answers lose is not proven",
            figures,
        )


def adapted(proof: Proof) -> Iterator[tuple[str, str, Mapping[str, Figure]]]:
    """What adapters take of the memory, and what is not known of them."""
    adapters, figures = proof.order.adapters, proof.adapters
    if adapters is not None:
        yield (
            "adapters",
            f"{adapters.slots} of up to rank {adapters.rank}: {figures['adapters_per_gpu']} of the weights per GPU, "
            "and each graph twice; by how much their steps are slower is not computed",
            figures,
        )
        if "adapter_misses" in figures:
            yield "turns", _turns(len(adapters.loaded), figures), figures


def _turns(count: int, figures: Mapping[str, Figure]) -> str:
    """Of adapters that are more than their places on a GPU."""
    times = ""
    if "adapter_kept" in figures:
        times = (
            f", which stops its engine {figures['adapter_stalls']} of the time; one keeps its place for "
            f"{figures['adapter_kept']} after a request"
        )
    return (
        f"{count} adapters, all in {figures['adapters_hosted']} of the node's memory per replica: "
        f"{figures['adapter_misses']} of the requests load theirs in {figures['adapter_load']}{times}; beyond "
        f"{figures['adapted_at_once']} at once in a replica, some wait until a place is free"
    )


def offloaded(proof: Proof) -> Iterator[tuple[str, str, Mapping[str, Figure]]]:
    """What a node's memory keeps of prefixes, and what that is worth."""
    if figures := proof.offload:
        computed_ms = proof.speed["prefill_per_token"].value
        gib, kept = proof.order.kv_offload_gib, ""
        if "offload_kept" in figures:
            kept = f", for {figures['offload_kept']} at this load where the GPUs keep {figures['gpu_kept']}"
            if figures["offload_kept"].value <= figures["gpu_kept"].value:
                kept += ": no gain"
        yield (
            "offload",
            f"{gib} GiB of each replica's node keep {figures['offload_tokens']} of prefixes{kept}; 1,000 of them are "
            f"copied back in {figures['offload_fetch']}, and computed in {shown(computed_ms)} ms; replicas on one node "
            f"take up to {figures['offload_per_node']} of its memory",
            figures,
        )


def _change(what: str, figures: Mapping[str, Figure], key: str) -> str:
    factor = figures[key].value
    return f"{what} x {shown(factor)}" + (", a loss" if factor < 1 else "")
