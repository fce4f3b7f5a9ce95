"""For an unknown model or GPU the error names one of its family, generation and size, or none (005.08)."""

from __future__ import annotations

import pytest

from stacks.facts import catalogue
from stacks.facts.hardware import GPUS
from stacks.site.checks.products import nearest_product

KINDS = ("a100-80gb", "b200", "gb200", "h100-sxm", "h200-sxm", "l4", "l40s", "mi300x")


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("glm-5.1-fp9", "glm-5.1-fp8"),
        ("glm-5.1", "glm-5.1-fp8"),
        ("GLM_5.1_FP8", "glm-5.1-fp8"),
        ("zai-org/GLM-5.1-FP8", "glm-5.1-fp8"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama-3.3-70b"),
        ("lama-3.3-70b", "llama-3.3-70b"),
        ("mixtral", "mixtral-8x22b"),
        ("Llama_3.3_70B", "llama-3.3-70b"),
        ("deepseek-v3.1", "deepseek-v3.1-nvfp4"),
        ("deepsek-r1", "deepseek-r1"),
        ("qwen3-32b", "qwen3-32b-fp8"),
        ("h200", ""),
        ("llama3", ""),
        ("llama-2-70b", ""),
        ("qwen", ""),
        ("qwen3-72b", ""),
        ("qwen2.5-32b", ""),
        ("mixtral-8x7b", ""),
        ("gemma-2-27b", ""),
        ("gpt-4o", ""),
        ("mistral", ""),
        ("phi-3", ""),
        ("", ""),
    ],
)
def test_models(word: str, meant: str) -> None:
    assert nearest_product(word, catalogue.names()) == meant


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("h200", "h200-sxm"),
        ("h100", "h100-sxm"),
        ("H200_SXM", "h200-sxm"),
        ("h200-smx", "h200-sxm"),
        ("mi300", "mi300x"),
        ("a100", "a100-80gb"),
        ("a100-40gb", ""),
        ("h300", ""),
        ("h900", ""),
        ("b300", ""),
        ("gb300", ""),
        ("l400", ""),
        ("rtx4090", ""),
    ],
)
def test_gpus(word: str, meant: str) -> None:
    """Among these, whatever else the hardware table gets: with two kinds of H100, `h100` means neither."""
    assert nearest_product(word, KINDS) == meant


def test_every_name_means_itself() -> None:
    assert [name for name in catalogue.names() if nearest_product(name, catalogue.names()) != name] == []
    assert [name for name in GPUS if nearest_product(name, GPUS) != name] == []
