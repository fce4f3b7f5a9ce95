"""What a site's models hold, as one block of text a model: the capacity figures that its knobs are derived from."""

from __future__ import annotations

from pathlib import Path

from stacks.loader import load_file
from stacks.loading.problems import SiteError
from stacks.site import SiteConfig
from stacks.sizing import plan_model


def blocks(site: SiteConfig) -> list[str]:
    """One block for each model, by name. Bytes and tokens are derived from published figures, times are estimated."""
    found = []
    for name, spec in sorted(site.models.items()):
        plan = plan_model(site, spec)
        replicas, typical = spec.server.replicas, spec.server.typical_request_tokens
        found.append(
            "\n".join(
                [
                    f"{name} ({spec.catalogue} on {site.cluster.gpu}): fits",
                    f"  {replicas} x {plan.gpus} GPUs = {replicas * plan.gpus} GPUs",
                    f"  longest request   {plan.max_model_len:,} tokens a replica (derived)",
                    f"  running at once   {plan.max_num_seqs:,} of {typical:,} tokens a replica (derived)",
                    f"  reads its weights in {plan.load_s / 60:.1f} min (estimated from storage.read_bytes_per_s)",
                ]
            )
        )
    return found


def blocks_of_file(file: Path) -> list[str]:
    """The same for a stack file; nothing for one that is not valid, which the engine tells with all its mistakes."""
    try:
        return blocks(load_file(file))
    except SiteError:
        return []
