"""A model that no single node holds: which layout over several would, and what a site that asks for it is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stacks.facts import catalogue
from stacks.facts.hardware import GPUS
from stacks.plan.block import block
from stacks.plan.models import DoesNotFitError
from stacks.proof.cache import cache_of
from stacks.proof.demand import Load, Slo
from stacks.proof.fixes import nearest
from stacks.proof.layouts import Layout, over
from stacks.proof.proof import Proof, prove
from stacks.proof.roofline import CALIBRATION
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
    assert sentence.endswith("[estimated]; with InfiniBand between the nodes, server.nodes: 2 deploys it")


def test_pods_on_two_nodes_have_the_network_alone_between_them_in_a_rack_of_nvlink_too() -> None:
    wanted = order("kimi-k2.5", "gb200", context_tokens=8192)
    assert wanted.hardware.link_domain == 72
    spanning = replace(wanted, nodes=2, network_bytes_per_s=1.0e6).hardware
    assert (spanning.link_domain, spanning.network_bytes_per_s) == (spanning.gpus_per_node, 1.0e6)


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
    assert "server.nodes: 2 deploys it" in problem.what
    assert "PP2" not in problem.fix


def on_two_h100(**more: object) -> Proof:
    layout = over(GPUS["h100-sxm"], 2)
    return prove(order("kimi-k2.5", "h100-sxm", nodes=2, layout=layout, simple=True, replicas=2, **more))


def test_a_group_of_two_nodes_holds_and_its_hops_are_of_the_network() -> None:
    """8,192 tokens x 2 vectors of 7,168 x 2 B, an eighth each, at 69 % of 50 GB/s: 0.85 ms of a step of 0.6 s."""
    proof = on_two_h100()
    assert proof.holds
    figure = proof.speed["between_nodes"]
    assert (figure.fidelity, figure.unit) == ("estimated", "%")
    step_s = proof.case.roofline.step_s(prefill=8192, reach=4096, alone=True)
    hop_s = 10e-6 + 8192 * 2 * 2 * 7168 / 8 / (CALIBRATION.link * 50e9)
    assert figure.value == pytest.approx(100 * CALIBRATION.engine * hop_s / step_s, rel=1e-6)
    assert "a full step of prompts is between them for 0.14" in block(proof)


@pytest.mark.parametrize(("gb_per_s", "refused"), [(1.0, False), (0.2, True)])
def test_links_that_would_take_a_quarter_of_a_step_are_refused(gb_per_s: float, refused: bool) -> None:
    texts = [problem.text for problem in on_two_h100(network_bytes_per_s=gb_per_s * 1e9).case.fit_problems]
    assert ["over 2 nodes, a batch of 8,192 tokens is between them for 26%" in text for text in texts] == [
        True
    ] * refused


def test_more_nodes_are_the_fix_of_a_group_that_is_too_small() -> None:
    """405 billion parameters in 16 bits: 101 GB a GPU on eight, 51 on sixteen, where 80 GB leave no long context."""
    wanted = order("llama-3.1-405b", "a100-80gb", nodes=2, kv_dtype="bf16", simple=True, context_tokens=131_072)
    wanted = replace(wanted, layout=over(GPUS["a100-80gb"], 1))
    assert "set server.nodes to 3" in [fix.text for fix in nearest(prove(wanted))]


@pytest.mark.parametrize(("stages", "most"), [(2, 31), (3, 21), (4, 16)])
def test_the_stage_with_most_layers_is_what_memory_is_proven_for(stages: int, most: int) -> None:
    """61 layers as vLLM 0.32 cuts them: 30 and 31, 20, 21 and 20, or 15, 15, 16 and 15."""
    model = catalogue.load("kimi-k2.5")
    whole, cut = (cache_of(model, Layout(tensor=8, pipeline=count), "fp8") for count in (1, stages))
    assert cut.per_token == pytest.approx(whole.per_token * most / 61)
