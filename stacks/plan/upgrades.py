"""From the versions that run to those that are pinned: single steps, each of which leaves a set that goes together.

Pure. A step that leaves out a minor version, or that its publisher does not support, is a problem; so is a set of
changes that has no order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from floor.problems import Problem
from floor.releases import between, minor_of, numbers
from stacks.facts import upgrades
from stacks.facts.compatibility import Fact, holds, speaking
from stacks.facts.upgrades import Crossing, UpgradedPart
from stacks.facts.versions import Versions
from stacks.plan.conflicts import deciding_keys, facts
from stacks.site.model import SiteConfig


@dataclass(frozen=True, kw_only=True)
class Step:
    """One change of versions.yaml and one `pulumi up`."""

    parts: tuple[UpgradedPart, ...]
    """Several only where no order of single ones goes together."""
    changes: Mapping[str, tuple[str, str]]
    """Fact -> the version that runs and the one that follows; empty where it is new."""
    by_hand: tuple[Crossing, ...]
    """What an operator must do first."""

    @property
    def pins(self) -> list[str]:
        """Keys of versions.yaml that change."""
        decided = deciding_keys()
        return list(dict.fromkeys(decided[fact].removeprefix("versions.") for fact in self.changes))

    @property
    def way_back(self) -> list[str]:
        """How far each part goes back after this step."""
        return [_back(part, *self.changes[part.facts[0]]) for part in self.parts if part.facts[0] in self.changes]


# What `up` brings to machines alone: a cluster that exists has its own.
_OF_MACHINES = ("talos", "kubernetes", "kubelet", "nvidia_")


def steps_of(site: SiteConfig, before: Versions, after: Versions) -> tuple[list[Step], list[Problem]]:
    """`steps` of the parts that this site lets the program install."""
    runs, wanted = facts(before, site), facts(after, site)
    if site.cluster.machines is None:
        runs |= {fact: value for fact, value in wanted.items() if fact.startswith(_OF_MACHINES)}
    return steps(runs, wanted)


def steps_from(site: SiteConfig, running: Mapping[str, str], after: Versions) -> tuple[list[Step], list[Problem]]:
    """`steps` from what was read of the site's cluster: fact -> version.

    What the cluster does not state is not looked at. A cluster that the program did not make keeps its own machines,
    and every step is judged with what they run.
    """
    wanted = facts(after, site)
    if site.cluster.machines is None:
        wanted = {fact: value for fact, value in wanted.items() if not fact.startswith(_OF_MACHINES)}
        wanted |= {fact: value for fact, value in running.items() if fact.startswith(_OF_MACHINES)}
    of_pins = pinned(wanted)
    runs = {fact: value for fact, value in wanted.items() if fact not in of_pins}
    runs |= {fact: running[fact] for fact in of_pins if fact in running}
    return steps(runs, wanted)


def pinned(known: Mapping[str, Fact]) -> list[str]:
    """Of these facts, those that versions.yaml decides."""
    decided = deciding_keys()
    return [fact for fact in known if decided.get(fact, "").startswith("versions.")]


def steps(runs: Mapping[str, Fact], wanted: Mapping[str, Fact]) -> tuple[list[Step], list[Problem]]:
    """The steps in their order, or what is wrong with them.

    runs, wanted: facts of the site with the versions that run and with those that are pinned, as
    `stacks.plan.conflicts.facts` names them. A fact that is missing on either side is not looked at.
    """
    changed = [part for part in _parts(runs, wanted) if _changes([part], runs, wanted)]
    problems = [*_left_out(changed, runs, wanted), *_refused(runs, wanted)]
    if problems:
        return [], problems
    tolerated = {row.id for row, _ in speaking(runs)} | {row.id for row, _ in speaking(wanted)}
    order = _order(changed, dict(runs), wanted, tolerated)
    state, in_order = dict(runs), list[Step]()
    for group in order:
        changes = _changes(group, state, wanted)
        crossed = [row for row in _crossed(state, wanted) if row.verdict == "by_hand" and row.fact in changes]
        in_order.append(Step(parts=tuple(group), changes=changes, by_hand=tuple(crossed)))
        state |= {fact: then for fact, (_, then) in changes.items()}
    return in_order, []


def _parts(runs: Mapping[str, Fact], wanted: Mapping[str, Fact]) -> Sequence[UpgradedPart]:
    """Every part; API servers and kubelets are one where their minor version does not change."""
    parts = upgrades.load().parts
    minors = {numbers(str(facts.get(fact, "")))[:2] for facts in (runs, wanted) for fact in ("kubernetes", "kubelet")}
    if len(minors) > 1:
        return parts
    servers = next(part for part in parts if part.facts == ("kubernetes",))
    both = servers.model_copy(update={"part": "Kubernetes", "facts": ("kubernetes", "kubelet")})
    return [both if part is servers else part for part in parts if part.facts != ("kubelet",)]


def _order(
    parts: Sequence[UpgradedPart], state: dict[str, Fact], wanted: Mapping[str, Fact], tolerated: set[str]
) -> list[list[UpgradedPart]]:
    """Groups of parts, as small as they can be, after each of which no row speaks that did not before.

    All parts together lead to the wanted set, so there is always one.
    """
    if not parts:
        return []
    for size in range(1, len(parts) + 1):
        for group in combinations(parts, size):
            after = state | {fact: then for fact, (_, then) in _changes(group, state, wanted).items()}
            if any(row.id not in tolerated for row, _ in speaking(after)) or _kubelet_is_newer(after):
                continue
            rest = [part for part in parts if part not in group]
            return [list(group), *_order(rest, after, wanted, tolerated)]
    raise AssertionError("the wanted set goes together, so all parts at once do")


def _changes(
    parts: Sequence[UpgradedPart], runs: Mapping[str, Fact], wanted: Mapping[str, Fact]
) -> dict[str, tuple[str, str]]:
    """What of these parts differs, by fact."""
    pairs = {fact: (runs.get(fact), wanted.get(fact)) for part in parts for fact in part.facts}
    return {
        fact: (now, then)
        for fact, (now, then) in pairs.items()
        if isinstance(now, str) and isinstance(then, str) and now != then
    }


def _left_out(parts: Sequence[UpgradedPart], runs: Mapping[str, Fact], wanted: Mapping[str, Fact]) -> Iterator[Problem]:
    for part in parts:
        now, then = _changes([part], runs, wanted).get(part.facts[0], ("", ""))
        older = bool(now) and numbers(then) < numbers(now)
        if part.back == "none" and older:
            yield Problem(
                path=tuple(deciding_keys()[part.facts[0]].split(".")[1:]),
                what=f"{part.part}: there is no way back",
                got=f"{now} to {then}",
                allowed=f"{now} or later",
                fix=f"stay at {now}, and fix what failed with it forward (source: {part.source})",
            )
        elif part.back == "patch" and older and minor_of(then) != minor_of(now):
            restored = (
                ", or the cluster is restored from the snapshot before the upgrade: docs/runbooks/recover-etcd.md"
            )
            yield Problem(
                path=tuple(deciding_keys()[part.facts[0]].split(".")[1:]),
                what=f"{part.part}: there is no way back to an older minor version",
                got=f"{now} to {then}",
                allowed=f"a release of {minor_of(now)} or later",
                fix=f"stay at {minor_of(now)}; what failed with it is fixed forward{restored if part.snapshot else ''} "
                f"(source: {part.source})",
            )
        elif part.steps == "one_minor" and now and (skipped := between(now, then, part.releases)):
            yield Problem(
                path=tuple(deciding_keys()[part.facts[0]].split(".")[1:]),
                what=f"{part.part}: the step leaves out a minor version",
                got=f"{now} to {then}",
                allowed="one minor version at a time",
                fix=f"go to the newest {skipped} first, run `pulumi up`, and go on from there (source: {part.source})",
            )


def _refused(runs: Mapping[str, Fact], wanted: Mapping[str, Fact]) -> Iterator[Problem]:
    for row in _crossed(runs, wanted):
        if row.verdict == "refused":
            yield Problem(
                path=tuple(deciding_keys()[row.fact].split(".")[1:]),
                what=row.text,
                got=f"{runs[row.fact]} to {wanted[row.fact]}",
                fix=f"{row.fix} (stacks/facts/upgrades.yaml: {row.id}; source: {row.source})",
            )


def _crossed(runs: Mapping[str, Fact], wanted: Mapping[str, Fact]) -> Iterator[Crossing]:
    for row in upgrades.load().crossings:
        if holds(runs, row.fact, row.runs) and holds(wanted, row.fact, row.wanted):
            yield row


def _kubelet_is_newer(state: Mapping[str, Fact]) -> bool:
    kubelet, servers = state.get("kubelet"), state.get("kubernetes")
    return isinstance(kubelet, str) and isinstance(servers, str) and numbers(kubelet)[:2] > numbers(servers)[:2]


def _back(part: UpgradedPart, now: str, then: str) -> str:
    """The limit of going back to `now`, for people."""
    crossed = [row for row in upgrades.load().crossings if row.verdict == "refused" and row.fact in part.facts]
    for row in crossed:
        reached = {row.fact: then}
        if holds(reached, row.fact, row.runs) and holds({row.fact: now}, row.fact, row.wanted):
            return f"{part.part}: none: {row.text}"
    if part.back == "patch" and minor_of(now) != minor_of(then):
        beyond = f"; only the cluster's snapshot leads back to {now}" if part.snapshot else ""
        return f"{part.part}: none below {minor_of(then)}{beyond}"
    if part.back == "none":
        return f"{part.part}: none, not even to {now}"
    if part.back == "one_minor" and between(then, now, part.releases):
        return f"{part.part}: not as far as {now}"
    first = f"{part.back_first}; then " if part.back_first else ""
    return f"{part.part}: {first}set {now} again and run `pulumi up`"
