"""What it costs to validate, prove and render many sites at once, as CI does of every pull request."""

from __future__ import annotations

import os
import resource
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import generated_sites
from benchmarks.arithmetic import growth_exponent
from benchmarks.report import Cell, Result, Row, Table, note
from floor.command_line import Several
from lab.errors import LabError
from lab.paths import CHECKOUT, Lab
from sitectl.offline import checkout, manifests_folder, over_cores, proofs
from stacks.plan.site_plan import plan_file

HELP = "processor time of validate, proof and render of many generated sites"
NEEDS_LAB = False
SIZES = (25, 100)
_OTHERS = "this benchmark keeps them busy, the rest is other work"
PHASES = ("validate", "proof", "render")


@dataclass(kw_only=True)
class Walk:
    """One walk over some sites: what was in them, and seconds by phase."""

    sites: int
    models: int = 0
    keys: int = 0
    resources: int = 0
    cpu_s: dict[str, float] = field(default_factory=dict)
    wall_s: dict[str, float] = field(default_factory=dict)

    @property
    def cpu_total_s(self) -> float:
        return sum(self.cpu_s.values())


@dataclass(frozen=True, kw_only=True)
class Proven:
    """What was in one site, and seconds by phase."""

    models: int
    keys: int
    cpu_s: dict[str, float]


PARAMETERS = (Several(["--sites"], type=int, default=SIZES, help="many_sites: numbers of sites (default: 25 100)"),)


def run(lab: Lab, *, sites: Sequence[int]) -> Result:  # noqa: ARG001
    """Validate, prove and render generated sites with what the commands of sitectl call; the lab is not asked."""
    walks = []
    for count in sorted(sites):
        with tempfile.TemporaryDirectory() as folder:
            walks.append(walk(Path(folder), count))
    load = os.getloadavg()[0]
    return Result(
        benchmark="many_sites",
        question="How long does CI take to show whether every site is valid, what it holds and what it declares?",
        conditions={
            "sites": "generated: 1 to 5 models with load and targets, 1 to 8 tenants, every second one out of machines",
            "clock": "processor time of all processes that it starts, one for each core; wall time beside it",
            "load_average_after": f"{load:.1f} on {os.cpu_count()} cores; {_OTHERS}",
        },
        tables=[
            Table(title="What was walked over", rows=[_counts(walked) for walked in walks]),
            Table(title="Milliseconds a site", rows=[_times(walked) for walked in walks]),
        ],
        findings=findings(walks),
    )


def walk(folder: Path, count: int) -> Walk:
    """Write `count` sites and take each phase over all of them. Raises LabError for a site that is refused."""
    files = {path.name.split(".")[1]: path for path in _write(folder, count)}
    walked = Walk(sites=count)
    began = time.monotonic()
    note(f"{count} sites: validate and proof")
    for proven in over_cores.for_each(files, _prove).values():
        walked.models += proven.models
        walked.keys += proven.keys
        for phase, seconds in proven.cpu_s.items():
            walked.cpu_s[phase] = walked.cpu_s.get(phase, 0.0) + seconds
    walked.wall_s["validate and proof"] = time.monotonic() - began
    note(f"{count} sites: render")
    cpu, began = _cpu_s(), time.monotonic()
    declared = _render(files, folder / "rendered")
    walked.cpu_s["render"], walked.wall_s["render"] = _cpu_s() - cpu, time.monotonic() - began
    refused = [f"{name}: {site.error}" for name, site in declared.items() if site.error]
    if refused:
        raise LabError("a generated site is refused: " + "\n".join(refused), fix="correct generated_sites.py")
    walked.resources = sum(len(site.resources) for site in declared.values())
    return walked


def findings(walks: Sequence[Walk]) -> list[str]:
    """Sentences of these walks, the largest last."""
    last = walks[-1]
    site_ms = {phase: 1000 * last.cpu_s[phase] / last.sites for phase in PHASES}
    shares = ", ".join(
        f"{phase} {site_ms[phase]:.0f} ms ({last.cpu_s[phase] / last.cpu_total_s:.0%})" for phase in PHASES
    )
    sentences = [
        f"{last.sites} sites with {last.models} models and {last.resources} resources: "
        f"{1000 * last.cpu_total_s / last.sites:.0f} ms of processor time a site; {shares}.",
        f"That is {1000 * last.cpu_s['proof'] / last.models:.0f} ms of proof a model and "
        f"{1000 * last.cpu_s['render'] / last.resources:.1f} ms of render a resource.",
    ]
    if len({walked.sites for walked in walks}) > 1:
        grows = growth_exponent([walked.sites for walked in walks], [walked.cpu_total_s for walked in walks])
        sentences.append(f"Processor time grows with sites^{grows:.2f}.")
    return sentences


def _write(folder: Path, count: int) -> list[Path]:
    return [generated_sites.write(folder, generated_sites.site(number)) for number in range(count)]


def _prove(_: str, file: Path) -> Proven:
    """Plan a site, as `sitectl validate` does, and ask of it what `sitectl proof --json` does."""
    began = time.process_time()
    plan = plan_file(file)
    planned = time.process_time()
    proofs.placement(plan)
    for revision in plan.revisions:
        revision.text()
        revision.proof.figures()
    return Proven(
        models=len(plan.models),
        keys=sum(len(tenant.keys) for tenant in plan.site.tenants.values()),
        cpu_s={"validate": planned - began, "proof": time.process_time() - planned},
    )


def _render(files: dict[str, Path], out: Path) -> dict[str, checkout.Declared]:
    declared = checkout.declare(CHECKOUT, files)

    def write(site: str, program: checkout.Declared) -> None:
        if not program.error:
            manifests_folder.write(out / site, manifests_folder.contents(program.resources))

    over_cores.for_each(declared, write)
    return declared


def _cpu_s() -> float:
    """Of this process and of those that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def _counts(walked: Walk) -> Row:
    return {"sites": walked.sites, "models": walked.models, "keys": walked.keys, "resources": walked.resources}


def _times(walked: Walk) -> Row:
    row: dict[str, Cell] = {"sites": walked.sites}
    row |= {f"{phase}, CPU": round(1000 * walked.cpu_s[phase] / walked.sites, 1) for phase in PHASES}
    row["all, CPU"] = round(1000 * walked.cpu_total_s / walked.sites, 1)
    row["all, wall"] = round(1000 * sum(walked.wall_s.values()) / walked.sites, 1)
    return row
