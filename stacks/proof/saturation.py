"""The most that one scheduler gives when requests never run out: steps packed with prompt and answer tokens.

Every slot is taken. A step gives each answering request a token, and what is left of its budget to prompts, in the
ratio that the requests themselves have. A request's stay is its answer's steps and those of its prompt; of m requests
that end in a step, m x stay run (Little's law), which gives m. Steps that carry a chunk of a prompt and steps that
carry none take different times; both are asked of the roofline.
"""

from __future__ import annotations

from dataclasses import dataclass

from stacks.proof.demand import Load
from stacks.proof.roofline import Roofline


@dataclass(frozen=True, kw_only=True)
class Mix:
    """Requests that are alike, in tokens."""

    prompt: float
    """Prompt tokens that are not in a cache."""
    answer: float
    """Answer tokens, the first one included."""
    cached: float = 0.0
    """Prompt tokens that are in the cache already."""
    reach: float | None = None
    """Tokens that one prompt token attends to; without it, as of prompts that are all alike."""

    @property
    def prompt_reach(self) -> float:
        """Tokens that one prompt token attends to on average: the cached ones and half of its own."""
        return self.cached + self.prompt / 2 if self.reach is None else self.reach

    @property
    def context(self) -> float:
        """Tokens that an answering request has on average."""
        return self.cached + self.prompt + self.answer / 2

    @classmethod
    def of(cls, load: Load) -> Mix:
        """The mean request of a load; of long prompts each token attends to more, so the reach is the mean by token."""
        parts = load.prompt_tokens.strata
        fresh = 1 - load.prefix_hit
        cached = load.prompt_tokens.mean * load.prefix_hit
        longer = sum(part.share * part.tokens**2 for part in parts) / load.prompt_tokens.mean
        reach = longer * (load.prefix_hit + fresh / 2)
        prompt = max(1.0, load.prompt_tokens.mean * fresh)
        return cls(prompt=prompt, answer=load.answer_tokens.mean, cached=cached, reach=reach)


@dataclass(frozen=True, kw_only=True)
class Saturation:
    """One scheduler under as many requests as it can take."""

    requests_per_s: float
    step_s: float
    """Mean step."""
    answering: float
    """Requests that get a token in a step, on average."""
    prompt_tokens: float
    """Prompt tokens of a step, on average."""
    answer: float
    """Answer tokens of a request."""

    @property
    def answer_tokens_per_s(self) -> float:
        """Answer tokens per second of the scheduler."""
        return self.requests_per_s * self.answer


def saturation(
    roofline: Roofline,
    mix: Mix,
    *,
    slots: float,
    batched_tokens: int,
    stages: int = 1,
    tokens_per_step: float = 1.0,
    width: int = 1,
) -> Saturation:
    """Throughput of one scheduler whose slots are all taken.

    slots: requests that it runs at once, by memory and by its setting. batched_tokens: tokens of one step. stages:
    pipeline stages, each with its own batch under way; a step is the time through all of them. tokens_per_step: that a
    step gives an answer. width: of `batched_tokens`, what an answering request takes.
    """
    slots = max(1.0, slots / stages)
    # A prompt's last chunk gives the first token.
    rest = max(0.0, mix.answer - 1) / tokens_per_step
    ended = _ended(mix, rest, slots, batched_tokens, width)
    answering, prompts = ended * rest, ended * mix.prompt
    chunk = min(mix.prompt, max(1.0, batched_tokens - answering * width))
    mixed = min(1.0, prompts / chunk)
    # First tokens are sampled too.
    with_prompt = roofline.step_s(
        prefill=prompts / mixed, reach=mix.prompt_reach, decodes=answering, context=mix.context
    )
    plain = roofline.step_s(decodes=answering, context=mix.context) if mixed < 1 else 0.0
    step = mixed * with_prompt + (1 - mixed) * plain
    return Saturation(
        requests_per_s=ended / step * stages,
        step_s=step,
        answering=answering,
        prompt_tokens=prompts,
        answer=mix.answer,
    )


def _ended(mix: Mix, rest: float, slots: float, batched_tokens: int, width: int) -> float:
    """Requests that end in a step: what the slots allow, and no more than the step's tokens."""
    most = batched_tokens / (mix.prompt + rest * width)
    # The more answers ride in a step, the longer a prompt takes, so this is a fixed point; it rises to its end.
    low, high = 0.0, most
    for _ in range(40):
        middle = (low + high) / 2
        left = max(1.0, batched_tokens - middle * rest * width)
        stay = rest + max(1.0, mix.prompt / left)
        low, high = (middle, high) if middle * stay <= slots else (low, middle)
    return max(low, 1e-9)
