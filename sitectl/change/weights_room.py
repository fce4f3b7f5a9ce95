"""A change of the commit that a model serves, in a volume with room for one: the Job that brings it may find none.

What a site's servers read now is in the engine's preview alone: the program itself knows no earlier commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from floor.problems import Problem
from policy.model import Resource
from policy.pods import containers
from sitectl.change.changes import Change
from sitectl.change.verdicts.model import model_of
from stacks.plan.site_plan import SitePlan

_KEY = ("storage", "weights", "revisions")


def problems(plan: SitePlan, changes: Iterable[Change]) -> Iterator[Problem]:
    """A warning for each model whose new commit is brought beside the served one; none where there is room for both."""
    weights = plan.site.storage.weights
    # A person fills the volume of the source `volume`, and sees what fits.
    if weights.revisions > 1 or weights.source == "volume":
        return
    origin = plan.origins.get(".".join(_KEY))
    for change in changes:
        if change.kind not in ("Deployment", "LeaderWorkerSet") or change.op not in ("update", "replace"):
            continue
        before, after = (_read(change, body) for body in (change.before, change.after))
        gone, new = sorted(before - after), sorted(after - before)
        if gone and new:
            yield Problem(
                path=_KEY,
                what=f"is room for one commit of {model_of(change)}, and {_named(new)} comes beside {_named(gone)}, "
                "which its servers read until then: the Job fails for lack of room unless the volume has more",
                got=str(weights.revisions),
                allowed="2 or more for a change of commit",
                fix="write revisions: 2, by which the volume grows where its class allows that; or serve the new "
                "commit as a model of another name",
            ).at(origin.line if origin else None)


def _read(change: Change, body: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Repository and commit of each revision that the pods check before they start."""
    pods = containers(Resource(type=change.type, name=change.name, body=body))
    flags = [[str(word).partition("=")[::2] for word in pod.get("args") or ()] for pod in pods]
    named = [(words["--repository"], words["--revision"]) for words in map(dict, flags) if "--revision" in words]
    # Of all adapters in one container.
    adapters = [value.rpartition("@")[::2] for words in flags for flag, value in words if flag == "--each"]
    return {(str(repository), str(revision)) for repository, revision in (*named, *adapters)}


def _named(revisions: list[tuple[str, str]]) -> str:
    return " and ".join(f"{repository} at {revision[:8]}" for repository, revision in revisions)
