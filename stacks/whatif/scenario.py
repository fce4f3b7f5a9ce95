"""What is asked: changes of traffic, nodes and picking that the twin simulates beside the site as it is declared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from floor.counts import counted
from stacks.proof.demand import Load

# `lose_node` for the node whose failure takes most.
WORST = "worst"
# Seconds that a spike lasts by default.
SPIKE_S = 60.0
# By what `long_prompts` multiplies the 95th percentile of the prompts.
LONG_TAIL = 2.0


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Changes that happen together; without any, the site as it is declared."""

    spike: float | None = None
    """The load is so many times the declared one for `spike_s`, by new conversations."""
    spike_s: float = SPIKE_S
    lose_node: str | None = None
    """Name of a node with GPUs, or WORST."""
    lose_gpus: int | None = None
    """GPUs that each model loses for good, as whole replicas: as if all of them were its own."""
    prefix_hit: float | None = None
    """Share of prompt tokens that an earlier prompt had, instead of the declared one."""
    long_prompts: bool = False
    """The 95th percentile of the prompts is LONG_TAIL times the declared one; their median stays."""
    in_turn: bool = False
    """Replicas are taken in turn instead of by the endpoint picker."""
    scaling: bool = True
    """Whether replicas follow the load where the site has them do so; else all that it declares serve."""
    tier_shares: Mapping[str, float] = field(default_factory=dict)
    """Share of a model's requests by tier; tiers without one divide the rest by their tenants."""
    seed: int = 1

    @property
    def changes(self) -> bool:
        """Whether anything is different from what the site declares."""
        traffic = (self.spike, self.prefix_hit, self.lose_node, self.lose_gpus)
        return any(value is not None for value in traffic) or self.long_prompts or self.in_turn or not self.scaling

    @property
    def words(self) -> str:
        """The scenario as text: `20 times the load for 60 s, hgx-1 lost`."""
        parts = []
        if self.spike is not None:
            parts.append(f"{self.spike:g} times the load for {self.spike_s:g} s")
        if self.lose_node is not None:
            parts.append("the worst node is lost" if self.lose_node == WORST else f"{self.lose_node} is lost")
        if self.lose_gpus is not None:
            parts.append(f"each model loses {counted(self.lose_gpus, 'GPU')}")
        if self.prefix_hit is not None:
            parts.append(f"{100 * self.prefix_hit:g} % of the prompts are cached")
        if self.long_prompts:
            parts.append(f"p95 of the prompts is {LONG_TAIL:g} times as long")
        if self.in_turn:
            parts.append("replicas are taken in turn")
        if not self.scaling:
            parts.append("no replica goes or comes")
        return ", ".join(parts) or "as declared"

    def load(self, declared: Load) -> Load:
        """The declared load with the scenario's prompts; a spike is not in it."""
        prompt = declared.prompt_tokens
        if self.long_prompts:
            prompt = replace(prompt, p95=prompt.p95 * LONG_TAIL)
        hit = declared.prefix_hit if self.prefix_hit is None else self.prefix_hit
        return replace(declared, prompt_tokens=prompt, prefix_hit=hit)
