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

Others = Mapping[str, SiteConfig | None]
"""Sites that are taken over, by name; None for one whose file is missing or wrong."""
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


def others_of(site: SiteConfig, folder: Path) -> Others:
    """The sites that it takes over, out of their files in this folder."""
    return {name: _read(folder / f"Pulumi.{name}.yaml") for name in site.takes_over}


def _read(file: Path) -> SiteConfig | None:
    try:
        read = read_site_file(file)
    except SiteError:
        return None
    return None if read.problems else read.site


def taken_models(site: SiteConfig, models: Mapping[str, ModelPlan], name: str, other: SiteConfig) -> list[TakenModel]:
    """Each model of the other site that declares a load."""
    share = site.takes_over[name].share
    return [
        _taken(models.get(model), model, share * load.requests_per_s * load.request_tokens, spec.catalogue)
        for model, spec in sorted(other.models.items())
        if (load := load_of(spec))
    ]


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


def tenants_text(site: SiteConfig, other: SiteConfig) -> str:
    """What tenants of the other site miss here: keys, models, and limits that are lower; empty for nothing."""
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


def describe_take_overs(site: SiteConfig, models: Mapping[str, ModelPlan], others: Others) -> str:
    """As text for people; empty for a site that takes no other one over."""
    if not others:
        return ""
    lines = ["failover: what this site carries while another one is away, beside its own load"]
    for name, other in sorted(others.items()):
        if other is None:
            lines.append(f"  {name}: not known, as Pulumi.{name}.yaml is missing or wrong")
            continue
        lines += [f"  {name}, {model.text}" for model in taken_models(site, models, name, other)]
        if tenants := tenants_text(site, other):
            lines.append(f"  {name}, tenants: {tenants}")
    return "\n".join(lines)


def itself(site: SiteConfig) -> Iterator[Problem]:
    """A site that takes itself over."""
    if site.name in site.takes_over:
        yield Problem(path=("takes_over", site.name), what="is this site itself", fix="name another site")


def not_carried(site: SiteConfig, models: Mapping[str, ModelPlan], others: Others) -> Iterator[Problem]:
    """What a site declares that it takes over, and does not carry."""
    for name, other in sorted(others.items()):
        path = ("takes_over", name)
        if other is None:
            what = f"nothing is proven of it: Pulumi.{name}.yaml is missing or wrong"
            yield Problem(path=path, what=what, fix=f"run sitectl validate {name}, or take the key out")
            continue
        failing = [model for model in taken_models(site, models, name, other) if not model.carried]
        if failing:
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
