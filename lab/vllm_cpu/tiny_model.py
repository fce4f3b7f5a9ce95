"""Writes a model of random weights that a CPU serves: `PYTHON tiny_model.py FOLDER CONTEXT`, in vLLM's environment.

A Llama of two layers with a tokenizer of bytes: a token per byte, 0.8 MB of weights, the same for the same arguments.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

BEGIN, END, PAD = "<s>", "</s>", "<pad>"
_TEMPLATE = "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}assistant:"


def main(folder: Path, context: int) -> None:
    """Config, tokenizer and weights; `context` is the longest prompt plus answer in tokens."""
    torch.manual_seed(0)
    words = [*sorted(pre_tokenizers.ByteLevel.alphabet()), BEGIN, END, PAD]
    numbers = {word: number for number, word in enumerate(words)}
    of_bytes = Tokenizer(models.BPE(vocab=numbers, merges=[]))
    of_bytes.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    of_bytes.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=of_bytes, bos_token=BEGIN, eos_token=END, pad_token=PAD, model_max_length=context
    )
    tokenizer.chat_template = _TEMPLATE
    tokenizer.save_pretrained(folder)
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=context,
        bos_token_id=numbers[BEGIN],
        eos_token_id=numbers[END],
        pad_token_id=numbers[PAD],
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
