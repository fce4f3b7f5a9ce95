"""A real vLLM on this machine's CPU, with a tiny model of random weights: all of the engine but its GPU."""

from __future__ import annotations

from pathlib import Path


def tiny_model_file() -> Path:
    """The program that writes the model; it runs in vLLM's environment alone."""
    return Path(__file__).parent / "tiny_model.py"
