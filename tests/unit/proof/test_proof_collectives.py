"""What leaves a GPU: collectives over NVLink, PCIe and the network, and the stages of a pipeline, computed by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stacks.facts import catalogue
from stacks.facts.hardware import GPUS
from stacks.proof.case import Case
from stacks.proof.collectives import Links, hops_of, links_between
from stacks.proof.layouts import Layout, candidates
from stacks.proof.roofline import CALIBRATION, Roofline, pipelined_s
from tests.unit.proof.proof_orders import order

pytestmark = pytest.mark.row("opening 1")

NVLINK_S, SHARE = CALIBRATION.collective_s, CALIBRATION.link


def links(gpu: str, ranks: int) -> Links:
    return links_between(GPUS[gpu], ranks, latency_s=NVLINK_S, share=SHARE)


@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_nvlink_has_what_was_fitted(ranks: int) -> None:
    nvlink = links("h200-sxm", ranks)
    assert nvlink.latency_s == NVLINK_S
    assert nvlink.bytes_per_s == pytest.approx(450e9 * 0.691)


@pytest.mark.parametrize(
    ("ranks", "latency_us", "share"),
    # 6.6 + 2 (n - 1) 2.2 us, and no less than NVLink's 12.1; the share falls where two sockets are crossed.
    [(2, 12.1, 0.55), (4, 19.8, 0.55), (8, 37.4, 0.40)],
)
def test_pcie_is_a_ring_of_steps(ranks: int, latency_us: float, share: float) -> None:
    for gpu in ("l40s", "l4"):
        pcie = links(gpu, ranks)
        assert pcie.latency_s == pytest.approx(latency_us * 1e-6)
        assert pcie.bytes_per_s == pytest.approx(32e9 * share)


def test_pcie_is_what_public_measurements_have() -> None:
    """Sources: at the constants. Small ones over four GPUs of a switch, over eight with switches and with sockets."""
    assert links("l40s", 4).latency_s == pytest.approx(19.4e-6, rel=0.1)
    assert 24.2e-6 < links("l40s", 8).latency_s < 54.2e-6
    assert links("l40s", 4).bytes_per_s / 32e9 == pytest.approx(35 / 64, rel=0.05)
    assert 22.2 / 64 < links("l40s", 8).bytes_per_s / 32e9 < 41.1 / 64


def test_gpus_with_links_of_their_own_are_known_from_cards() -> None:
    assert {name for name, gpu in GPUS.items() if gpu.linked_by_pcie} == {"h100-pcie", "l4", "l40s"}


def test_a_card_pays_more_for_tensor_parallelism_than_the_same_gpu_with_nvlink() -> None:
    """Decode of one request of Llama 3.3 70B on four L40S: 160 collectives of 19.8 instead of 12.1 us."""
    model, card = catalogue.load("llama-3.3-70b"), GPUS["l40s"]
    linked = card.model_copy(update={"link_bytes_per_s": card.pcie_bytes_per_s * 1.001})
    steps = [Roofline(model, gpu, Layout(tensor=4), "fp8").step_s(decodes=1, context=1) for gpu in (card, linked)]
    vector = 1.5 * 2 * 8192 / 32e9 * (1 / 0.55 - 1 / 0.691 / 1.001)
    assert steps[0] - steps[1] == pytest.approx(160 * (19.8e-6 - NVLINK_S + vector) * CALIBRATION.engine, rel=1e-6)


@pytest.mark.parametrize(("ranks", "latency_us"), [(16, 12.1 + 28), (32, 12.1 + 56)])
def test_a_collective_over_nodes_takes_steps_of_the_network(ranks: int, latency_us: float) -> None:
    network = links("h100-sxm", ranks)
    assert network.latency_s == pytest.approx(latency_us * 1e-6)
    assert network.bytes_per_s == pytest.approx(50e9 * 0.691)


def test_a_rack_of_nvlink_is_no_network() -> None:
    assert links("gb200", 72) == links("gb200", 4)


def test_tensor_parallelism_within_a_node_does_not_pay_for_experts_on_several() -> None:
    """TP8 x DP2 on two nodes: all-reduces of eight ranks stay on NVLink, dispatch and combine of sixteen do not."""
    model, gpu = catalogue.load("deepseek-v3"), GPUS["h100-sxm"]
    rack = gpu.model_copy(update={"link_domain": 16})
    layout = Layout(tensor=8, data=2, expert_parallel=True)
    over, within = (Roofline(model, kind, layout, "fp8").step_s(decodes=1, context=1) for kind in (gpu, rack))
    sent = 1 / 8 * 8 * 2 * 7168 * (1 - 1 / 16)
    routed = 58 * 2 * (28e-6 + sent / 0.691 * (1 / 50e9 - 1 / 450e9))
    assert over - within == pytest.approx(routed * CALIBRATION.engine, rel=1e-6)


def test_a_hop_over_the_network_sends_slices_and_gathers_them() -> None:
    """Two vectors of 16 KB over two nodes with TP8: an eighth of both per GPU, then the other seven over NVLink."""
    hops = hops_of(GPUS["h100-sxm"], Layout(tensor=8, pipeline=2), 16_384, latency_s=NVLINK_S, share=SHARE)
    assert hops.fixed_s == pytest.approx(10e-6 + 12.1e-6)
    assert hops.token_s == pytest.approx(32_768 / 8 / (50e9 * 0.691) + 32_768 * 7 / 8 / (450e9 * 0.691))


def test_only_hops_between_nodes_are_over_the_network() -> None:
    """TP4 x PP4 on two nodes: three hops, one of them over the network."""
    hops = hops_of(GPUS["h100-sxm"], Layout(tensor=4, pipeline=4), 16_384, latency_s=NVLINK_S, share=SHARE)
    gathered = 32_768 * 3 / 4 / (450e9 * 0.691)
    moved = 32_768 / 4 / 0.691 * (2 / 450e9 + 1 / 50e9)
    assert hops.token_s == pytest.approx(3 * gathered + moved)
    assert hops_of(GPUS["l4"], Layout(), 16_384, latency_s=NVLINK_S, share=SHARE).fixed_s == 0


@pytest.mark.parametrize(
    ("layers", "head", "count", "stages", "seconds"),
    [
        # Equal stages: the output is on the last, and every other stage waits for it.
        (32.0, 2.0, 32, 2, 36.0),
        # 61 layers on four stages: 16, 15, 15 and 15, whichever of them has the most.
        (61.0, 0.0, 61, 4, 64.0),
        (61.0, 0.5, 61, 4, 64.0),
        (61.0, 3.0, 61, 4, 72.0),
        (61.0, 3.0, 61, 1, 64.0),
    ],
)
def test_a_full_pipeline_waits_for_its_slowest_stage(
    layers: float, head: float, count: int, stages: int, seconds: float
) -> None:
    assert pipelined_s(layers, head, count=count, stages=stages) == pytest.approx(seconds)


def test_one_request_alone_passes_every_stage_and_no_other() -> None:
    """Llama 3.1 8B on two stages: all its layers, one output, one hop. In a full one the output counts in both."""
    model, gpu = catalogue.load("llama-3.1-8b"), GPUS["h200-sxm"]
    whole, halves = (Roofline(model, gpu, layout, "bf16") for layout in (Layout(), Layout(pipeline=2)))
    hop = 10e-6 + 2 * 2 * 4096 / (450e9 * 0.691)
    alone = halves.step_s(decodes=1, context=1, alone=True)
    assert alone == pytest.approx(whole.step_s(decodes=1, context=1) + hop * CALIBRATION.engine, rel=1e-9)
    output = 128_256 * 4096 * 2 * (1 / (4.8e12 * 0.95) + 1 / (989e12 * 0.815))
    full = halves.step_s(decodes=1, context=1)
    assert full - alone == pytest.approx(output * CALIBRATION.engine, rel=1e-6)


def test_a_pipelines_batches_share_the_requests() -> None:
    """Of 64 requests on two stages each batch has 32, and all get a token while a batch passes both stages."""
    case = Case(order("llama-3.3-70b"), Layout(tensor=2, pipeline=2), 1)
    step = case.roofline.step_s(decodes=32, context=case.order.request_tokens)
    assert case.decode_s(64) == step
    assert case.decode_s(1) == case.roofline.step_s(decodes=1, context=case.order.request_tokens, alone=True)
    assert case.decode_s(1) < case.decode_s(2)


def test_two_stages_give_no_more_than_two_replicas_would_and_no_token_sooner() -> None:
    wanted = order("llama-3.3-70b")
    single, two = Case(wanted, Layout(tensor=4), 1), Case(wanted, Layout(tensor=4, pipeline=2), 1)
    assert two.decode_s(1) > single.decode_s(1)
    slots = single.slots
    # Each half of twice the requests in the time of one replica's: no faster than two replicas, with its hops slower.
    assert 1.0 < two.decode_s(2 * slots) / single.decode_s(slots) < 1.1


def test_no_layout_is_searched_whose_layers_talk_over_the_network() -> None:
    model = catalogue.load("deepseek-v3")
    for name in ("h100-sxm", "gb200", "l40s"):
        gpu = GPUS[name]
        for layout in candidates(model, gpu):
            assert layout.tensor * layout.data <= gpu.link_domain
    assert Layout(tensor=8) in set(candidates(model, GPUS["gb200"]))
    assert Layout(tensor=8) not in set(candidates(model, GPUS["gb200"], most=GPUS["gb200"].gpus_per_node))


def test_tensor_parallelism_over_nodes_is_charged_where_a_site_asks_for_it() -> None:
    """405B on sixteen H100: TP16 waits for the network at each of 252 all-reduces, a pipeline once."""
    wanted = replace(order("llama-3.1-405b", "h100-sxm"), gpus=16)
    flat, piped = (Case(wanted, layout, 1) for layout in (Layout(tensor=16), Layout(tensor=8, pipeline=2)))
    waits = 252 * 28e-6 * CALIBRATION.engine
    near = Roofline(wanted.model, wanted.hardware.model_copy(update={"link_domain": 16}), flat.layout, "fp8")
    assert flat.decode_s(1) - near.step_s(decodes=1, context=wanted.request_tokens) > waits
    assert flat.roofline.step_s(prefill=8192, reach=4096) > piped.roofline.step_s(prefill=8192, reach=4096, alone=True)
