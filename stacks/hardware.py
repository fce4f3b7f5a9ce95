"""What a GPU can do, as published by its maker."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """Peak figures of one GPU."""

    memory_bytes: float
    memory_bytes_per_s: float
    fp8_flops: float
    """Dense FP8 operations a second."""
    source: str


GPUS = {
    "h200-sxm": Gpu(
        memory_bytes=143_771 * 2**20,  # what GPU feature discovery reports as nvidia.com/gpu.memory
        memory_bytes_per_s=4.8e12,
        fp8_flops=1.978e15,
        source="NVIDIA H200 data sheet; memory as nvidia-smi reports it",
    )
}
