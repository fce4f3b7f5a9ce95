"""What a setting is: how it follows from a proof, what a site may set instead, and what of the platform it becomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from stacks.proof.case import Case
from stacks.proof.figures import Fidelity
from stacks.proof.proof import Proof

Value = int | float | str | bool
Origin = Literal["derived", "override", "site"]
"""derived: from the proof. override: from the site, with a reason. site: the site's own key."""


@dataclass(frozen=True, kw_only=True)
class Override:
    """A setting that the site sets instead of the proof."""

    value: float
    reason: str


OF_ORDER = frozenset({"max_model_len", "max_num_seqs", "max_num_batched_tokens"})
"""Settings that a site overrides in the order, as the proof is another one with them."""


@dataclass(frozen=True, kw_only=True)
class Serving:
    """What a site sets for serving a model, other than the order."""

    longest_stream_s: int = 600
    """A terminating replica lets its streams run for this long."""
    least: int | None = None
    """Replicas that there always are; None where their number is fixed."""
    overrides: Mapping[str, Override] = field(default_factory=dict)
    """By the setting's name. What follows from an overridden setting follows from the site's value."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting of one model, and why it has its value."""

    key: str
    """As the engine, the picker or Kubernetes calls it."""
    value: Value
    unit: str
    origin: Origin
    formula: str
    fidelity: Fidelity
    """The least trusted one of its inputs."""
    inputs: Mapping[str, float | int | str] = field(default_factory=dict)
    reason: str = ""
    """Of an override."""
    effect: str = ""
    """`yes: WHERE` it takes effect, or `no: WHY NOT`."""

    @property
    def number(self) -> float:
        """The value as a number. Raises TypeError for text."""
        if isinstance(self.value, str):
            raise TypeError(f"{self.key} is {self.value!r}")
        return self.value

    @property
    def whole(self) -> int:
        """The value as a whole number. Raises TypeError for text."""
        return int(self.number)


@dataclass(frozen=True, kw_only=True)
class Basis:
    """What settings follow from: a proof, the site's words on serving, and the settings before them."""

    proof: Proof
    serving: Serving
    settled: Mapping[str, Setting]

    @property
    def case(self) -> Case:
        return self.proof.case

    def number(self, key: str) -> float:
        """The value of a setting that is defined before this one."""
        return self.settled[key].number


@dataclass(frozen=True, kw_only=True)
class Derived:
    """A value and what it was computed from."""

    value: Value
    inputs: Mapping[str, float | int | str] = field(default_factory=dict)
    origin: Origin = "derived"
    reason: str = ""
    """Of a count that the order overrides."""
    formula: str = ""
    """Where it is another one than the definition's."""


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What the proof allows a site to set, with what breaks beyond either end and what else would help there."""

    low: float
    high: float
    below: str = ""
    above: str = ""
    instead_above: str = ""
    instead_below: str = ""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where an object has a setting's value, for those who ask where a field comes from."""

    kind: Literal["flag", "variable", "field", "configuration"]
    """flag: of an engine. variable: of its environment. field: end of a path below a container. configuration: key in
    the picker's configuration, which is text."""
    name: str


@dataclass(frozen=True, kw_only=True)
class Definition:
    """One setting of every model. `used` is where it takes effect, `unused` why it does not yet."""

    key: str
    unit: str
    formula: str
    derive: Callable[[Basis], Derived | None]
    """None for a model that has no such setting."""
    fidelity: Fidelity = "estimated"
    used: str = ""
    unused: str = ""
    places: tuple[Place, ...] = ()
    """Beside the engine's flag of the same name."""
    bounds: Callable[[Basis], Bounds] | None = None
    """Of an override, given all other settings; None where a site may set none, or the proof itself refuses it."""

    @property
    def effect(self) -> str:
        """`yes: WHERE` or `no: WHY NOT`."""
        return f"yes: {self.used}" if self.used else f"no: {self.unused}"

    def settle(self, basis: Basis) -> Setting | None:
        """The site's value where it sets one, else the derived one."""
        derived = self.derive(basis)
        if derived is None:
            return None
        override = basis.serving.overrides.get(self.key)
        value, origin, reason = derived.value, derived.origin, derived.reason
        if override is not None:
            value = int(override.value) if isinstance(value, int) else override.value
            origin, reason = "override", override.reason
        return Setting(
            key=self.key,
            value=value,
            unit=self.unit,
            origin=origin,
            formula=derived.formula or self.formula,
            fidelity=self.fidelity,
            inputs=derived.inputs,
            reason=reason,
            effect=self.effect,
        )
