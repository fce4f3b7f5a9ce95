"""Arithmetic of cache and speed against published figures, and its sense of direction (000.02, 000.18, 001.18, G3)."""

from __future__ import annotations

import dataclasses

import pytest

from stacks import catalogue
from stacks.capacity import DoesNotFitError, ServingFigures, kv_bytes_per_token, serving_figures
from stacks.hardware import GPUS

GLM, QWEN = catalogue.load("glm-5.1-fp8"), catalogue.load("qwen3-32b-fp8")
H200 = GPUS["h200-sxm"]


def figures(model: catalogue.CatalogueModel = GLM, ranks: int = 8, typical: int = 16_384) -> ServingFigures:
    return serving_figures(
        model, H200, ranks=ranks, typical_request_tokens=typical, storage_bytes_per_s=1e9, kv_element_bytes=1
    )


def test_kv_bytes_of_known_models() -> None:
    """Figures of the capacity table: GLM-5.1 89,856 B in bf16 and 51,168 B in fp8, both with 10,296 B of indexer."""
    assert kv_bytes_per_token(GLM, ranks=8, element_bytes=2) == 89_856 + 10_296
    assert kv_bytes_per_token(GLM, ranks=8, element_bytes=1) == 51_168 + 10_296
    assert kv_bytes_per_token(QWEN, ranks=1, element_bytes=2) == 262_144
    assert kv_bytes_per_token(QWEN, ranks=1, element_bytes=1) == 131_072


def test_latent_cache_is_replicated_on_every_rank_and_heads_are_shared() -> None:
    assert kv_bytes_per_token(GLM, ranks=8) == kv_bytes_per_token(GLM, ranks=1)
    assert kv_bytes_per_token(QWEN, ranks=8) == kv_bytes_per_token(QWEN, ranks=1) / 8
    assert kv_bytes_per_token(QWEN, ranks=16) == kv_bytes_per_token(QWEN, ranks=8)


def test_one_node_holds_about_three_full_contexts_of_glm() -> None:
    tokens = figures().kv_blocks * 16
    assert 600_000 < tokens < 660_000
    assert figures().max_context_tokens == 202_752


def test_weights_that_do_not_fit_are_refused_with_the_fix() -> None:
    with pytest.raises(DoesNotFitError, match=r"189\.0 GB on each of 4 GPUs(.|\n)*at least 6 GPUs"):
        figures(ranks=4)
    small = dataclasses.replace(H200, memory_bytes=80e9)
    with pytest.raises(DoesNotFitError):
        serving_figures(GLM, small, ranks=8, typical_request_tokens=16_384, storage_bytes_per_s=1e9)


def test_directions() -> None:
    """More GPUs or shorter requests never hold less; a slower disk never loads faster."""
    assert figures(QWEN, ranks=2).kv_blocks > figures(QWEN, ranks=1).kv_blocks
    assert figures(QWEN, ranks=2).prefill_s_per_token < figures(QWEN, ranks=1).prefill_s_per_token
    assert figures(typical=8_192).max_running_requests >= figures(typical=16_384).max_running_requests
    assert figures().decode_slowdown_when_full >= 1
    assert figures().load_s == pytest.approx(756)


def test_every_catalogue_file_loads_and_names_its_source() -> None:
    for name in catalogue.names():
        assert catalogue.load(name).source
