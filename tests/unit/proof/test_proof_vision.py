"""Vision towers by their configs, held against what makers and public counts of their parameters give."""

from __future__ import annotations

from typing import Any

import pytest

from stacks.importing.geometry import NotUnderstoodError
from stacks.importing.vision import vision_parameters, vision_tower
from tests.unit.proof.test_proof_import_config import CONFIGS

pytestmark = pytest.mark.row("000.40", "003.01")

GEMMA: dict[str, Any] = {
    "text_config": {"hidden_size": 5376},
    "vision_config": {
        "model_type": "siglip_vision_model",
        "hidden_size": 1152,
        "image_size": 896,
        "intermediate_size": 4304,
        "num_attention_heads": 16,
        "num_hidden_layers": 27,
        "patch_size": 14,
    },
}
PIXTRAL: dict[str, Any] = {
    "text_config": {"hidden_size": 5120},
    "vision_config": {
        "model_type": "pixtral",
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "patch_size": 14,
    },
}


QWEN: dict[str, Any] = {
    "vision_config": {
        "model_type": "qwen3_5",
        "depth": 27,
        "hidden_size": 1152,
        "in_channels": 3,
        "intermediate_size": 4304,
        "num_position_embeddings": 2304,
        "out_hidden_size": 3072,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    },
}


def test_gemma_s_tower_is_the_one_that_its_report_counts() -> None:
    """Gemma 3's report: a vision encoder of 417 million, the same for 4B, 12B and 27B; 1152 x 5376 join it."""
    joined = 1152 * 5376
    assert vision_parameters(GEMMA) - joined == pytest.approx(417e6, rel=0.005)


def test_pixtral_s_tower_is_the_one_that_mistral_counts() -> None:
    """Pixtral 12B's announcement: a vision encoder of 400 million; 36 million join it to a text of 5,120."""
    joined = 4 * 1024**2 + 1024 * 5120 + 5120**2
    assert vision_parameters(PIXTRAL) - joined == pytest.approx(400e6, rel=0.02)


def test_kimi_s_tower_is_the_one_that_its_card_counts() -> None:
    """Kimi-K2.5's card: MoonViT with 400 million parameters."""
    joined = 4608**2 + 4608 * 7168
    assert vision_parameters(CONFIGS["kimi-k2.5"]) - joined == pytest.approx(400e6, rel=0.05)


def test_text_alone_has_no_tower() -> None:
    assert vision_parameters(CONFIGS["qwen3-32b-fp8"]) == 0
    assert vision_parameters(GEMMA, ignored=frozenset({"vision_config"})) == 0
    assert vision_tower(CONFIGS["qwen3-32b-fp8"]) == {}
    assert vision_tower(GEMMA, ignored=frozenset({"vision_config"})) == {}


def test_largest_pictures_are_those_that_starts_profile() -> None:
    """Start-up logs: 1 picture in 16,384 tokens (Qwen3.5) and in 4,096 (Mistral), 7 in 32,768 (Kimi); 31 in 8,192
    (Gemma 3), as its processor writes four tokens around the 256 of a picture.
    """
    towers = {
        "gemma": vision_tower(GEMMA),
        "mistral": vision_tower(PIXTRAL),
        "kimi": vision_tower(CONFIGS["kimi-k2.5"]),
        "qwen": vision_tower(QWEN),
    }
    assert 16_384 // towers["qwen"]["tokens"] == 4096 // towers["mistral"]["tokens"] == 1
    assert 32_768 // towers["kimi"]["tokens"] == 7
    assert 8192 // (towers["gemma"]["tokens"] + 4) == 31
    assert towers["qwen"] == {"patches": 65_536, "tokens": 16_384, "pixels": 1536, "hidden": 1152, "width": 4304}
    assert towers["mistral"]["matrices"] == 3
    # 17 tiles, with a token of the tile that the text does not get.
    llama = vision_tower(CONFIGS["llama-4-maverick"])
    assert (llama["patches"], llama["tokens"]) == (17 * 577, 17 * 144)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model_type": "newvit"}, "vision_config.model_type: got 'newvit', allowed: kimi_k25, "),
        ({"hidden_size": None}, "vision_config.hidden_size or vt_hidden_size: missing"),
        ({"patch_size": "14"}, "vision_config.patch_size: missing, or not a whole number"),
        ({"num_hidden_layers": True}, "vision_config.num_hidden_layers or depth or vt_num_hidden_layers: missing"),
    ],
)
def test_a_tower_that_is_not_understood_is_refused(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(NotUnderstoodError) as refused:
        vision_parameters(GEMMA | {"vision_config": GEMMA["vision_config"] | change})
    assert reason in str(refused.value)


@pytest.mark.parametrize("section", ["a text", [1, 2], 7])
def test_a_section_of_another_form_is_refused(section: object) -> None:
    with pytest.raises(NotUnderstoodError, match="allowed: a section of keys"):
        vision_parameters({"vision_config": section})
