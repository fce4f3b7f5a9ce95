"""A machine's whole config: its documents, patched, checked for doubles, and rendered as one YAML text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from talos.contract import V1_13, Contract
from talos.document import API_VERSION, ConfigError, Document, Wire, identity, shown
from talos.patches import Patch, apply_patches


@dataclass(frozen=True, kw_only=True)
class MachineConfig:
    """What one machine is given. Holds the cluster's secrets, and shows none of them."""

    documents: tuple[Document, ...] = field(repr=False)
    patches: tuple[Patch, ...] = field(default=(), repr=False)
    contract: Contract = field(default=V1_13, repr=False)

    def __post_init__(self) -> None:
        """ConfigError for a document that is there twice, whichever patch says what."""
        _require_single([each.document() for each in self.documents])

    def wire(self) -> list[Wire]:
        """All documents in wire form: v1alpha1 first, the rest by kind and name, so that their order says nothing."""
        patched = apply_patches([each.document() for each in self.documents], self.patches)
        _require_single(patched)
        for each in patched:
            if identity(each)[0] not in self.contract.kinds:
                raise ConfigError(
                    f"contract {self.contract.name} has no document kind {identity(each)[0]}",
                    fix="mend the kind's name, or use a Talos version whose contract has it",
                )
        if (API_VERSION, "") not in map(identity, patched):
            raise ConfigError("the v1alpha1 document is missing: the machine could not boot", fix="add the base config")
        return sorted(patched, key=lambda each: (identity(each)[0] != API_VERSION, identity(each)))

    def render(self) -> str:
        """The config as the machine is given it; equal inputs give equal bytes."""
        return render(self.wire())


def render(documents: Sequence[Wire]) -> str:
    """Several documents in wire form as one YAML text."""
    return yaml.dump_all(
        documents, Dumper=_Dumper, sort_keys=False, default_flow_style=False, allow_unicode=True, width=10**6
    )


class _Dumper(yaml.SafeDumper):
    """Writes nothing that Talos's YAML 1.2 reader could take for another type than PyYAML's 1.1 does."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - shared values are written out, never as aliases
        return True


# `1e3`, `0o17` and the like are texts in YAML 1.1 and numbers in 1.2.
_NUMBER_LIKE = re.compile(r"[-+.]?[0-9.]")


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = "|" if "\n" in text else "'" if _NUMBER_LIKE.match(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def _require_single(documents: Sequence[Wire]) -> None:
    seen = set()
    for each in map(identity, documents):
        if each in seen:
            raise ConfigError(f"{shown(each)} is there twice", fix="keep one, or give the other a name of its own")
        seen.add(each)
