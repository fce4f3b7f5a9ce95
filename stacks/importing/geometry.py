"""The geometry of a Hugging Face config.json in the catalogue's terms, family by family.

A family reads the keys that it knows. A key that decides sizes and is not read is an error: a figure that was guessed
would be worse than none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

Section = dict[str, Any]

# Keys of config.json that change neither sizes nor speed, one per line.
_HARMLESS = frozenset((Path(__file__).parent / "harmless-keys.txt").read_text().split())


class NotUnderstoodError(ValueError):
    """A config holds something that the catalogue cannot express; one reason a line."""


class Reader:
    """A config's text section that remembers which of its keys were read."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        self._read: set[str] = set()

    def number(self, *names: str, default: int | None = None) -> int:
        """The first of these keys that has a whole number. Raises NotUnderstoodError when none has and no default."""
        self._read.update(names)
        for name in names:
            value = self._config.get(name)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
            if value is not None:
                raise NotUnderstoodError(f"{name}: got {value!r}, allowed: a whole number")
        if default is None:
            raise NotUnderstoodError(f"{' or '.join(names)}: missing; the family needs it")
        return default

    def value(self, name: str, default: Any = None) -> Any:
        self._read.add(name)
        return self._config.get(name, default)

    def unread(self, ignored: frozenset[str]) -> list[str]:
        """Keys that were not read and are not known to be harmless, sorted."""
        known = self._read | _HARMLESS | ignored
        silent: tuple[Any, ...] = (None, False, 0, [], {}, "")
        return sorted(
            key
            for key, value in self._config.items()
            if key not in known and not key.endswith(("_token_id", "_token_index")) and value not in silent
        )


def _attention(read: Reader, count: int, **more: Any) -> Section:
    heads = read.number("num_attention_heads")
    kv = read.number("num_key_value_heads", default=heads)
    if kv < 1 or heads < 1 or heads % kv:
        raise NotUnderstoodError(f"num_key_value_heads: got {kv}, allowed: a divisor of the {heads} heads")
    size = read.number("head_dim", default=read.number("hidden_size") // heads)
    return {"kind": "full", "count": count, "heads": heads, "kv_heads": kv, "head_size": size, **more}


def _layers(read: Reader) -> int:
    return read.number("num_hidden_layers")


def _dense(read: Reader) -> Section:
    return {"kind": "dense", "count": _layers(read), "width": read.number("intermediate_size")}


def _llama(read: Reader) -> Section:
    window = read.number("sliding_window", default=0)
    # A window that no request fills is none, as of Phi-3.5.
    slides = 0 < window < read.number("max_position_embeddings")
    if slides and read.value("use_sliding_window", default=True):
        raise NotUnderstoodError(f"sliding_window: got {window}, allowed: null; which layers slide is not stated")
    return {"mixers": {"attention": _attention(read, _layers(read))}, "feed_forward": {"dense": _dense(read)}}


def _routed(read: Reader, count: int, **more: Any) -> Section:
    return {
        "kind": "experts",
        "count": count,
        "experts": read.number("num_experts", "n_routed_experts", "num_local_experts"),
        "chosen": read.number("num_experts_per_tok"),
        "width": read.number("moe_intermediate_size", "intermediate_size"),
        **more,
    }


def _all_experts(read: Reader) -> Section:
    """Every layer has experts, and attention looks at everything."""
    if read.value("mlp_only_layers") or read.value("decoder_sparse_step", 1) != 1 or read.value("sliding_window"):
        raise NotUnderstoodError("mlp_only_layers, decoder_sparse_step, sliding_window: allowed: every layer alike")
    read.number("intermediate_size", default=0)
    more = {"shared_width": shared} if (shared := read.number("shared_intermediate_size", default=0)) else {}
    if set(read.value("attn_type_list") or [1]) != {1}:
        raise NotUnderstoodError("attn_type_list: allowed: 1 for every layer, which is attention over everything")
    # MiniMax describes draft modules that its published files do not hold.
    for name in ("use_mtp", "num_mtp_modules", "mtp_transformer_layers"):
        read.value(name)
    return {
        "mixers": {"attention": _attention(read, _layers(read))},
        "feed_forward": {"experts": _routed(read, _layers(read), **more)},
    }


def _glm4_moe(read: Reader) -> Section:
    """Attention that looks at everything; the first layers are dense, the others have experts."""
    layers, first = _layers(read), read.number("first_k_dense_replace")
    experts = _routed(read, layers - first)
    experts["shared_width"] = read.number("n_shared_experts") * experts["width"]
    drafts = read.number("num_nextn_predict_layers", default=0)
    return {
        "mixers": {"attention": _attention(read, layers)},
        "feed_forward": {
            "dense": {"kind": "dense", "count": first, "width": read.number("intermediate_size")},
            "experts": experts,
        },
        "pattern": f"{first} dense layers, then {layers - first} with experts",
        **({"draft_layers": drafts} if drafts else {}),
    }


def _latent(read: Reader) -> Section:
    layers, first = _layers(read), read.number("first_k_dense_replace", default=0)
    if read.value("indexer_types"):
        raise NotUnderstoodError("indexer_types: layers that share an indexer are not expressed")
    mixer: Section = {
        "kind": "latent",
        "count": layers,
        "heads": read.number("num_attention_heads"),
        "latent": read.number("kv_lora_rank"),
        "rope": read.number("qk_rope_head_dim"),
        "nope": read.number("qk_nope_head_dim"),
        "value_size": read.number("v_head_dim"),
        "query_rank": read.number("q_lora_rank", default=0),
    }
    if read.value("index_n_heads"):
        mixer |= {
            "indexer_heads": read.number("index_n_heads"),
            "indexer_size": read.number("index_head_dim"),
            "indexer_tokens": read.number("index_topk"),
        }
    read.number("num_key_value_heads", "head_dim", default=0)
    read.value("head_dim")
    experts = _routed(read, layers - first)
    experts["shared_width"] = read.number("n_shared_experts", default=0) * experts["width"]
    dense = {"dense": {"kind": "dense", "count": first, "width": read.number("intermediate_size")}} if first else {}
    read.value("intermediate_size")
    shape: Section = {"mixers": {"attention": mixer}, "feed_forward": {**dense, "experts": experts}}
    if drafts := read.number("num_nextn_predict_layers", default=0):
        shape["draft_layers"] = drafts
    if first:
        shape["pattern"] = f"{first} dense layers, then {layers - first} with experts"
    return shape


def _kinds(read: Reader, known: Mapping[str, str]) -> Counter[str]:
    listed = read.value("layer_types")
    if not isinstance(listed, list) or set(listed) - set(known):
        raise NotUnderstoodError(f"layer_types: allowed: a list of {', '.join(known)}")
    return Counter(known[kind] for kind in listed)


def _order(read: Reader, names: Mapping[str, str]) -> str:
    """The shortest run of layers that repeats, as text."""
    listed = [names[kind] for kind in read.value("layer_types")]
    for size in range(1, len(listed) + 1):
        if all(kind == listed[place % size] for place, kind in enumerate(listed)):
            return f"{', '.join(listed[:size])}; repeated"
    return ""


def _gpt_oss(read: Reader) -> Section:
    names = {"sliding_attention": "sliding", "full_attention": "full"}
    counts = _kinds(read, names)
    sliding = _attention(read, counts["sliding"]) | {"kind": "sliding", "window": read.number("sliding_window")}
    return {
        "mixers": {"sliding": sliding, "full": _attention(read, counts["full"])},
        "feed_forward": {"experts": _routed(read, _layers(read))},
        "attention_sinks": True,
        "pattern": _order(read, names),
    }


def _gemma3(read: Reader) -> Section:
    layers, every = _layers(read), read.number("sliding_window_pattern")
    full = layers // every
    sliding = _attention(read, layers - full) | {"kind": "sliding", "window": read.number("sliding_window")}
    return {
        "mixers": {"sliding": sliding, "full": _attention(read, full)},
        "feed_forward": {"dense": _dense(read)},
        "pattern": f"{every - 1} sliding, 1 full; repeated",
        "tied": True,
    }


def _state_bits(stated: Any) -> Section:
    """Of a layer with a state: 32 is the default; without a type of its own a state has that of the weights."""
    if stated not in (None, "float32", "bfloat16", "float16"):
        raise NotUnderstoodError(f"type of states: got {stated!r}, allowed: float32, bfloat16, float16")
    return {} if stated == "float32" else {"state_bits": 16}


def _llama4(read: Reader) -> Section:
    """Three layers of four look at their chunk alone; every n-th has experts and one shared expert."""
    layers, step = _layers(read), read.number("interleave_moe_layer_step")
    routed, full = layers // step, layers // 4
    chunked = _attention(read, layers - full) | {"kind": "sliding", "window": read.number("attention_chunk_size")}
    experts = _routed(read, routed)
    experts["width"] = read.number("intermediate_size")
    experts["shared_width"] = experts["width"]
    width = read.number("intermediate_size_mlp")
    dense = {"dense": {"kind": "dense", "count": layers - routed, "width": width}} if layers > routed else {}
    return {
        "mixers": {"chunked": chunked, "full": _attention(read, full)},
        "feed_forward": {**dense, "experts": experts},
        "pattern": f"3 chunked, 1 full; experts in every {step}. layer",
    }


def _qwen3_5(read: Reader) -> Section:
    names = {"linear_attention": "linear", "full_attention": "full"}
    counts = _kinds(read, names)
    read.number("full_attention_interval", default=4)
    linear = {
        "kind": "delta",
        "count": counts["linear"],
        "key_heads": read.number("linear_num_key_heads"),
        "key_size": read.number("linear_key_head_dim"),
        "value_heads": read.number("linear_num_value_heads"),
        "value_size": read.number("linear_value_head_dim"),
        "convolution": read.number("linear_conv_kernel_dim"),
        **_state_bits(read.value("mamba_ssm_dtype")),
    }
    gate = {"gated": True} if read.value("attn_output_gate") else {}
    if read.value("mlp_only_layers"):
        raise NotUnderstoodError("mlp_only_layers: allowed: none")
    shared = read.number("shared_expert_intermediate_size", default=0)
    forward = (
        {"experts": _routed(read, _layers(read), shared_width=shared)}
        if read.value("num_experts")
        else {"dense": _dense(read)}
    )
    shape: Section = {
        "mixers": {"linear": linear, "full": _attention(read, counts["full"], **gate)},
        "feed_forward": forward,
        "pattern": _order(read, names),
    }
    if drafts := read.number("mtp_num_hidden_layers", default=0):
        shape["draft_layers"] = drafts
    return shape


def _qwen3_next(read: Reader) -> Section:
    """As Qwen3.5, with a gate on every full attention; its config names no kinds of layers, and no gate."""
    layers, every = _layers(read), read.number("full_attention_interval", default=4)
    read.number("intermediate_size", default=0)
    if read.value("mlp_only_layers") or read.value("decoder_sparse_step", 1) != 1 or read.value("layer_types"):
        raise NotUnderstoodError("mlp_only_layers, decoder_sparse_step, layer_types: allowed: every layer alike")
    linear = {
        "kind": "delta",
        "count": layers - layers // every,
        "key_heads": read.number("linear_num_key_heads"),
        "key_size": read.number("linear_key_head_dim"),
        "value_heads": read.number("linear_num_value_heads"),
        "value_size": read.number("linear_value_head_dim"),
        "convolution": read.number("linear_conv_kernel_dim"),
        # vLLM 0.32 reads no type of states for this family (models/config.py).
        **_state_bits(None),
    }
    return {
        "mixers": {"linear": linear, "full": _attention(read, layers // every, gated=True)},
        "feed_forward": {"experts": _routed(read, layers, shared_width=read.number("shared_expert_intermediate_size"))},
        "pattern": f"{', '.join(['linear'] * (every - 1))}, full; repeated",
    }


def _nemotron_h(read: Reader) -> Section:
    order = read.value("hybrid_override_pattern", "")
    counts = Counter(order)
    if set(counts) - set("M*E-"):
        raise NotUnderstoodError(f"hybrid_override_pattern: got {order!r}, allowed: letters M, E, * and -")
    if read.value("moe_latent_size"):
        raise NotUnderstoodError("moe_latent_size: experts behind a projection are not expressed")
    mamba = {
        "kind": "mamba",
        "count": counts["M"],
        "heads": read.number("mamba_num_heads"),
        "head_size": read.number("mamba_head_dim"),
        "groups": read.number("n_groups"),
        "state": read.number("ssm_state_size"),
        "convolution": read.number("conv_kernel"),
        **_state_bits(read.value("mamba_ssm_cache_dtype", "float32")),
    }
    forward: Section = {}
    width = read.number("intermediate_size", default=0)
    if counts["-"]:
        forward["dense"] = {"kind": "dense", "count": counts["-"], "width": width, "matrices": 2}
    if counts["E"]:
        shared = read.number("n_shared_experts", default=0) * read.number(
            "moe_shared_expert_intermediate_size", default=0
        )
        forward["experts"] = _routed(read, counts["E"], shared_width=shared, matrices=2)
    _layers(read)
    return {
        "mixers": {"mamba": mamba, "full": _attention(read, counts["*"])},
        "feed_forward": forward,
        "pattern": f"{order}, a letter a layer: M mamba, * attention, E experts, - dense",
    }


def _xlm_roberta(read: Reader) -> Section:
    heads = read.number("num_attention_heads")
    size = read.number("hidden_size") // heads
    encoder = {"kind": "encoder", "count": _layers(read), "heads": heads, "head_size": size}
    return {
        "mixers": {"encoder": encoder},
        "feed_forward": {"dense": _dense(read) | {"matrices": 2}},
        "tied": True,
    }


FAMILIES: Mapping[str, Callable[[Reader], Section]] = {
    **dict.fromkeys(("llama", "mistral", "phi3", "qwen2", "qwen3"), _llama),
    **dict.fromkeys(("mixtral", "qwen3_moe", "minimax_m2"), _all_experts),
    **dict.fromkeys(("deepseek_v3", "deepseek_v32", "kimi_k2", "glm_moe_dsa", "mistral4"), _latent),
    "glm4_moe": _glm4_moe,
    "gpt_oss": _gpt_oss,
    "gemma3_text": _gemma3,
    "llama4_text": _llama4,
    **dict.fromkeys(("qwen3_5_text", "qwen3_5_moe_text"), _qwen3_5),
    "qwen3_next": _qwen3_next,
    "nemotron_h": _nemotron_h,
    "xlm-roberta": _xlm_roberta,
}


def geometry(config: Mapping[str, Any], *, ignored: frozenset[str] = frozenset()) -> Section:
    """The catalogue keys that a config decides. Raises NotUnderstoodError with every reason.

    config: the parsed config.json; of a multimodal model its text part alone is read.
    ignored: keys that the caller knows to be harmless.
    """
    inner = config.get("text_config")
    text = {"tie_word_embeddings": config.get("tie_word_embeddings", False), **inner} if inner else dict(config)
    family = text.get("model_type")
    if family not in FAMILIES:
        raise NotUnderstoodError(f"model_type: got {family!r}, allowed: {', '.join(sorted(FAMILIES))}")
    read = Reader(text)
    shape: Section = {
        "hidden": read.number("hidden_size"),
        "vocabulary": read.number("vocab_size"),
        "max_context_tokens": read.number("max_position_embeddings"),
        **({"tied": True} if read.value("tie_word_embeddings") else {}),
    } | FAMILIES[str(family)](read)
    if family == "xlm-roberta":
        # Its positions begin after the padding index.
        shape["max_context_tokens"] -= 2
    if unread := read.unread(ignored):
        raise NotUnderstoodError("\n".join(_unknown(unread)))
    return shape


def _unknown(keys: list[str]) -> Iterator[str]:
    for key in keys:
        yield f"{key}: not known, so sizes may be wrong; fix: teach stacks/importing/geometry.py, or --ignore {key}"
