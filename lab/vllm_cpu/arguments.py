"""How the engine's arguments of a GPU become those of a CPU."""

from __future__ import annotations

from collections.abc import Sequence

# What one CPU does not have: an fp8 cache, several ranks, and the quantised kernels of a GPU.
_OF_GPUS = (
    "--kv-cache-dtype=",
    "--tensor-parallel-size=",
    "--pipeline-parallel-size=",
    "--data-parallel-size=",
    "--api-server-count=",
    "--enable-expert-parallel",
    "--quantization=",
)


def for_a_cpu(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """(what vLLM gets, what was taken out), both in their order."""
    taken_out = [argument for argument in arguments if argument.startswith(_OF_GPUS)]
    return [argument for argument in arguments if argument not in taken_out], taken_out
