"""Writes an adapter of the tiny model: `PYTHON tiny_adapter.py MODEL_FOLDER FOLDER SEED`, in vLLM's Python.

In PEFT's form, of random weights so large that it answers otherwise than the model.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

RANK, MODULES = 8, ["q_proj", "v_proj"]


def main(model: Path, folder: Path, seed: int) -> None:
    """Its configuration and weights."""
    torch.manual_seed(seed)
    shape = json.loads((model / "config.json").read_text())
    size, weights = shape["hidden_size"], {}
    for layer in range(shape["num_hidden_layers"]):
        for module in MODULES:
            name = f"base_model.model.model.layers.{layer}.self_attn.{module}"
            weights[f"{name}.lora_A.weight"] = torch.randn(RANK, size)
            weights[f"{name}.lora_B.weight"] = torch.randn(size, RANK)
    folder.mkdir(parents=True)
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": RANK, "target_modules": MODULES, "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    save_file(weights, folder / "adapter_model.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
