"""What tests share is what each of them would prove."""

from __future__ import annotations

from dataclasses import replace

from stacks.proof.proof import prove
from tests.unit.proof.proof_orders import CHAT, order
from tests.unit.proven_once import remembered


def test_a_proof_is_shared_by_equal_orders_alone() -> None:
    asked = order("qwen3-32b-fp8", load=CHAT)
    assert remembered(asked) is remembered(replace(asked))
    assert remembered(asked).figures() == prove(asked).figures()
    assert remembered(replace(asked, replicas=7)).case.replicas == 7 != remembered(asked).case.replicas
