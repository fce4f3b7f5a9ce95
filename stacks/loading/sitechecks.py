"""Checks of a site that is valid by itself: do its models fit, do its settings and versions go together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stacks import compatibility, versions
from stacks.cluster_plan import problems_of
from stacks.demand import OrderedModelSpec
from stacks.loading.origins import Origin
from stacks.loading.problems import Path, Problem, from_text, shown
from stacks.placing import crowds
from stacks.proof.layouts import allowed, refusals
from stacks.proof.proof import Proof
from stacks.site import SiteConfig
from stacks.sizing import BrokenOverridesError, DoesNotFitError, prove_model


def misfits(site: SiteConfig) -> Iterator[Problem]:
    """Models that cannot work on the GPUs that they are given, or find none."""
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
