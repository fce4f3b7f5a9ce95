"""A config.json becomes a catalogue file, or every reason why not."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from stacks.facts import catalogue
from stacks.facts.catalogue import CatalogueModel
from stacks.importing.config import catalogue_file, text
from stacks.importing.geometry import NotUnderstoodError, geometry
from stacks.importing.quantising import quantisation

pytestmark = pytest.mark.row("000.40", "003.01")

# What the published files say, without what changes no size.
CONFIGS: dict[str, dict[str, Any]] = {
    "qwen3-32b-fp8": {
        "model_type": "qwen3",
        "hidden_size": 5120,
        "intermediate_size": 25600,
        "num_hidden_layers": 64,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
        "max_position_embeddings": 40960,
        "use_sliding_window": False,
        "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    },
    "glm-5.1-fp8": {
        "model_type": "glm_moe_dsa",
        "hidden_size": 6144,
        "intermediate_size": 12288,
        "moe_intermediate_size": 2048,
        "first_k_dense_replace": 3,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 78,
        "num_attention_heads": 64,
        "num_key_value_heads": 64,
        "head_dim": 64,
        "kv_lora_rank": 512,
        "q_lora_rank": 2048,
        "qk_nope_head_dim": 192,
        "qk_rope_head_dim": 64,
        "v_head_dim": 256,
        "index_head_dim": 128,
        "index_n_heads": 32,
        "index_topk": 2048,
        "num_nextn_predict_layers": 1,
        "vocab_size": 154880,
        "max_position_embeddings": 202752,
        "rope_theta": 1000000,
        "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    },
    "qwen3-30b-a3b-fp8": {
        "model_type": "qwen3_moe",
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "moe_intermediate_size": 768,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "num_hidden_layers": 48,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "vocab_size": 151936,
        "max_position_embeddings": 40960,
        "use_sliding_window": False,
        "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    },
    "gpt-oss-120b": {
        "model_type": "gpt_oss",
        "hidden_size": 2880,
        "intermediate_size": 2880,
        "num_local_experts": 128,
        "num_experts_per_tok": 4,
        "num_hidden_layers": 36,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "sliding_window": 128,
        "layer_types": ["sliding_attention", "full_attention"] * 18,
        "vocab_size": 201088,
        "max_position_embeddings": 131072,
        "quantization_config": {"quant_method": "mxfp4"},
    },
    "kimi-k2.5": {
        "text_config": {
            "model_type": "kimi_k2",
            "hidden_size": 7168,
            "intermediate_size": 18432,
            "moe_intermediate_size": 2048,
            "first_k_dense_replace": 1,
            "n_routed_experts": 384,
            "n_shared_experts": 1,
            "num_experts_per_tok": 8,
            "num_hidden_layers": 61,
            "num_attention_heads": 64,
            "num_key_value_heads": 64,
            "kv_lora_rank": 512,
            "q_lora_rank": 1536,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
            "num_nextn_predict_layers": 0,
            "vocab_size": 163840,
            "max_position_embeddings": 262144,
            "quantization_config": {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int", "group_size": 32}}},
                "ignore": [
                    "lm_head",
                    "re:.*self_attn.*",
                    "re:.*shared_experts.*",
                    "re:.*mlp\\.(gate|up|gate_up|down)_proj.*",
                ],
            },
        },
        "model_type": "kimi_k25",
        "vision_config": {
            "init_pos_emb_height": 64,
            "init_pos_emb_width": 64,
            "merge_kernel_size": [2, 2],
            "patch_size": 14,
            "text_hidden_size": 7168,
            "vt_hidden_size": 1152,
            "vt_intermediate_size": 4304,
            "vt_num_attention_heads": 16,
            "vt_num_hidden_layers": 27,
        },
    },
    "llama-4-maverick": {
        "text_config": {
            "model_type": "llama4_text",
            "hidden_size": 5120,
            "intermediate_size": 8192,
            "intermediate_size_mlp": 16384,
            "interleave_moe_layer_step": 2,
            "attention_chunk_size": 8192,
            "num_local_experts": 128,
            "num_experts_per_tok": 1,
            "num_hidden_layers": 48,
            "num_attention_heads": 40,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "vocab_size": 202048,
            "max_position_embeddings": 1048576,
        },
        "vision_config": {
            "model_type": "llama4_vision_model",
            "hidden_size": 1408,
            "image_size": 336,
            "intermediate_size": 5632,
            "num_channels": 3,
            "num_hidden_layers": 34,
            "num_attention_heads": 16,
            "patch_size": 14,
            "pixel_shuffle_ratio": 0.5,
            "projector_input_dim": 4096,
            "projector_output_dim": 4096,
            "vision_output_dim": 4096,
        },
    },
    "minimax-m2.7": {
        "model_type": "minimax_m2",
        "attn_type_list": [1] * 62,
        "hidden_size": 3072,
        "intermediate_size": 1536,
        "num_local_experts": 256,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 62,
        "num_attention_heads": 48,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 200064,
        "max_position_embeddings": 204800,
        "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    },
    "glm-4.6-fp8": {
        "model_type": "glm4_moe",
        "attention_bias": True,
        "hidden_size": 5120,
        "intermediate_size": 12288,
        "moe_intermediate_size": 1536,
        "first_k_dense_replace": 3,
        "n_routed_experts": 160,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 92,
        "num_attention_heads": 96,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "num_nextn_predict_layers": 1,
        "use_qk_norm": True,
        "vocab_size": 151552,
        "max_position_embeddings": 202752,
        "quantization_config": {
            "quant_method": "compressed-tensors",
            "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}},
            "ignore": ["lm_head"],
        },
    },
    "phi-4": {
        "model_type": "phi3",
        "hidden_size": 5120,
        "intermediate_size": 17920,
        "num_hidden_layers": 40,
        "num_attention_heads": 40,
        "num_key_value_heads": 10,
        "vocab_size": 100352,
        "max_position_embeddings": 16384,
        "original_max_position_embeddings": 16384,
    },
    "nemotron-3-nano": {
        "model_type": "nemotron_h",
        "hidden_size": 2688,
        "intermediate_size": 1856,
        "moe_intermediate_size": 1856,
        "moe_shared_expert_intermediate_size": 3712,
        "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
        "n_routed_experts": 128,
        "n_shared_experts": 1,
        "num_experts_per_tok": 6,
        "num_hidden_layers": 52,
        "num_attention_heads": 32,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "mamba_num_heads": 64,
        "mamba_head_dim": 64,
        "n_groups": 8,
        "ssm_state_size": 128,
        "conv_kernel": 4,
        "vocab_size": 131072,
        "max_position_embeddings": 262144,
    },
    "qwen3-next-80b-a3b": {
        "model_type": "qwen3_next",
        "hidden_size": 2048,
        "intermediate_size": 5120,
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
        "full_attention_interval": 4,
        "decoder_sparse_step": 1,
        "num_experts": 512,
        "num_experts_per_tok": 10,
        "num_hidden_layers": 48,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "linear_num_key_heads": 16,
        "linear_key_head_dim": 128,
        "linear_num_value_heads": 32,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "vocab_size": 151936,
        "max_position_embeddings": 262144,
    },
    "bge-reranker-v2-m3": {
        "model_type": "xlm-roberta",
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "vocab_size": 250002,
        "max_position_embeddings": 8194,
        "torch_dtype": "float32",
    },
}


def meta(name: str) -> dict[str, Any]:
    """What the catalogue's own file has in addition to the geometry."""
    keys = {"repository", "revision", "licence", "engine_version", "remote_code", "task", "published", "sources"}
    keys |= {"engine_flags", "draft_layers"}
    return {key: value for key, value in yaml.safe_load(file_of(name)).items() if key in keys}


def file_of(name: str) -> str:
    return (catalogue.FOLDER / f"{name}.yaml").read_text()


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_the_committed_file_is_what_the_config_gives(name: str) -> None:
    assert CatalogueModel.model_validate(catalogue_file(CONFIGS[name], meta(name))) == catalogue.load(name)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model_type": "deepseek_v4"}, "model_type: got 'deepseek_v4', allowed: "),
        ({"hidden_size": None}, "hidden_size: missing"),
        ({"hidden_size": "5120"}, "hidden_size: got '5120', allowed: a whole number"),
        ({"compress_ratios": [4, 128]}, "compress_ratios: not known, so sizes may be wrong"),
        ({"sliding_window": 4096, "use_sliding_window": True}, "sliding_window: got 4096"),
        ({"quantization_config": {"quant_method": "awq"}}, "got quant_method 'awq', allowed: fp8"),
        ({"quantization_config": None}, "the repository's name states FP8"),
        ({"num_hidden_layers": 32}, "published.parameters: got 32.8 billion, but the geometry gives"),
        ({"num_key_value_heads": 7}, "num_key_value_heads: got 7, allowed: a divisor of the 64 heads"),
        ({"num_attention_heads": 0, "num_key_value_heads": 0}, "num_key_value_heads: got 0"),
        ({"quantization_config": "fp8"}, "quantization_config: got 'fp8', allowed: a JSON object"),
    ],
)
def test_what_is_not_understood_is_refused(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(NotUnderstoodError) as caught:
        catalogue_file(CONFIGS["qwen3-32b-fp8"] | change, meta("qwen3-32b-fp8"))
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    "window",
    [
        {"sliding_window": 40960, "use_sliding_window": True},
        {"sliding_window": 262_144},
        {"sliding_window": 4096},
        {"sliding_window": None},
    ],
)
def test_a_window_that_no_request_fills_or_that_is_switched_off_changes_nothing(window: dict[str, Any]) -> None:
    config = CONFIGS["qwen3-32b-fp8"]
    assert geometry(config | window) == geometry(config)


# Of another name, with kinds of layers by name.
QWEN3_5 = CONFIGS["qwen3-next-80b-a3b"] | {
    "model_type": "qwen3_5_moe_text",
    "decoder_sparse_step": None,
    "layer_types": [*["linear_attention"] * 3, "full_attention"] * 12,
    "attn_output_gate": True,
}


@pytest.mark.parametrize(
    ("config", "bits"),
    [
        (QWEN3_5 | {"mamba_ssm_dtype": "float32"}, 32),
        (QWEN3_5 | {"mamba_ssm_dtype": "bfloat16"}, 16),
        (QWEN3_5, 16),
        # The engine reads no type of this family's.
        (CONFIGS["qwen3-next-80b-a3b"] | {"mamba_ssm_dtype": "float32"}, 16),
        (CONFIGS["nemotron-3-nano"], 32),
        (CONFIGS["nemotron-3-nano"] | {"mamba_ssm_cache_dtype": "float16"}, 16),
    ],
    ids=["stated", "stated as the weights'", "not stated", "not read", "the engine's own", "stated for the cache"],
)
def test_states_have_the_type_that_the_engine_takes(config: dict[str, Any], bits: int) -> None:
    """As vLLM 0.32 decides it: models/config.py, and layers/mamba/mamba_utils.py for what is left at `auto`."""
    shape = geometry(config)
    (mixer,) = (mixer for mixer in shape["mixers"].values() if mixer["kind"] in ("delta", "mamba"))
    assert mixer.get("state_bits", 32) == bits
    with pytest.raises(NotUnderstoodError, match="type of states: got 'float64', allowed: float32"):
        geometry(QWEN3_5 | {"mamba_ssm_dtype": "float64"})


def test_all_unknown_keys_are_named_and_known_ones_can_be_ignored() -> None:
    strange = CONFIGS["qwen3-32b-fp8"] | {"new_attention": 7, "another_trick": True, "switched_off": False}
    with pytest.raises(NotUnderstoodError) as caught:
        geometry(strange)
    assert [line.partition(":")[0] for line in str(caught.value).splitlines()] == ["another_trick", "new_attention"]
    assert geometry(strange, ignored=frozenset({"new_attention", "another_trick"}))["hidden"] == 5120


@pytest.mark.parametrize(
    ("family", "change", "reason"),
    [
        ("glm-5.1-fp8", {"indexer_types": ["full", "shared"]}, "indexer_types"),
        ("gpt-oss-120b", {"layer_types": ["chunked_attention"] * 36}, "layer_types"),
        ("qwen3-30b-a3b-fp8", {"decoder_sparse_step": 2}, "every layer alike"),
        ("qwen3-30b-a3b-fp8", {"mlp_only_layers": [0]}, "every layer alike"),
        ("nemotron-3-nano", {"moe_latent_size": 1024}, "moe_latent_size"),
        ("nemotron-3-nano", {"hybrid_override_pattern": "MX"}, "hybrid_override_pattern"),
    ],
)
def test_families_refuse_what_they_cannot_express(family: str, change: dict[str, Any], reason: str) -> None:
    with pytest.raises(NotUnderstoodError, match=reason):
        geometry(CONFIGS[family] | change)


def test_nvidia_s_own_file_says_what_is_quantised() -> None:
    shape = geometry(CONFIGS["glm-5.1-fp8"])
    listed = {
        "quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head", "model.layers.3.self_attn.kv_b_proj"]}
    }
    stored = quantisation({}, shape, nvidia=listed)
    assert stored == {"format": "nvfp4", "parts": ["dense", "experts", "shared"]}
    with pytest.raises(NotUnderstoodError, match="quant_algo: got 'W4A8'"):
        quantisation({}, shape, nvidia={"quantization": {"quant_algo": "W4A8"}})


def test_a_file_keeps_its_keys_in_order() -> None:
    content = catalogue_file(CONFIGS["gpt-oss-120b"], meta("gpt-oss-120b"))
    order = [line.partition(":")[0] for line in text(content, "x").splitlines() if line and line[0].isalpha()]
    assert order == [key for key in CatalogueModel.model_fields if key in content]
