"""How many resources a site is, and what one tenant, key, model and node more add; by the program under mocks."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import generated_sites
from benchmarks.report import Result, Row, Table
from lab.errors import LabError
from lab.paths import CHECKOUT, Lab
from policy.model import Resource
from sitectl.offline import checkout

HELP = "resources of a site, and what one tenant, key, model and node more add"
NEEDS_LAB = False
_BASE = "site"


@dataclass(frozen=True, kw_only=True)
class Count:
    """Resources of the state by kind. Components come on top: they are names and parents, and ask no provider."""

    objects: int
    """What the API server has."""
    commands: int
    """What `up` runs, and a preview compares alone."""

    def beyond(self, other: Count) -> Count:
        """What this has and the other has not."""
        return Count(objects=self.objects - other.objects, commands=self.commands - other.commands)


PARAMETERS = ()


def run(lab: Lab) -> Result:  # noqa: ARG001
    """Raises LabError when a site is refused."""
    by_what = counts()
    return Result(
        benchmark="resource_counts",
        question="How many resources is a site, and how many more is each thing that it may have more of?",
        conditions={
            "site": "generated: 15 machines, 2 models, 4 tenants, 8 keys; the charts' objects, the CRD bundle left out"
        },
        tables=[Table(title="Resources", rows=[_row(what, count) for what, count in by_what.items()])],
        findings=[],
    )


def counts() -> dict[str, Count]:
    """Of a whole site, and of what each step adds to it. Raises LabError."""
    with tempfile.TemporaryDirectory() as folder:
        files = {name: _written(Path(folder), name, words) for name, words in _sites().items()}
        declared = checkout.declare(CHECKOUT, files)
    refused = [f"{name}: {site.error}" for name, site in declared.items() if site.error]
    if refused:
        raise LabError("a generated site is refused: " + "\n".join(refused), fix="correct resource_counts.py")
    totals = {name: _counted(site.resources) for name, site in declared.items()}
    base = totals.pop(_BASE)
    return {"a whole site": base, **{f"one {name} more": total.beyond(base) for name, total in totals.items()}}


def _sites() -> dict[str, dict[str, Any]]:
    base = generated_sites.site(1)
    sites = {name: copy.deepcopy(base) for name in (_BASE, "key", "tenant", "model", "node")}
    team, model = min(base["tenants"]), min(base["models"])
    sites["key"]["tenants"][team]["keys"]["one-more"] = {}
    sites["tenant"]["tenants"]["one-more"] = {"models": [model], "keys": {"key": {}}}
    sites["model"]["models"]["one-more"] = copy.deepcopy(base["models"][model])
    sites["node"]["cluster"]["machines"]["nodes"]["one-more"] = {"role": "hgx", "address": "10.1.0.200"}
    return sites


def _written(folder: Path, name: str, words: dict[str, Any]) -> Path:
    return generated_sites.write(folder, {**words, "name": name})


def _counted(resources: Sequence[Resource]) -> Count:
    kinds = [resource.type for resource in resources]
    return Count(
        objects=sum(kind.startswith("kubernetes:") and not kind.startswith("kubernetes:helm.sh/") for kind in kinds),
        commands=kinds.count("command:local:Command"),
    )


def _row(what: str, count: Count) -> Row:
    return {"what": what, "objects": count.objects, "commands": count.commands}
