"""What a search works out, and how often: the best case is found without proving everything again."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from stacks.facts import catalogue
from stacks.proof import replica as replica_module
from stacks.proof.case import Case
from stacks.proof.demand import Load, Prices, Slo, Spread
from stacks.proof.layouts import Layout, candidates
from stacks.proof.order import Order
from stacks.proof.proof import prove
from stacks.proof.replica import OneReplica, _kept, one_replica
from stacks.proof.roofline import Roofline
from stacks.proof.search import _rank, best, with_replicas
from stacks.proof.serving import Steady
from stacks.proof.speculation import Speculation
from tests.unit.proof.proof_orders import CHAT, GENERATING, TARGETS, fixed, order

BUSY = replace(CHAT, requests_per_s=30.0)
SLOW = Slo.of(ttft_p95_ms=4000, itl_p95_ms=25)
STEADY, STEPS, REPLICAS = "steady states", "steps of the roofline", "replicas worked out"


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """How often each is worked out from now on, with nothing kept from before."""
    counts: Counter[str] = Counter()
    scheduler = Steady.__init__

    class Counted(Roofline):
        def step_s(self, **load: Any) -> float:
            counts[STEPS] += 1
            return super().step_s(**load)

    def begun(self: Steady, *values: Any) -> None:
        counts[STEADY] += 1
        scheduler(self, *values)

    def worked_out(order: Order, layout: Any) -> OneReplica:
        counts[REPLICAS] += 1
        return OneReplica(order, layout)

    monkeypatch.setattr("stacks.proof.drafts.Roofline", Counted)
    monkeypatch.setattr(Steady, "__init__", begun)
    monkeypatch.setattr("stacks.proof.replica.OneReplica", worked_out)
    _kept.cache_clear()
    yield counts
    _kept.cache_clear()


def every_case(wanted: Order) -> Iterator[Case]:
    """The case of each layout of a node, none left out."""
    for layout in candidates(wanted.model, wanted.hardware, most=wanted.hardware.gpus_per_node):
        first = Case(wanted, layout, wanted.replicas or 1)
        yield first if wanted.replicas or not wanted.load else with_replicas(first)


@pytest.mark.parametrize("name", GENERATING[::3])
@pytest.mark.parametrize(
    "more",
    [
        {"load": CHAT, "slo": TARGETS, "simple": True},
        {"load": BUSY, "slo": TARGETS},
        {"load": BUSY, "slo": SLOW, "simple": True},
        {"load": CHAT, "slo": TARGETS, "replicas": 2},
        {"simple": True},
    ],
    ids=["chat", "busy", "slow", "two", "unloaded"],
)
def test_what_the_search_leaves_out_is_never_the_best(name: str, more: dict[str, Any]) -> None:
    wanted = order(name, one_node=True, **more)
    case, other = best(wanted), min(every_case(wanted), key=_rank)
    assert (case.layout, case.replicas, case.problems) == (other.layout, other.replicas, other.problems)


@pytest.mark.parametrize("name", ["glm-5.1-fp8", "gemma-3-27b", "qwen3-next-80b-a3b", "bge-m3"])
def test_a_case_made_of_another_is_the_same_as_one_of_its_own(name: str) -> None:
    wanted = order(name, load=CHAT, slo=SLOW)
    first = Case(wanted, best(wanted).layout, 1)
    for replicas, rate in ((1, 0.01), (3, 2.0), (40, 30.0)):
        made = first.again(replicas=replicas, requests_per_s=rate)
        own = Case(replace(wanted, load=replace(CHAT, requests_per_s=rate)), first.layout, replicas)
        assert made == own
        assert (made.slots, made.batched_tokens, made.context) == (own.slots, own.batched_tokens, own.context)
        assert prove(replace(made.order, layout=made.layout, replicas=replicas)).figures() == {
            **prove(replace(own.order, layout=own.layout, replicas=replicas)).figures()
        }
        assert made.problems == own.problems
        if made.steady.stable:
            assert made.steady.ttft == own.steady.ttft


def test_one_proof_works_out_few_steady_states(counted: Counter[str]) -> None:
    """A number that grows here grows every preview, and what CI takes for many sites."""
    per_model: dict[str, Counter[str]] = {}
    for name in catalogue.names():
        counted.clear()
        load = CHAT if catalogue.load(name).task == "generate" else Load(requests_per_s=20.0)
        best(order(name, load=load, slo=TARGETS, simple=True, one_node=True)).problems  # noqa: B018 - asked for
        per_model[name] = Counter(counted)
    kinds = (STEADY, STEPS, REPLICAS)
    typical = {kind: median(counts[kind] for counts in per_model.values()) for kind in kinds}
    most = {kind: max(counts[kind] for counts in per_model.values()) for kind in kinds}
    assert all(typical[kind] <= limit for kind, limit in {STEADY: 5, STEPS: 130, REPLICAS: 5}.items()), typical
    assert all(most[kind] <= limit for kind, limit in {STEADY: 50, STEPS: 1200, REPLICAS: 25}.items()), most


@pytest.mark.parametrize("name", ["deepseek-r1", "gpt-oss-120b", "qwen3-8b", "kimi-k2.5"])
@pytest.mark.parametrize("layout", [None, Layout(tensor=8)], ids=["free", "eight"])
def test_a_better_layout_is_sought_from_the_one_that_is_known(
    name: str, layout: Layout | None, counted: Counter[str]
) -> None:
    settled = prove(order(name, load=CHAT, slo=TARGETS, simple=True, one_node=True, layout=layout))
    assert settled.holds
    free = replace(settled.order, simple=False, layout=None)
    counted.clear()
    alone = prove(free)
    assert alone.holds
    asked = counted[STEADY]
    counted.clear()
    better = prove(free, known=settled)
    assert better.holds
    # A layout that the site names says less of the others, and may cost one more to find out.
    assert counted[STEADY] < asked + (2 if layout else 0)
    assert (better.case, better.figures()) == (alone.case, alone.figures())


def test_capacity_works_out_no_replica_again(counted: Counter[str]) -> None:
    proof = prove(order("qwen3-8b", load=CHAT, slo=TARGETS, simple=True))
    counted.clear()
    assert proof.capacity_requests_per_s > CHAT.requests_per_s
    assert counted[REPLICAS] == 0
    # Rates that double until one is too much, and seven halvings.
    assert counted[STEADY] <= 16


def test_sites_that_serve_the_same_share_what_a_replica_is(counted: Counter[str]) -> None:
    """Another name, price, number of replicas or rate of requests is none of a replica's."""
    wanted = order("qwen3-8b", load=CHAT, slo=TARGETS)
    rarer = replace(CHAT, requests_per_s=0.1, prefix_hit=0.4)
    like = replace(wanted, name="other", replicas=3, load=rarer, simple=True, prices=Prices(gpu_hour=9.0))
    assert one_replica(wanted, Layout()) is one_replica(like, Layout())
    others = [
        replace(wanted, slo=SLOW),
        replace(wanted, load=replace(CHAT, answer_tokens=Spread(40, 90))),
        replace(wanted, context_tokens=4096),
        replace(wanted, gpu="h100-sxm"),
        replace(wanted, model=wanted.model.model_copy()),
        replace(wanted, speculation=Speculation(method="ngram", tokens=2, acceptance=0.5)),
        replace(wanted, speculation=Speculation(method="ngram", tokens=2, acceptance=0.6)),
    ]
    kept = {id(one_replica(other, Layout())) for other in [wanted, *others]}
    assert len(kept) == counted[REPLICAS] == 1 + len(others)


def test_a_replica_reads_nothing_of_an_order_that_it_is_not_kept_by() -> None:
    source = ast.parse(Path(replica_module.__file__).read_text())
    classes = {node.name: node for node in source.body if isinstance(node, ast.ClassDef)}
    reads, kept = (
        {node.attr for node in ast.walk(classes[name]) if isinstance(node, ast.Attribute) and _of_order(node)}
        for name in ("OneReplica", "_Asked")
    )
    # Properties of an order, by the fields that they read.
    behind = {
        "hardware": {"gpu"},
        "tokens_per_step": {"speculation"},
        "request_tokens": {"load", "typical_request_tokens", "model"},
        "needed_context": {"context_tokens", "load"},
    }
    assert {field for name in reads for field in behind.get(name, {name})} <= kept


def _of_order(node: ast.Attribute) -> bool:
    owner = node.value
    return (isinstance(owner, ast.Name) and owner.id == "order") or (
        isinstance(owner, ast.Attribute) and owner.attr == "order"
    )


@pytest.mark.parametrize("times", [3, 15, 70, 1e3, 1e6])
def test_capacity_is_found_from_a_load_that_is_so_many_times_too_large(times: float) -> None:
    wanted = order("qwen3-8b", load=CHAT, slo=TARGETS, layout=Layout(), replicas=1)
    known = prove(wanted)
    asked = prove(replace(wanted, load=replace(CHAT, requests_per_s=times * known.capacity_requests_per_s)))
    for end in ("fast", "nominal", "slow"):
        most = getattr(known.ends, end).capacity_requests_per_s
        assert getattr(asked.ends, end).capacity_requests_per_s == pytest.approx(most, rel=0.03), end
    hopeless = replace(asked.order, slo=Slo.of(ttft_p95_ms=1))
    assert prove(hopeless).capacity_requests_per_s == 0


def test_of_layouts_that_work_the_fewest_gpus_come_first() -> None:
    wanted = order("qwen3-32b-fp8", load=CHAT, slo=TARGETS, replicas=2)
    single, double = (Case(wanted, Layout(tensor=tensor), 2) for tensor in (1, 2))
    assert not single.problems
    assert not double.problems
    assert double.token_s(1) < single.token_s(1)
    assert _rank(single) < _rank(double)


def test_tensor_parallelism_alone_comes_first_only_if_so_ordered() -> None:
    """Although its answers are slower on as many GPUs, as each rank reads all heads' caches."""
    layouts = Layout(tensor=8), Layout(tensor=2, data=4)
    for simple in (False, True):
        wanted = order("deepseek-v3.2", load=replace(CHAT, requests_per_s=4.0), replicas=2, simple=simple)
        alone, divided = (Case(wanted, layout, 2) for layout in layouts)
        assert not alone.problems
        assert not divided.problems
        assert divided.steady.itl_mean_s < alone.steady.itl_mean_s
        assert (_rank(alone) < _rank(divided)) == simple


def test_a_layout_that_no_engine_starts_with_is_the_farthest_of_all() -> None:
    """The nearest case names the fix: weights that do not fit can, and heads that do not divide cannot."""
    wanted = order("llama-3.1-405b", kv_dtype="bf16")
    illegal, heavy = Case(wanted, Layout(tensor=3), 1), Case(wanted, Layout(tensor=1), 1)
    assert [problem.kind for problem in illegal.problems] == ["illegal"]
    assert [problem.kind for problem in heavy.problems] == ["weights"]
    assert _rank(heavy) < _rank(illegal)


@pytest.mark.parametrize(("name", "prompt", "rate"), [("glm-5.1-fp8", 4000, 1.0), ("gpt-oss-120b", 8000, 4.0)])
def test_of_as_many_gpus_the_layout_with_the_shortest_answers_is_taken(name: str, prompt: float, rate: float) -> None:
    """From the request to its last token: of short answers most of that is the wait for the first one."""
    wanted = order(name, load=fixed(prompt, 4, rate=rate), gpus=8, replicas=1)
    cases = [Case(wanted, layout, 1) for layout in candidates(wanted.model, wanted.hardware, gpus=8, most=8)]
    working = [case.steady for case in cases if not case.problems and case.layout.pipeline == 1]
    assert len(working) > 5
    times = sorted(steady.itl_mean_s + steady.ttft_quantile_s(0.95) / 4 for steady in working)
    chosen = best(wanted).steady
    assert chosen.itl_mean_s + chosen.ttft_quantile_s(0.95) / 4 == pytest.approx(times[0])
    assert times[0] < 0.75 * times[-1]
