"""What a site's models do after a lost node until the replicas that find room elsewhere serve again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from floor.counts import listed
from stacks.plan.block import keeping, used
from stacks.plan.placement import Loss
from stacks.proof.ends import Verdict
from stacks.proof.figures import shown
from stacks.proof.proof import Proof

_MOST_LINES = 5
_WORST_FIRST: tuple[Verdict, ...] = ("fails", "uncertain", "holds")


@dataclass(frozen=True, kw_only=True)
class Interim:
    """One model, after the loss of any of the nodes."""

    model: str
    nodes: tuple[str, ...]
    replicas: int
    """That serve meanwhile."""
    of: int
    start_s: float
    """From a scheduled Pod to its first answer, of all that start again at once."""
    left: Proof | None
    """The declared load on the replicas that serve meanwhile; None where none does, or none is declared."""

    @property
    def verdict(self) -> Verdict:
        """Whether the model keeps its targets meanwhile; without a load, whether it is served."""
        if not self.replicas:
            return "fails"
        return self.left.verdict if self.left else "holds"

    @property
    def as_computed(self) -> Verdict:
        """The same by the computed figures alone, without their band."""
        if self.left is None or self.verdict != "uncertain":
            return self.verdict
        return "holds" if self.left.ends.nominal.keeps else "fails"

    @property
    def utilisation_percent(self) -> float | None:
        """The load over what is carried meanwhile; None where that is not known, or does not keep up."""
        figure = self.left.serving.get("utilisation") if self.left else None
        return figure.value if figure else None

    @property
    def text(self) -> str:
        """`glm-5-1 has 1 of 2 replicas during a start of 1,380 s, 102 % used (61.5 to 141): MISSES ITS TARGETS`."""
        when = f"during a start of {shown(self.start_s)} s"
        if not self.replicas:
            return f"{self.model} HAS NO REPLICA {when}"
        text = f"{self.model} has {self.replicas} of {self.of} replicas {when}"
        if self.left is None:
            return text
        kept = keeping(self.left, self.verdict)
        if self.as_computed == "fails":
            kept = keeping(self.left, "fails").upper()
            kept += ", except at the fast end" if self.verdict == "uncertain" else ""
        return f"{text}, {used(self.left)}: {kept}"


def interims(losses: Iterable[Loss], proofs: Mapping[str, Proof]) -> list[Interim]:
    """Each way in which a model is short of replicas for a while, with the nodes whose loss does that; worst first.

    Replicas that find no room are short for longer; they are in the loss itself.
    """
    alike: dict[tuple[str, int, int], list[str]] = {}
    for loss in losses:
        missing = dict(loss.missing)
        for model, out in loss.out:
            if starting := out - missing.get(model, 0):
                alike.setdefault((model, out, starting), []).append(loss.node)
    meanwhile = [
        Interim(
            model=model,
            nodes=tuple(nodes),
            replicas=(serving := proofs[model].case.replicas - out),
            of=proofs[model].case.replicas,
            start_s=proofs[model].start_s(starting),
            left=_left(proofs[model], serving),
        )
        for (model, out, starting), nodes in alike.items()
    ]
    return sorted(meanwhile, key=_harm)


def described(meanwhile: Sequence[Interim]) -> Iterator[str]:
    """A line each for people, and how many more there are."""
    for interim in meanwhile[:_MOST_LINES]:
        yield f"{listed(interim.nodes)}: {interim.text}"
    if rest := len(meanwhile[_MOST_LINES:]):
        yield f"{rest:,} more: no worse"


def _left(proof: Proof, replicas: int) -> Proof | None:
    if not replicas or proof.order.load is None:
        return None
    return Proof(proof.case.again(replicas=replicas))


def _harm(interim: Interim) -> tuple[bool, int, bool, float, str]:
    served, verdict = interim.replicas > 0, _WORST_FIRST.index(interim.verdict)
    return served, verdict, interim.as_computed == "holds", -interim.start_s, interim.model
