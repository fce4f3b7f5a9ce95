"""Whether an adapter is what the site states of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from components.specs.adapters import AdapterSpec
from floor.problems import Path, Problem, shown

# What makes an adapter more than two matrices of each projection (vLLM 0.32 lora/peft_helper.py, _validate_features).
_UNSERVED = (
    "modules_to_save",
    "use_dora",
    "bias",
    "lora_bias",
    "alora_invocation_tokens",
    "layer_replication",
    "use_bdlora",
    "use_qalora",
)


def differences(path: Path, spec: AdapterSpec, text: str) -> Iterator[Problem]:
    """What of an adapter_config.json is another than at the site's keys below `path`, or is nothing for vLLM.

    Engines do not start with the latter.
    """
    try:
        config: dict[str, Any] = dict(json.loads(text))
    except (ValueError, TypeError):
        yield Problem(path=path, what="has an adapter_config.json that is no JSON object", fix="name another commit")
        return
    kind, pattern = config.get("peft_type", "LORA"), config.get("rank_pattern")
    if kind != "LORA":
        yield Problem(path=path, what="is no LoRA adapter", got=shown(kind), allowed="LORA", fix="name another one")
        return
    ranks = [config.get("r"), *(pattern.values() if isinstance(pattern, dict) else ())]
    rank = max((rank for rank in ranks if isinstance(rank, int) and not isinstance(rank, bool)), default=None)
    if rank != spec.rank:
        yield Problem(
            path=(*path, "rank"),
            what=f"is not the rank in {spec.repository}",
            got=shown(spec.rank),
            allowed=shown(rank),
            fix=f"write {rank}" if rank else "name an adapter of low rank (LoRA)",
        )
    modules = config.get("target_modules")
    # In a list, a name's last part is the projection; a text is a pattern over names of the model's own code.
    listed = {str(module).rpartition(".")[2] for module in modules} if isinstance(modules, list) else None
    if listed is not None and listed != set(spec.target_modules):
        named = ", ".join(sorted(listed))
        yield Problem(
            path=(*path, "target_modules"),
            what=f"are not the projections in {spec.repository}",
            got=", ".join(sorted(spec.target_modules)),
            allowed=named,
            fix=f"write [{named}]",
        )
    for key in _UNSERVED:
        value = config.get(key)
        if value and not (key == "bias" and value == "none"):
            yield Problem(
                path=path,
                what=f"has {key} in its adapter_config.json, which vLLM does not serve",
                got=shown(value),
                fix="merge it into the model's weights and serve these as a model, or train it without",
            )
