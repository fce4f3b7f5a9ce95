"""A no-op preview of a whole site against `kubectl diff --server-side` of the same objects, in the same run.

The site is the lab's own, made larger by tenants: each is a Secret with a key of its own, and a rule of the gateway's
one policy. Nothing of it needs more pods than the lab has, so that 3,000 objects fit on a small machine.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from benchmarks.arithmetic import median
from benchmarks.costs import ROLES, Cost, Stopwatch, grows, middle
from benchmarks.generated_sites import with_tenants
from benchmarks.report import Result, Row, Table, note
from floor.command_line import Several
from lab import deploy, session
from lab.errors import LabError
from lab.paths import CHECKOUT, Lab
from stacks.site.loader import KEY

HELP = "a no-op preview of a site against `kubectl diff --server-side` of its objects, 100 to 3,000 of them"
SIZES = (100, 300, 1000, 3000)
_ROUNDS = 3
# How a site gets this large is not measured here (engine_cost does), so the state is written once.
_NO_CHECKPOINTS = {"PULUMI_EXPERIMENTAL": "true", "PULUMI_SKIP_CHECKPOINTS": "true"}
_SIGNATURE = "4dabf18193072939515e22adb298388d"
# Not objects of the API server: a provider, and charts whose objects the engine does not see either.
_NO_OBJECTS = ("pulumi:", "kubernetes:helm.sh/")


@dataclass(kw_only=True)
class Sized:
    """All measurements of one size."""

    objects: int
    """What both are asked about."""
    resources: int
    """What the engine has in addition: components, commands, charts, the provider."""
    differing: int = 0
    """Objects that `kubectl diff` would change."""
    previews: list[Cost] = field(default_factory=list)
    diffs: list[Cost] = field(default_factory=list)


PARAMETERS = (Several(["--site-objects"], type=int, default=SIZES, help="site_preview: sizes (default: 100 to 3000)"),)


def run(lab: Lab, *, site_objects: Sequence[int]) -> Result:
    """Makes the lab's site larger and larger, measures each size, and leaves the site as it was. Raises LabError."""
    deploy.deploy(lab)
    with tempfile.TemporaryDirectory(prefix="site-preview-") as folder:
        site = _Site(lab, Path(folder))
        try:
            sizes = [_measure(site, objects) for objects in sorted(site_objects)]
        finally:
            note("the lab's own site again")
            site.grow(0)
            deploy.deploy(lab)
    return Result(
        benchmark="site_preview",
        question="What does a no-op preview of a site cost beside `kubectl diff --server-side` of the same objects?",
        conditions={
            "site": "the lab's, with tenants of one key each up to the number of objects",
            "objects": "those of the engine's state that the API server has; what charts bring is asked of neither",
            "rounds": _ROUNDS,
            "cores_shared_by": "engine, language host, program, plugin, kubectl, API server, etcd, the lab's idle pods",
        },
        tables=[
            Table(title="CPU seconds of all processes", rows=[_row(size, "CPU") for size in sizes]),
            Table(title="Wall seconds", rows=[_row(size, "wall") for size in sizes]),
            Table(
                title="No-op preview: CPU seconds by process",
                rows=[roles_row(size.objects, middle(size.previews)) for size in sizes],
            ),
            Table(
                title="`kubectl diff`: CPU seconds by process",
                rows=[roles_row(size.objects, middle(size.diffs)) for size in sizes],
            ),
        ],
        findings=findings(sizes),
    )


def objects_of(exported: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The API server's objects in `pulumi stack export --show-secrets`, as they were declared."""
    return [
        _plain(resource["inputs"])
        for resource in exported["deployment"].get("resources", [])
        if resource.get("custom")
        and resource["type"].startswith("kubernetes:")
        and not resource["type"].startswith(_NO_OBJECTS)
    ]


def findings(sizes: Sequence[Sized]) -> list[str]:
    """Sentences of these sizes, the largest last."""
    last = sizes[-1]
    preview, diff = middle(last.previews).cpu_total_s, middle(last.diffs).cpu_total_s
    sentences = [
        f"{last.objects} objects: a no-op preview takes {preview:.1f} s of CPU, `kubectl diff --server-side` "
        f"{diff:.1f} s, a ratio of {preview / diff:.1f}; {1000 * preview / last.objects:.1f} and "
        f"{1000 * diff / last.objects:.1f} ms an object."
    ]
    counts = [size.objects for size in sizes]
    if len(set(counts)) > 1:
        previews = grows(counts, [middle(size.previews).cpu_total_s for size in sizes])
        diffs = grows(counts, [middle(size.diffs).cpu_total_s for size in sizes])
        sentences.append(
            f"From {counts[0]} to {counts[-1]} objects the preview grows with {previews}, the diff with {diffs}."
        )
    if any(size.differing for size in sizes):
        sentences.append(f"kubectl reports that {last.differing} of them differ, which the preview does not.")
    return sentences


def roles_row(objects: int, cost: Cost) -> Row:
    """What each process spent, as a row."""
    return {"objects": objects, **{role: round(cost.cpu_s[role], 2) for role in ROLES if role in cost.cpu_s}}


class _Site:
    """The lab's stack, run with an edited copy of its stack file."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self._environment = session.environment(lab)
        self._document: dict[str, Any] = yaml.safe_load(session.stack_file(lab).read_text())
        self._file = folder / "Pulumi.larger.yaml"
        self._manifest = folder / "objects.yaml"
        self._watch = Stopwatch(lab, folder)
        self._own = len(self._objects())

    def grow(self, objects: int) -> Sized:
        """Bring the site up with about as many objects; fewer than it has of its own is its own size."""
        words = with_tenants(self._document["config"][KEY], max(0, objects - self._own))
        document = {**self._document, "config": {**self._document["config"], KEY: words}}
        self._file.write_text(yaml.safe_dump(document, sort_keys=False))
        command = self._pulumi("up", "--yes", "--skip-preview", "--config-file", str(self._file))
        self._watch.timed(command, folder=CHECKOUT, environment={**self._environment, **_NO_CHECKPOINTS})
        exported = self._export()
        manifests = objects_of(exported)
        # Readable by its owner alone: the Secrets in it hold the lab's keys.
        self._manifest.touch(mode=0o600)
        self._manifest.write_text(yaml.safe_dump_all(manifests))
        return Sized(objects=len(manifests), resources=len(exported["deployment"]["resources"]) - len(manifests))

    def preview(self) -> Cost:
        command = self._pulumi("preview", "--expect-no-changes", "--config-file", str(self._file))
        return self._watch.timed(command, folder=CHECKOUT, environment=self._environment)

    def diff(self) -> Cost:
        # The objects are the plugin's, so kubectl must be allowed to take their fields. Status 1: something differs.
        command = ["kubectl", "diff", "--server-side", "--force-conflicts", "-f", str(self._manifest)]
        return self._watch.timed(command, folder=CHECKOUT, environment=self._environment, fine=(0, 1))

    def _objects(self) -> list[dict[str, Any]]:
        return objects_of(self._export())

    def _export(self) -> dict[str, Any]:
        done = subprocess.run(
            self._pulumi("stack", "export", "--show-secrets"),
            cwd=CHECKOUT,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise LabError(f"the state cannot be exported: {done.stderr.strip()}", fix="python -m lab deploy")
        exported: dict[str, Any] = json.loads(done.stdout)
        return exported

    def _pulumi(self, *arguments: str) -> list[str]:
        return ["pulumi", *arguments, "--stack", session.STACK, "--non-interactive"]


def _measure(site: _Site, objects: int) -> Sized:
    note(f"{objects} objects: up")
    size = site.grow(objects)
    for turn in range(1, _ROUNDS + 1):
        note(f"{size.objects} objects: no-op preview and kubectl diff, round {turn} of {_ROUNDS}")
        size.previews.append(site.preview())
        size.diffs.append(site.diff())
    costs = {"preview": middle(size.previews), "kubectl diff": middle(size.diffs)}
    note(
        f"{size.objects} objects: " + ", ".join(f"{what} {cost.cpu_total_s:.1f} s CPU" for what, cost in costs.items())
    )
    size.differing = sum(line.startswith("diff -") for line in size.diffs[-1].output)
    return size


def _plain(value: Any) -> Any:
    """A value of the state without the engine's marks; a secret is JSON in its `plaintext`."""
    if isinstance(value, dict):
        if _SIGNATURE in value:
            return _plain(json.loads(value["plaintext"]))
        return {_dashed(key): _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


def _dashed(key: str) -> str:
    """Keywords of a schema, which the engine's names cannot spell."""
    return key.replace("_", "-") if key.startswith("x_kubernetes_") else key


def _row(size: Sized, clock: str) -> Row:
    preview = (
        middle(size.previews).cpu_total_s if clock == "CPU" else median(measured.wall_s for measured in size.previews)
    )
    diff = middle(size.diffs).cpu_total_s if clock == "CPU" else median(measured.wall_s for measured in size.diffs)
    return {
        "objects": size.objects,
        "other resources": size.resources,
        "no-op preview": round(preview, 2),
        "kubectl diff": round(diff, 2),
        "preview / diff": round(preview / diff, 2),
        "preview, ms an object": round(1000 * preview / size.objects, 2),
        "diff, ms an object": round(1000 * diff / size.objects, 2),
        "differ by kubectl": size.differing,
    }
