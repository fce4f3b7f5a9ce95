"""Checks of a site that is valid by itself: do its models fit, do its flags and versions go together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from components.model_server import ModelServerPlan
from stacks import compatibility, versions
from stacks.cluster_plan import problems_of
from stacks.demand import OrderedModelSpec
from stacks.loading.origins import Origin
from stacks.loading.problems import Path, Problem, from_text, shown
from stacks.placing import crowds
from stacks.proof.layouts import allowed, refusals
from stacks.proof.proof import Proof
from stacks.site import SiteConfig
from stacks.sizing import BrokenOverridesError, DoesNotFitError, engine_of, plan_of, prove_model, serving_of

# Flags that the platform gives only where the layout wants them; the figures hold for that layout alone.
_OF_THE_LAYOUT = frozenset({"--pipeline-parallel-size", "--data-parallel-size", "--enable-expert-parallel"})
# Flag that the platform gives to engines -> the key that decides it.
_DECIDED_BY: Mapping[str, str] = {
    "--max-num-seqs": "overrides.max_num_seqs",
    "--max-model-len": "overrides.max_model_len",
    "--max-num-batched-tokens": "server.max_num_batched_tokens",
    "--max-num-queued-reqs": "overrides.max_num_queued_reqs",
    "--max-waiting-queue-length": "overrides.max_num_queued_reqs",
    "--override-generation-config": "overrides.gateway_max_tokens",
    "--tensor-parallel-size": "server.layout",
    "--pipeline-parallel-size": "server.layout",
    "--data-parallel-size": "server.layout",
    "--enable-expert-parallel": "server.layout",
    "--shutdown-timeout": "server.longest_stream_s",
    "--startup-duration": "server.simulated_load_scale",
}


def misfits(site: SiteConfig) -> Iterator[Problem]:
    """Models that cannot work on the GPUs that they are given or find none, and flags that are the platform's own."""
    proofs: dict[str, Proof] = {}
    for name, spec in sorted(site.models.items()):
        try:
            proofs[name] = prove_model(site, spec, name)
        except BrokenOverridesError as error:
            for each in error.broken:
                path = ("models", name, "overrides", each.key)
                yield Problem(path=path, what=each.what, got=each.got, allowed=each.allowed, fix=each.fix)
        except DoesNotFitError as error:
            yield from _misfit(name, spec, error)
        else:
            yield from _flags_twice(name, spec, plan_of(proofs[name], serving_of(spec)))
    # Where one does not fit by itself, nobody knows what it would take of the nodes.
    if len(proofs) == len(site.models):
        for crowd in crowds(site, proofs):
            yield Problem(path=("models", crowd.model, "server", "replicas"), what=crowd.what, fix=crowd.fix)


def _misfit(name: str, spec: OrderedModelSpec, error: DoesNotFitError) -> Iterator[Problem]:
    """One problem for the model, or one for each size of a layout that cannot be."""
    path: Path = ("models", name, "server", "layout" if spec.server.layout else "gpus")
    whole = from_text(path, str(error))
    case = error.proof.case
    model, hardware, layout = case.order.model, case.order.hardware, case.layout
    refused = list(refusals(model, layout)) if spec.server.layout else []
    first = {each.key: each for each in reversed(refused)}
    for refusal in reversed(first.values()):
        yield Problem(
            path=(*path, refusal.key),
            what=f"{model.repository}: {refusal.why}",
            got=shown(getattr(layout, refusal.key)),
            allowed=", ".join(allowed(model, hardware, layout, refusal.key)),
            fix=whole.fix,
        )
    if not refused:
        yield whole


def refused_machines(site: SiteConfig) -> Iterator[Problem]:
    """Machines whose configs Talos would refuse, or whose image no factory builds."""
    if site.cluster.machines is not None:
        for line in problems_of(site.name, site.cluster.machines, versions.load()):
            yield from_text(("cluster", "machines"), line)


def incompatible(site: SiteConfig, origins: Mapping[str, Origin]) -> Iterator[Problem]:
    """Rows of the compatibility table that speak about the pinned versions and this site."""
    for conflict in compatibility.conflicts(versions.load(), site):
        named = [(fact, value, key) for fact, (value, key) in conflict.found.items()]
        said = " with ".join(f"{fact} {value} ({origins.get(key, key)})" for fact, value, key in named)
        own = next((key for _, _, key in named if not key.startswith(("versions.", "catalogue."))), "")
        theirs = origins.get(named[0][2])
        yield Problem(
            path=tuple(own.split(".")) if own else tuple(named[0][2].split(".")[1:]),
            what=f"{conflict.row.verdict}: {said}: {conflict.row.text}",
            fix=f"{conflict.row.fix} (stacks/compatibility.yaml: {conflict.row.id}; source: {conflict.row.source})",
            file="" if own or not theirs else theirs.file,
            line=None if own or not theirs else theirs.line,
        )


def _flags_twice(name: str, spec: OrderedModelSpec, plan: ModelServerPlan) -> Iterator[Problem]:
    """Extra flags that stand already: the engine would take the last one, and the figures would not hold."""
    extra = spec.server.extra_args
    args = engine_of(name, spec, plan, versions.load().images).args
    given = dict(flag.partition("=")[::2] for flag in args[: len(args) - len(extra)])
    seen: set[str] = set()
    for index, flag in enumerate(extra):
        key, _, value = flag.partition("=")
        path = ("models", name, "server", "extra_args", str(index))
        got = f"'{value}'" if value else ""
        if key in given or key in _OF_THE_LAYOUT:
            decided = _DECIDED_BY.get(key)
            held = given.get(key)
            said = "is given by the platform already" if key in given else "follows from the layout"
            yield Problem(
                path=path,
                what=f"{key} {said}" + (f", as {held}" if held else ""),
                got=got,
                fix=f"take it out, and set {decided} if need be" if decided else "take it out",
            )
        elif key in seen:
            yield Problem(path=path, what=f"{key} is given twice", got=got, fix="keep one of the two")
        seen.add(key)
