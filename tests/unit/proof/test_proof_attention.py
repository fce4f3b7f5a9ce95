"""Attention of one step: what layers do that keep a state instead of a cache, and those that see a part alone."""

from __future__ import annotations

import math

import pytest

from stacks.facts import catalogue
from stacks.facts.catalogue import DeltaNet, SlidingAttention
from stacks.proof.attention import Attention, state_of

pytestmark = pytest.mark.row("opening 1")


def test_states_cost_a_prompt_the_same_however_long_it_is() -> None:
    """Of each element of a state, a multiplication and an addition for the update, the gate and the answer."""
    model = catalogue.load("qwen3-next-80b-a3b")
    linear = next(mixer for mixer in model.mixers.values() if isinstance(mixer, DeltaNet))
    state = linear.count * linear.value_heads * linear.key_size * linear.value_size
    for tensor in (1, 4):
        attention = Attention(model, tensor=tensor, dtype="fp8")
        assert attention.prompt(10.0, 0.0) == 10 * 6 * state / tensor
        # Read once and written for each verified token, in 2 bytes.
        assert attention.decode(3.0, 0.0, 1.0) == (3 * 2 * state / tensor * 2, 0.0, 0.0)
        assert attention.decode(3.0, 0.0, 4.0)[0] == 3 * 2 * state / tensor * 5


@pytest.mark.parametrize("name", ["qwen3.5-122b-a10b", "nemotron-3-nano"])
def test_states_whose_config_names_32_bits_are_read_and_written_in_4_bytes(name: str) -> None:
    model = catalogue.load(name)
    state = sum(state_of(mixer, tensor=1) for mixer in model.mixers.values())
    assert state > 0
    assert Attention(model, tensor=1, dtype="fp8").decode(3.0, 0.0, 1.0)[0] == 3 * 4 * state * 2


def test_beyond_a_window_more_context_costs_the_other_layers_alone() -> None:
    model = catalogue.load("gemma-3-27b")
    window = next(mixer.window for mixer in model.mixers.values() if isinstance(mixer, SlidingAttention))
    attention = Attention(model, tensor=1, dtype="bf16")
    within, at, beyond = (attention.prompt(1.0, reach) for reach in (0, window, 2 * window))
    assert within == 0
    full = sum(mixer.count for mixer in model.mixers.values() if not isinstance(mixer, SlidingAttention))
    layers = sum(mixer.count for mixer in model.mixers.values())
    assert math.isclose((beyond - at) / at, full / layers)
