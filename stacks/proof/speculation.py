"""Speculative decoding: a draft proposes tokens, and one step of the model verifies all of them.

Each of k drafted tokens is accepted with the same probability a, independently, until the first that is not; the step
itself always gives one token. So it gives (1 - a^(k+1)) / (1 - a) tokens on average (Leviathan, Kalman and Matias 2023,
Fast Inference from Transformers via Speculative Decoding, equation 1). What it costs is in `drafts`, `cache`, `memory`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from typing import Literal, get_args

from stacks.facts.catalogue import CatalogueModel
from stacks.proof.weights import draft_kinds

Method = Literal["ngram", "mtp", "draft"]
METHODS: tuple[Method, ...] = get_args(Method)


def expected_tokens(acceptance: float, drafted: int) -> float:
    """Tokens of a step that verifies so many drafted ones; a sum instead of its closed form, which ends at a = 1."""
    return float(sum(acceptance**place for place in range(drafted + 1)))


# Up to so many tokens each step is drawn by itself; of more, half of the steps at once.
_DRAWN_ONE_BY_ONE = 64


@dataclass(frozen=True, kw_only=True)
class Speculation:
    """What drafts, how much, and how well."""

    method: Method
    """ngram: earlier tokens of the same request. mtp: layers of the checkpoint itself. draft: another model."""
    tokens: int
    """Drafted tokens that a step verifies, k (num_speculative_tokens)."""
    acceptance: float
    """Probability that a drafted token is accepted if those before it are; 0 to 1, as the site measured it."""
    draft: CatalogueModel | None = None
    """The draft model of method draft."""

    @property
    def per_step(self) -> float:
        """Tokens that a request gets from a step."""
        return expected_tokens(self.acceptance, self.tokens)

    @property
    def variance(self) -> float:
        """Of the tokens that a request gets from a step: of n tokens, more than j come with the probability a^j."""
        second = sum((2 * place + 1) * self.acceptance**place for place in range(self.tokens + 1))
        return float(second - self.per_step**2)

    def steps_of(self, tokens: int, random: Random) -> int:
        """Steps that give so many tokens of one answer, by chance; the last one may have given more."""
        steps = 0
        while tokens > _DRAWN_ONE_BY_ONE:
            # The sum of many steps is normal.
            many = max(1, round(tokens / self.per_step / 2))
            given = random.gauss(many * self.per_step, math.sqrt(many * self.variance))
            steps, tokens = steps + many, tokens - max(many, round(given))
        while tokens > 0:
            steps, tokens = steps + 1, tokens - self._drawn(random)
        return steps

    def _drawn(self, random: Random) -> int:
        """Tokens of one step."""
        if self.acceptance in (0.0, 1.0):
            return 1 + self.tokens * round(self.acceptance)
        # 1 - random is above 0.
        accepted = math.log(1 - random.random()) / math.log(self.acceptance)
        return 1 + min(self.tokens, int(accepted))

    @property
    def width(self) -> int:
        """Tokens of a running request that a step computes: its last one, and those drafted behind it."""
        return self.tokens + 1

    @property
    def budgeted(self) -> int:
        """What they take of max-num-batched-tokens.

        A draft model's input keeps one token more (vLLM config/speculative.py, max_num_new_slots_for_drafting).
        """
        return self.width + (1 if self.method == "draft" else 0)

    @property
    def lookahead(self) -> int:
        """Places in the cache beyond a request's own tokens.

        Those of the drafted tokens, and of models that draft, as many for the next ones (vLLM
        v1/core/sched/scheduler.py, num_lookahead_tokens).
        """
        return self.tokens * (1 if self.method == "ngram" else 2)


@dataclass(frozen=True, kw_only=True)
class Undraftable:
    """Why nothing can be drafted for a model in that way."""

    key: Literal["method", "tokens", "catalogue"]
    """The part that is to blame."""
    why: str


def why_unsuited(model: CatalogueModel, speculation: Speculation) -> Undraftable | None:
    """The first reason why vLLM would refuse it for this model, or would not do what is computed here.

    Source: vLLM config/speculative.py (verify_equal_vocab_size_if_draft_model, n_predict, trust_remote_code).
    """
    if model.task != "generate":
        return Undraftable(key="method", why=f"{model.repository} writes no tokens: its task is {model.task}")
    layers = model.draft_layers
    if speculation.method == "mtp":
        if not layers:
            why = f"the catalogue entry of {model.repository} names no draft_layers, so no layer of it can draft"
            return Undraftable(key="method", why=why)
        if speculation.tokens > layers and speculation.tokens % layers:
            why = f"{speculation.tokens} is no multiple of the {layers} draft layers of {model.repository}"
            return Undraftable(key="tokens", why=why)
    if draft := speculation.draft:
        if draft.task != "generate":
            return Undraftable(key="catalogue", why=f"{draft.repository} writes no tokens: its task is {draft.task}")
        if draft.vocabulary != model.vocabulary:
            why = (
                f"the vocabulary of {draft.repository} has {draft.vocabulary:,} tokens, and that of "
                f"{model.repository} {model.vocabulary:,}"
            )
            return Undraftable(key="catalogue", why=why)
        if draft.remote_code and not model.remote_code:
            why = f"{draft.repository} needs code of its repository, which {model.repository} does not run"
            return Undraftable(key="catalogue", why=why)
    return None


def drafter(model: CatalogueModel, speculation: Speculation | None, layers: int | None = None) -> CatalogueModel | None:
    """The model that drafts for `model`; None where none does.

    Of mtp: `layers` of its draft layers, default all, between the embeddings that they share with the model.
    """
    if speculation is None or speculation.method == "ngram":
        return None
    if speculation.method == "draft":
        return speculation.draft
    if not model.draft_layers:
        return None
    mixer, feed_forward = draft_kinds(model)
    count = {"count": layers or model.draft_layers}
    return model.model_copy(
        update={
            "mixers": {"draft": mixer.model_copy(update=count)},
            "feed_forward": {"draft": feed_forward.model_copy(update=count)},
            "draft_layers": 0,
            "vision_parameters": 0.0,
            "vision_tower": None,
        }
    )
