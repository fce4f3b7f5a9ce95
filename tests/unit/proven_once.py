"""Orders that a test has proven before are not proven again: thousands of tests plan a site with the same models.

A proof is frozen and follows from its order alone, so tests of other things than the proof may share one. Tests that
count proofs, and those of the proof itself, do without.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import pytest

from stacks.proof.order import Order
from stacks.proof.proof import Proof, prove

_CALLERS = (
    "stacks.plan.models",
    "stacks.plan.advice",
    "stacks.plan.tenant_caches",
    "stacks.proof.fixes",
    "stacks.proof.several_nodes",
    "sitectl.commands.catalogue",
)
# Enough for the sites of one module; older ones go.
_KEPT = 24
_proofs: dict[str, deque[Proof]] = {}


def remembered(order: Order, *, known: Proof | None = None) -> Proof:
    """The proof of the same order from before, or a new one."""
    proofs = _proofs.setdefault(order.name, deque(maxlen=_KEPT))
    for proof in proofs:
        if proof.order == order:
            return proof
    proofs.appendleft(made := prove(order, known=known))
    return made


@pytest.fixture(autouse=True, scope="module")
def each_order_is_proven_once() -> Iterator[None]:
    """Proofs of the same order are shared by the tests of a worker."""
    with pytest.MonkeyPatch.context() as patch:
        for module in _CALLERS:
            patch.setattr(f"{module}.prove", remembered)
        yield
