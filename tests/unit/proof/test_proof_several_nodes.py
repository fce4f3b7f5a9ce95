"""A model that no single node holds: which layout over several would, and that it is not deployed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stacks.plan.models import DoesNotFitError
from stacks.proof.demand import Load, Slo
from stacks.proof.layouts import Layout
from stacks.proof.proof import prove
from stacks.proof.several_nodes import nodes_of, over_nodes, words
from tests.unit.proof.proof_orders import CHAT, TARGETS, order
from tests.unit.proof.test_sizing import PROD, planned, site

pytestmark = pytest.mark.row("opening 1", "000.02")


def test_a_trillion_parameters_on_h100_take_two_nodes_of_them() -> None:
    """Kimi K2.5, 595 GB: 77 GB of weights per GPU leave nothing on eight, and 39 GB leave half on sixteen."""
    proof = prove(order("kimi-k2.5", "h100-sxm", one_node=True, simple=True, load=Load(requests_per_s=0.5)))
    assert [problem.kind for problem in proof.problems] == ["weights"]
    wider = over_nodes(proof)
    assert wider is not None
    assert wider.holds
    assert (wider.case.layout, wider.case.replicas, nodes_of(wider)) == (Layout(tensor=8, pipeline=2), 1, 2)
    sentence = words(proof)
    assert sentence.startswith("TP8 PP2 would hold it: 16 GPUs on 2 nodes, context 262,144 tokens, TTFT p95 ")
    assert f"ITL p95 {wider.case.steady.itl_quantile_s(0.95) * 1e3:.3g} ms" in sentence
    assert sentence.endswith("[estimated]; the platform does not deploy it, as a replica is one Pod")


def test_a_context_that_no_node_holds_is_held_by_two() -> None:
    wanted = order("llama-3.3-70b", "l4", one_node=True, simple=True, context_tokens=131_072)
    proof = prove(wanted)
    assert [problem.kind for problem in proof.problems] == ["context"]
    wider = over_nodes(proof)
    assert wider is not None
    assert wider.case.layout.pipeline > 1
    assert wider.case.context == 131_072


def test_replicas_of_the_site_are_kept_where_they_carry_the_load() -> None:
    wanted = order("glm-5.1-fp8", "h100-sxm", one_node=True, simple=True, replicas=2, load=CHAT, slo=TARGETS)
    wider = over_nodes(prove(wanted))
    assert wider is not None
    assert (wider.case.replicas, nodes_of(wider)) == (2, 4)
    busier = over_nodes(prove(replace(wanted, load=replace(CHAT, requests_per_s=40.0))))
    assert busier is not None
    assert busier.holds
    assert busier.case.replicas > 2


def test_what_fits_and_misses_a_target_is_named_with_the_miss() -> None:
    wanted = order("llama-3.1-405b", "a100-80gb", one_node=True, kv_dtype="bf16", load=CHAT, slo=Slo.of(itl_p95_ms=20))
    sentence = words(prove(wanted))
    # As many as carry the load, so that the target is what is missed.
    assert "4 x TP8 PP2 would fit: 64 GPUs on 8 nodes" in sentence
    assert "target 20 ms" in sentence
    assert "would hold" not in sentence


@pytest.mark.parametrize(
    ("name", "gpu", "more"),
    [
        # It fits on a node, and it is not memory that is missing.
        ("glm-5.1-fp8", "h200-sxm", {}),
        ("glm-5.1-fp8", "h200-sxm", {"layout": Layout(tensor=1)}),
        ("qwen3-32b-fp8", "h200-sxm", {"load": CHAT, "slo": Slo.of(itl_p95_ms=1)}),
        # Not on 32 of them either.
        ("glm-5.1-fp8", "l4", {}),
        ("kimi-k2.5", "h100-sxm", {"context_tokens": 10_000_000}),
    ],
)
def test_nothing_is_claimed_where_more_nodes_are_no_answer(name: str, gpu: str, more: dict[str, object]) -> None:
    assert words(prove(order(name, gpu, one_node=True, **more))) == ""


def test_a_site_is_refused_with_the_layout_that_would_hold_and_a_fix_that_it_can_apply() -> None:
    config = site(
        {"catalogue": "kimi-k2.5", "load": {"requests_per_s": 0.5}}, cluster=PROD["cluster"] | {"gpu": "h100-sxm"}
    )
    with pytest.raises(DoesNotFitError) as refused:
        planned(config)
    (problem,) = refused.value.problems
    assert "TP8 PP2 would hold it: 32 GPUs on 4 nodes" in problem.what
    assert "the platform does not deploy it" in problem.what
    assert "PP2" not in problem.fix
