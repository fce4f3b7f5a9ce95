"""Writes a tiny model with a tokenizer of words: `PYTHON worded_model.py FOLDER CONTEXT TEXTS`, in vLLM's environment.

A Llama of one layer with random weights, and a byte-pair encoding that is trained on the Markdown pages below TEXTS, so
that tokenising and detokenising take what they take with a model's own vocabulary: merges, and some four bytes a token.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

BEGIN, END = "<s>", "</s>"
WORDS = 16_384
# As long as a usual model's: roles, system prompt, tools, and a turn for the answer.
_TEMPLATE = (
    "{% if messages[0]['role'] == 'system' %}{{ '<|system|>' + messages[0]['content'] + '\n' }}{% endif %}"
    "{% if tools %}{{ '<|tools|>' }}{% for tool in tools %}{{ tool | tojson }}{% endfor %}{{ '\n' }}{% endif %}"
    "{% for message in messages %}{% if message['role'] == 'user' %}{{ '<|user|>' + message['content'] + '\n' }}"
    "{% elif message['role'] == 'assistant' %}{{ '<|assistant|>' + message['content'] + '\n' }}"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def main(folder: Path, context: int, texts: Path) -> None:
    """Config, tokenizer and weights; `context` is the longest prompt plus answer in tokens."""
    torch.manual_seed(0)
    of_words = Tokenizer(models.BPE())
    of_words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    of_words.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=WORDS,
        special_tokens=[BEGIN, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    of_words.train([str(path) for path in sorted(texts.rglob("*.md"))], trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=of_words, bos_token=BEGIN, eos_token=END, pad_token=END, model_max_length=context
    )
    tokenizer.chat_template = _TEMPLATE
    tokenizer.save_pretrained(folder)
    config = LlamaConfig(
        vocab_size=of_words.get_vocab_size(),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=context,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
