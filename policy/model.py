"""What rules check and what they report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from floor import namespaces
from floor.metadata import FIELD_MANAGER, TALOS
from floor.stateful import Keeping

# Placeholder for a value that is secret or not known yet; a rule sees nothing else of it.
HIDDEN = "[secret]"

Level = Literal["error", "advice"]


@dataclass(frozen=True, kw_only=True)
class Resource:
    """One resource of a site, as its program declares it."""

    type: str
    """Pulumi's type token, such as `kubernetes:apps/v1:Deployment`."""
    name: str
    """Logical name, the last part of its URN."""
    body: Mapping[str, Any]
    """Inputs in wire format; secret values are HIDDEN."""
    protected: bool = False
    """The engine refuses to delete it."""
    retained: bool = False
    """The engine forgets it instead of deleting it."""

    @property
    def kind(self) -> str:
        """Kubernetes kind; empty for other resources."""
        return str(self.body.get("kind", "")) if self.type.startswith("kubernetes:") else ""

    @property
    def is_of_talos(self) -> bool:
        """Whether Talos made the object, out of a manifest that is pinned by its content."""
        return (self._meta.get("annotations") or {}).get(FIELD_MANAGER) == TALOS

    @property
    def namespace(self) -> str:
        return str(self._meta.get("namespace", ""))

    @property
    def label(self) -> str:
        """How people name it: `Deployment inference-models/glm-5-1`, or type and logical name."""
        own = str(self._meta.get("name", ""))
        if not self.kind or not own:
            return f"{self.type} {self.name}"
        return f"{self.kind} {self.namespace}/{own}" if self.namespace else f"{self.kind} {own}"

    @property
    def _meta(self) -> Mapping[str, Any]:
        meta = self.body.get("metadata")
        return meta if isinstance(meta, Mapping) else {}


@dataclass(frozen=True, kw_only=True)
class SiteFacts:
    """What a rule has to know of the site that the resources belong to."""

    name: str
    sovereign: bool = False
    """Nothing of the site may reach out of it: no foreign registry, no hub, no external name."""
    registries: tuple[str, ...] = ()
    """Hosts (and paths) that images, charts and weights of a sovereign site may come from."""
    mirrored: tuple[str, ...] = ()
    """Registries whose images nodes take from those hosts alone; `*` for all."""
    locked_images: tuple[str, ...] | None = None
    """Images with tag and digest that may run; None where the site locks none."""
    load_s: Mapping[str, float] = field(default_factory=dict)
    """Predicted time in which a replica downloads and reads its weights, by the revision's name."""
    privileged_namespaces: tuple[str, ...] = namespaces.PRIVILEGED
    """Namespaces whose pod security may be `privileged`: their pods come out of other people's charts."""
    host_access: tuple[str, ...] = ()
    """Labels of workloads that may use the host's files, network, processes or privileges."""
    machine_secrets: Keeping | None = None
    """What the site sets for the secrets of its machines; None where it has none, or is not known."""
    pepper: Keeping | None = None
    """The same of the pepper of its directory of keys."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is wrong with one resource."""

    resource: str
    """Label of the resource."""
    problem: str
    fix: str


@dataclass(frozen=True, kw_only=True)
class Violation:
    """A finding under the name of its rule."""

    rule: str
    level: Level
    resource: str
    problem: str
    fix: str

    def __str__(self) -> str:
        return f"{self.resource}: {self.problem} [{self.rule}]\n  fix: {self.fix}"


Check = Callable[[Sequence[Resource], SiteFacts], Iterable[Finding]]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule. `check` is pure: the same resources and facts give the same findings."""

    name: str
    says: str
    """One sentence that a reader can agree or disagree with."""
    check: Check
    level: Level = "error"


def violations(resources: Sequence[Resource], facts: SiteFacts, rules: Iterable[Rule]) -> list[Violation]:
    """Everything that any rule finds, sorted by level, resource and rule.

    As into a release, no rule looks into what a chart of others has that Talos makes.
    """
    resources = [resource for resource in resources if not resource.is_of_talos]
    broken = [
        Violation(
            rule=rule.name,
            level="advice" if isinstance(finding, _Unjudged) else rule.level,
            resource=finding.resource,
            problem=finding.problem,
            fix=finding.fix,
        )
        for rule in rules
        for finding in _findings(rule, resources, facts)
    ]
    return sorted(
        broken,
        key=lambda violation: (violation.level != "error", violation.resource, violation.rule, violation.problem),
    )


@dataclass(frozen=True, kw_only=True)
class _Unjudged(Finding):
    """A resource that a rule could not read."""

    problem: str = "the rule could not look: a whole section that it reads is plain text or not known yet"
    fix: str = "give the section as plain data; only single values may be outputs"


# The errors of a rule on a section that is plain text, or missing.
_UNREADABLE = (AttributeError, LookupError, TypeError, ValueError)


def _findings(rule: Rule, resources: Sequence[Resource], facts: SiteFacts) -> list[Finding]:
    """What the rule finds. One resource that it cannot read does not hide what is wrong with the others."""
    findings = _checked(rule, resources, facts)
    if findings is not None:
        return findings
    readable = {number: _checked(rule, [resource], facts) is not None for number, resource in enumerate(resources)}
    findings = _checked(rule, [resource for number, resource in enumerate(resources) if readable[number]], facts)
    if findings is None:
        return [_Unjudged(resource="(all)")]
    return [
        *findings,
        *(_Unjudged(resource=resource.label) for number, resource in enumerate(resources) if not readable[number]),
    ]


def _checked(rule: Rule, resources: Sequence[Resource], facts: SiteFacts) -> list[Finding] | None:
    try:
        return list(rule.check(resources, facts))
    except _UNREADABLE:
        return None
