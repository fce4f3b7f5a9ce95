"""What `pulumi up` and a no-op preview cost for 100 to 3,000 objects, who spends it, and how it grows."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from benchmarks.arithmetic import median
from benchmarks.costs import Cost, Stopwatch, grows, middle
from benchmarks.report import Cell, Result, Row, Table, note
from floor.command_line import Several
from lab import deploy, session
from lab.errors import LabError
from lab.paths import Lab
from lab.site import up

HELP = "cost of `up` and of a no-op preview against the number of objects, by process"
PROGRAM = Path(__file__).parent / "programs" / "config_maps"
SIZES = (100, 300, 1000, 3000)
_STACK = "cost"
_ROUNDS = 3
# The engine then writes the state once, when it ends: what is left is the cost of everything but checkpoints.
NO_CHECKPOINTS = {"PULUMI_EXPERIMENTAL": "true", "PULUMI_SKIP_CHECKPOINTS": "true"}
_ROLES = ("engine", "Kubernetes plugin", "program", "language host", "API server", "etcd")


@dataclass(kw_only=True)
class Sized:
    """All measurements with one number of objects."""

    objects: int
    up: Cost
    up_without_checkpoints: Cost
    previews: list[Cost] = field(default_factory=list)
    diffs: list[Cost] = field(default_factory=list)
    state_bytes: int = 0


PARAMETERS = (Several(["--objects"], type=int, default=SIZES, help="engine_cost: numbers of objects to measure"),)


def run(lab: Lab, *, objects: Sequence[int]) -> Result:
    """Raises LabError when a command fails."""
    up.bring_up(lab)
    # The cluster that is measured on is the platform's own.
    deploy.deploy(lab)
    sizes = [_measure(lab, count) for count in sorted(objects)]
    return Result(
        benchmark="engine_cost",
        question="What do `pulumi up` and a no-op preview cost, who spends it, and how does it grow with the objects?",
        conditions={
            "objects": "ConfigMaps of about 300 bytes in one namespace, one namespace and one provider beside them",
            "cores_shared_by": "engine, language host, program, plugin, API server, etcd, and the lab's idle pods",
            "plugin": ", ".join(str(choice.kind) for choice in session.plugins(lab) if choice.name == "kubernetes"),
            "preview_rounds": _ROUNDS,
        },
        tables=[
            Table(title="Wall time, seconds", rows=[_wall_row(size) for size in sizes]),
            Table(title="`up`: CPU seconds by process", rows=[_cpu_row(size, size.up) for size in sizes]),
            Table(
                title="`up` without checkpoints: CPU seconds by process",
                rows=[_cpu_row(size, size.up_without_checkpoints) for size in sizes],
            ),
            Table(
                title="No-op preview: CPU seconds by process",
                rows=[_cpu_row(size, middle(size.previews)) for size in sizes],
            ),
        ],
        findings=_findings(sizes) if len(sizes) > 1 else [],
    )


def _measure(lab: Lab, objects: int) -> Sized:
    note(f"{objects} objects: up without checkpoints")
    with Stack(lab, objects) as stack:
        bare = stack.pulumi("up", "--yes", "--skip-preview", extra=NO_CHECKPOINTS)
    note(f"{objects} objects: up")
    with Stack(lab, objects) as stack:
        size = Sized(objects=objects, up=stack.pulumi("up", "--yes", "--skip-preview"), up_without_checkpoints=bare)
        size.state_bytes = stack.state_bytes
        for turn in range(1, _ROUNDS + 1):
            note(f"{objects} objects: no-op preview and kubectl diff, round {turn} of {_ROUNDS}")
            size.previews.append(stack.pulumi("preview", "--expect-no-changes"))
            size.diffs.append(stack.kubectl_diff())
    return size


class Stack:
    """A stack of its own: project, state and namespace, all gone afterwards."""

    def __init__(self, lab: Lab, objects: int) -> None:
        self._lab = lab
        self._objects = objects
        self._space = f"engine-cost-{objects}"
        self._folder = Path(tempfile.mkdtemp(prefix="engine-cost-"))
        self._project = self._folder / "project"
        self._state = self._folder / "state"
        self._manifest = self._folder / "objects.yaml"
        self._environment = {
            **session.environment(lab),
            "PULUMI_BACKEND_URL": f"file://{self._state}",
            "PULUMI_STACK": _STACK,
            "PULUMI_SKIP_UPDATE_CHECK": "1",
        }
        self._watch = Stopwatch(lab, self._folder)

    def __enter__(self) -> Stack:
        self._state.mkdir()
        shutil.copytree(PROGRAM, self._project)
        self._manifest.write_text("---\n".join(yaml.safe_dump(body) for body in _bodies(self._space, self._objects)))
        self._call("pulumi", "stack", "init", _STACK)
        settings = {"objects": self._objects, "namespace": self._space, "kubeconfig": str(self._lab.kubeconfig)}
        for key, value in settings.items():
            self._call("pulumi", "config", "set", key, str(value))
        return self

    def __exit__(self, *_: object) -> None:
        self._call("kubectl", "delete", "namespace", self._space, "--ignore-not-found", "--timeout=10m")
        shutil.rmtree(self._folder)

    @property
    def state_bytes(self) -> int:
        return (self._state / ".pulumi" / "stacks" / "engine-cost" / f"{_STACK}.json").stat().st_size

    def pulumi(self, *arguments: str, extra: Mapping[str, str] | None = None) -> Cost:
        """Run one pulumi command and return its cost."""
        environment = {**self._environment, **(extra or {})}
        command = ["pulumi", *arguments, "--non-interactive"]
        return self._watch.timed(command, folder=self._project, environment=environment)

    def kubectl_diff(self) -> Cost:
        """The same question to the API server by kubectl: what would applying these objects change?"""
        # The objects are the plugin's, so kubectl must be allowed to take their fields.
        command = ["kubectl", "diff", "--server-side", "--force-conflicts", "-f", str(self._manifest)]
        return self._watch.timed(command, folder=self._project, environment=self._environment)

    def _call(self, *command: str) -> None:
        done = subprocess.run(
            command, cwd=self._project, env=self._environment, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise LabError(
                f"`{' '.join(command)}` ended with {done.returncode}: {done.stderr.strip()}", fix="python -m lab status"
            )


def _bodies(space: str, objects: int) -> list[dict[str, object]]:
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": f"object-{number:04}",
                "namespace": space,
                "labels": {"app.kubernetes.io/part-of": "engine-cost"},
            },
            "data": {"number": str(number), "text": "x" * 200},
        }
        for number in range(objects)
    ]


def _wall_row(size: Sized) -> Row:
    preview, diff = median(cost.wall_s for cost in size.previews), median(cost.wall_s for cost in size.diffs)
    return {
        "objects": size.objects,
        "up": round(size.up.wall_s, 2),
        "up without checkpoints": round(size.up_without_checkpoints.wall_s, 2),
        "no-op preview": round(preview, 2),
        "kubectl diff": round(diff, 2),
        "preview / diff": round(preview / diff, 2),
        "state, MB": round(size.state_bytes / 1e6, 2),
        "engine writes in up, MB": round(size.up.written / 1e6, 1),
    }


def _cpu_row(size: Sized, cost: Cost) -> Row:
    row: dict[str, Cell] = {"objects": size.objects}
    row |= {role: round(cost.cpu_s.get(role, 0), 2) for role in _ROLES}
    return {**row, "all": round(cost.cpu_total_s, 2), "ms an object": round(1000 * cost.cpu_total_s / size.objects, 2)}


def _findings(sizes: Sequence[Sized]) -> list[str]:
    counts = [size.objects for size in sizes]
    last = sizes[-1]
    checkpoints = [size.up.cpu_total_s - size.up_without_checkpoints.cpu_total_s for size in sizes]
    share = checkpoints[-1] / last.up.cpu_total_s
    largest = max(last.up_without_checkpoints.cpu_s.items(), key=lambda item: item[1])
    preview, diff = middle(last.previews), middle(last.diffs)
    return [
        f"CPU time of `up` grows with {grows(counts, [size.up.cpu_total_s for size in sizes])}, "
        f"of `up` without checkpoints with "
        f"{grows(counts, [size.up_without_checkpoints.cpu_total_s for size in sizes])}, of a no-op preview with "
        f"{grows(counts, [middle(size.previews).cpu_total_s for size in sizes])}.",
        f"At {last.objects} objects the engine's checkpoints take {100 * share:.0f} % of the CPU time of `up`; the "
        f"engine wrote {last.up.written / 1e6:.0f} MB to keep a state of {last.state_bytes / 1e6:.1f} MB.",
        f"Without checkpoints the largest part is {largest[0]}: {1000 * largest[1] / last.objects:.1f} ms of CPU an "
        f"object, of {1000 * last.up_without_checkpoints.cpu_total_s / last.objects:.1f} ms in all.",
        f"A no-op preview of {last.objects} objects takes {preview.cpu_total_s:.1f} s of CPU, `kubectl diff "
        f"--server-side` of the same objects {diff.cpu_total_s:.1f} s.",
    ]
