"""What a site carries while another one is away: both sites' requests, proven together, and what tenants miss."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from floor.counts import listed
from floor.problems import Problem, SiteError
from stacks.plan.guarantees import request_tokens
from stacks.plan.models import ModelPlan
from stacks.plan.orders import load_of
from stacks.proof.figures import shown
from stacks.proof.proof import Proof
from stacks.site.loader import read_site_file
from stacks.site.model import SiteConfig

_VERDICTS = {"holds": "HOLDS", "uncertain": "MAY MISS ITS TARGETS", "fails": "MISSES ITS TARGETS"}


@dataclass(frozen=True, kw_only=True)
class TakenModel:
    """A model of the other site, and what becomes of its requests here."""

    name: str
    own: float = 0.0
    """Requests per second that are declared here."""
    more: float = 0.0
    """Those of the other site, as so many requests like the ones here."""
    proof: Proof | None = None
    """Of both together; None where it is not served, or nothing is proven."""
    reason: str = ""
    """Why nothing is proven."""

    @property
    def carried(self) -> bool:
        """Whether it is by the computed figures."""
        return self.proof is not None and self.proof.verdict != "fails"

    @property
    def text(self) -> str:
        if self.proof is None:
            return f"{self.name}: {self.reason}"
        over_band = self.proof.ends.span(lambda end: end.capacity_requests_per_s)
        carried = f"{shown(self.proof.capacity_requests_per_s)} within its targets ({over_band})"
        both = f"{shown(self.own)} + {shown(self.more)} requests/s of {carried}"
        return f"{self.name}: {both}: {_VERDICTS[self.proof.verdict]}  [estimated]"


@dataclass(frozen=True, kw_only=True)
class TakeOver:
    """What becomes here of another site's requests."""

    site: str
    """Its name."""
    models: Sequence[TakenModel] | None
    """Those that declare a load there; None where its file is missing or wrong."""
    tenants: str
    """What its tenants miss here; empty for nothing."""


def take_overs(site: SiteConfig, models: Mapping[str, ModelPlan], folder: Path) -> list[TakeOver]:
    """Of each site that this one takes over, out of its file in this folder."""
    return [
        _take_over(site, models, name, spec.share, _read(folder / f"Pulumi.{name}.yaml"))
        for name, spec in sorted(site.takes_over.items())
    ]


def _read(file: Path) -> SiteConfig | None:
    try:
        read = read_site_file(file)
    except SiteError:
        return None
    return None if read.problems else read.site


def _take_over(
    site: SiteConfig, models: Mapping[str, ModelPlan], name: str, share: float, other: SiteConfig | None
) -> TakeOver:
    if other is None:
        return TakeOver(site=name, models=None, tenants="")
    taken = [
        _taken(models.get(model), model, share * load.requests_per_s * load.request_tokens, spec.catalogue)
        for model, spec in sorted(other.models.items())
        if (load := load_of(spec))
    ]
    return TakeOver(site=name, models=taken, tenants=_tenants(site, other))


def _taken(here: ModelPlan | None, name: str, tokens_per_s: float, catalogue: str) -> TakenModel:
    """tokens_per_s: prompts and answers of the other site's requests."""
    if here is None:
        return TakenModel(name=name, reason="not served here")
    proof = here.stable.proof
    if here.stable.spec.catalogue != catalogue:
        return TakenModel(name=name, reason=f"another model has the name here: {here.stable.spec.catalogue}")
    if proof.order.load is None:
        return TakenModel(name=name, reason="declares no load here, so nothing is proven")
    own = proof.order.load.requests_per_s
    more = tokens_per_s / request_tokens(proof)
    both = Proof(proof.case.again(requests_per_s=own + more))
    return TakenModel(name=name, own=own, more=more, proof=both)


def _tenants(site: SiteConfig, other: SiteConfig) -> str:
    """Keys, models, and limits that are lower."""
    unknown = sorted(other.tenants.keys() - site.tenants.keys())
    texts = [f"no keys here have {listed(unknown)}"] if unknown else []
    for name in sorted(other.tenants.keys() & site.tenants.keys()):
        fewer = sorted(set(other.tenants[name].models) & set(site.models) - set(site.tenants[name].models))
        texts += [f"{name} may not call {listed(fewer)} here"] if fewer else []
        own = site.limits.get(name, {})
        lower = [
            f"{limit} {own[limit]:,}, not {most:,}"
            for limit, most in sorted(other.limits.get(name, {}).items())
            if own.get(limit, most) < most
        ]
        texts += [f"{name} has lower limits here: {listed(lower)}"] if lower else []
    return "; ".join(texts)


def describe_take_overs(taken: Sequence[TakeOver]) -> str:
    """As text for people; empty for a site that takes no other one over."""
    if not taken:
        return ""
    lines = ["failover: what this site carries while another one is away, beside its own load"]
    for other in taken:
        if other.models is None:
            lines.append(f"  {other.site}: not known, as Pulumi.{other.site}.yaml is missing or wrong")
            continue
        lines += [f"  {other.site}, {model.text}" for model in other.models]
        if other.tenants:
            lines.append(f"  {other.site}, tenants: {other.tenants}")
    return "\n".join(lines)


def itself(site: SiteConfig) -> Iterator[Problem]:
    """A site that takes itself over."""
    if site.name in site.takes_over:
        yield Problem(path=("takes_over", site.name), what="is this site itself", fix="name another site")


def not_carried(taken: Sequence[TakeOver]) -> Iterator[Problem]:
    """What a site declares that it takes over, and does not carry."""
    for other in taken:
        name, path = other.site, ("takes_over", other.site)
        if other.models is None:
            what = f"nothing is proven of it: Pulumi.{name}.yaml is missing or wrong"
            yield Problem(path=path, what=what, fix=f"run sitectl validate {name}, or take the key out")
        elif failing := [model for model in other.models if not model.carried]:
            yield Problem(
                path=path,
                what=f"while {name} is away, this site does not carry {listed(model.name for model in failing)} within "
                "the targets",
                got="; ".join(model.text for model in failing),
                fix=_fix(failing, name),
            )


def _fix(failing: Sequence[TakenModel], name: str) -> str:
    replicas = [model.name for model in failing if model.proof]
    more = f"raise server.replicas of {listed(replicas)}, " if replicas else ""
    return f"{more}lower takes_over.{name}.share to what has to be answered, or serve the model here"
