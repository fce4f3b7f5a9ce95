"""Models that exist in the lab alone: small files whose bytes follow from the repository's name and the revision."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping

REVISION = re.compile(r"[0-9a-f]{40}")
_SHARDS, _SHARD_BYTES = 4, 192 * 1024
# Owners that no model of the lab has, for those who ask for a repository that is not there.
NOBODY = "nobody"
# What the name of an adapter's repository has in the lab.
ADAPTER_MARK = "-lora"
ADAPTER = {"peft_type": "LORA", "r": 16, "lora_alpha": 32, "target_modules": ["q_proj", "v_proj"], "bias": "none"}
"""Configuration of each of them."""


def newest(repository: str) -> str:
    """The commit that `main` names."""
    return hashlib.sha1(f"main of {repository}".encode(), usedforsecurity=False).hexdigest()


def files(repository: str, revision: str) -> Mapping[str, bytes]:
    """The files of any repository at any commit; the same ones each time, and others at another commit."""
    if ADAPTER_MARK in repository:
        weights = _bytes(f"{repository}@{revision}", _SHARD_BYTES)
        return {"adapter_config.json": json.dumps(ADAPTER).encode(), "adapter_model.safetensors": weights}
    names = [f"model-{number:05}-of-{_SHARDS:05}.safetensors" for number in range(1, _SHARDS + 1)]
    seed = f"{repository}@{revision}"
    texts = {
        "README.md": f"# {repository}\nMade up by the lab's emulated hub: random bytes, not a model.\n",
        "config.json": json.dumps({"architectures": ["MadeUpByTheLab"], "revision": revision}, indent=2),
        "model.safetensors.index.json": json.dumps({"weight_map": {name: name for name in names}}, indent=2),
        "tokenizer.json": json.dumps({"version": "1.0", "made_up_for": seed}),
    }
    shards = {name: _bytes(f"{seed}/{name}", _SHARD_BYTES) for name in names}
    return {**{name: text.encode() for name, text in texts.items()}, **shards}


def _bytes(seed: str, count: int) -> bytes:
    return hashlib.shake_256(seed.encode()).digest(count)
