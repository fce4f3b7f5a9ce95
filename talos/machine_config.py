"""A machine's whole config: its documents, patched, checked for duplicates, and rendered as one YAML text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property

from talos.documents.contract import V1_13, Contract
from talos.documents.document import API_VERSION, Document, Wire, identity
from talos.documents.patches import Patch, apply_patches
from talos.documents.problems import ConfigError, ConfigProblem, require_none
from talos.documents.rendering import render


@dataclass(frozen=True, kw_only=True)
class MachineConfig:
    """What one machine is given. Holds the cluster's secrets, and shows none of them."""

    documents: tuple[Document, ...] = field(repr=False)
    patches: tuple[Patch, ...] = field(default=(), repr=False)
    contract: Contract = field(default=V1_13, repr=False)

    def __post_init__(self) -> None:
        """ConfigError with every mistake of the documents and patches, and every document that is there twice."""
        problems = [problem for document in self.documents for problem in document.problems()]
        problems += _doubles(self._written)
        if problems:
            problems += _wrong_patches(self._written, self.patches)
        require_none(problems)

    @cached_property
    def _written(self) -> list[Wire]:
        return [document.document() for document in self.documents]

    def wire(self) -> list[Wire]:
        """All documents in wire form: v1alpha1 first, the rest by kind and name, so that their order means nothing."""
        patched = apply_patches(self._written, self.patches)
        problems = [
            ConfigProblem(
                document=identity(document),
                what=f"contract {self.contract.name} has no document kind {identity(document)[0]}",
                allowed=", ".join(get_close_matches(identity(document)[0], self.contract.kinds)),
                fix="correct the kind's name, or use a Talos version whose contract has it",
            )
            for document in patched
            if identity(document)[0] not in self.contract.kinds
        ]
        if (API_VERSION, "") not in map(identity, patched):
            what = "the v1alpha1 document is missing: the machine could not boot"
            problems.append(ConfigProblem(what=what, fix="add the base config"))
        require_none(problems)
        return sorted(patched, key=lambda document: (identity(document)[0] != API_VERSION, identity(document)))

    def render(self) -> str:
        """The config as the machine is given it; equal inputs give equal bytes."""
        return render(self.wire())


def _wrong_patches(documents: Sequence[Wire], patches: Sequence[Patch]) -> Sequence[ConfigProblem]:
    try:
        apply_patches(documents, patches)
    except ConfigError as error:
        return error.problems
    return ()


def _doubles(documents: Sequence[Wire]) -> Iterator[ConfigProblem]:
    """Documents that are one to Talos."""
    for document, count in Counter(map(identity, documents)).items():
        if count > 1:
            yield ConfigProblem(
                document=document,
                what="is there twice" if count == 2 else f"is there {count} times",
                allowed="once",
                fix="keep one, or give the others names of their own",
            )
