"""Writes a model of random weights that embeds or ranks: `PYTHON tiny_pooling_model.py FOLDER CLASS`, in vLLM's Python.

CLASS is of transformers: XLMRobertaModel, XLMRobertaForSequenceClassification, or Qwen3ForCausalLM. A token per byte.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

BEGIN, PAD, END, UNKNOWN, MASK = "<s>", "<pad>", "</s>", "<unk>", "<mask>"
# By them a decoder ranks.
ANSWERS = ["no", "yes"]
CONTEXT_TOKENS = 8192


def main(folder: Path, of_class: str) -> None:
    """Config, tokenizer and weights."""
    torch.manual_seed(0)
    words = [BEGIN, PAD, END, UNKNOWN, *sorted(pre_tokenizers.ByteLevel.alphabet()), MASK]
    numbers = {word: number for number, word in enumerate(words)}
    of_bytes = Tokenizer(models.BPE(vocab=numbers, merges=[], unk_token=UNKNOWN))
    of_bytes.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    of_bytes.decoder = decoders.ByteLevel()
    of_bytes.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A {END}",
        pair=f"{BEGIN} $A {END} {END} $B {END}",
        special_tokens=[(BEGIN, numbers[BEGIN]), (END, numbers[END])],
    )
    of_bytes.add_tokens(ANSWERS)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=of_bytes,
        bos_token=BEGIN,
        eos_token=END,
        pad_token=PAD,
        unk_token=UNKNOWN,
        cls_token=BEGIN,
        sep_token=END,
        mask_token=MASK,
        model_max_length=CONTEXT_TOKENS,
    )
    tokenizer.save_pretrained(folder)
    made = getattr(transformers, of_class)
    sizes = {
        "vocab_size": len(words) + len(ANSWERS),
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "pad_token_id": numbers[PAD],
        "bos_token_id": numbers[BEGIN],
        "eos_token_id": numbers[END],
    }
    if of_class == "Qwen3ForCausalLM":
        sizes |= {"num_key_value_heads": 4, "head_dim": 32, "max_position_embeddings": CONTEXT_TOKENS}
        config = made.config_class(**sizes, tie_word_embeddings=True)
    else:
        # Two positions of XLM-R are for padding.
        sizes |= {"max_position_embeddings": CONTEXT_TOKENS + 2, "type_vocab_size": 1, "num_labels": 1}
        config = made.config_class(**sizes, position_embedding_type="absolute")
    made(config).to(torch.bfloat16).save_pretrained(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
