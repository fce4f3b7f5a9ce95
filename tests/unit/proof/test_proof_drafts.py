"""What drafts in the proof keep and load, what cannot draft, and what the proof offers then."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stacks.facts import catalogue
from stacks.facts.catalogue import DenseFeedForward
from stacks.plan.block import block
from stacks.proof.cache import BLOCK_TOKENS, cache_of, state_bytes
from stacks.proof.case import Case
from stacks.proof.demand import Slo
from stacks.proof.drafts import draft_files, draft_weights
from stacks.proof.fixes import nearest
from stacks.proof.gains import without_drafts
from stacks.proof.layouts import Layout, weights_per_gpu
from stacks.proof.memory import footprint_of
from stacks.proof.proof import Proof, prove
from stacks.proof.speculation import Method, Speculation, drafter, why_unsuited
from stacks.proof.weights import parameters, weight_bytes
from tests.unit.proof.proof_orders import CHAT, case_of, drafting, order

pytestmark = pytest.mark.row("001.22", "002.08", "003.03")

ONE = Layout()
EIGHT = Layout(tensor=8)
SMALL = catalogue.load("qwen3-0.6b")


def test_more_logits_and_graphs_are_kept_free() -> None:
    model = catalogue.load("qwen3-32b-fp8")
    plain = footprint_of(model, ONE, (0, 32)).reserve(sequences=256, batched_tokens=8192)
    wide = footprint_of(model, ONE, (0, 32), drafting("ngram", 3)).reserve(sequences=256, batched_tokens=8192)
    # 1,024 logits of 151,936 tokens at 15 bytes, and a step's output.
    assert wide.step == 1024 * 151_936 * 15 + 8192 * 2 * 5120
    assert plain.step < wide.step
    few = footprint_of(model, ONE, (0, 32), drafting("ngram", 3)).reserve(sequences=8, batched_tokens=8192)
    # Sizes up to 64: 1, 2, 4, and eight more; with one token of each up to 16.
    assert few.graphs / footprint_of(model, ONE, (0, 32)).reserve(sequences=8, batched_tokens=8192).graphs == 11 / 5
    drafted = footprint_of(model, ONE, (0, 32), drafting("draft", 3)).reserve(sequences=8, batched_tokens=8192)
    assert drafted.graphs / few.graphs == pytest.approx((64 + 28) / 64)


@pytest.mark.parametrize(("method", "places"), [("ngram", 4), ("draft", 8), ("mtp", 8)])
def test_requests_keep_places_for_drafted_tokens(method: Method, places: int) -> None:
    speculation = drafting(method, 4)
    assert speculation.lookahead == places
    cache = cache_of(catalogue.load("deepseek-v3"), EIGHT, "fp8", speculation)
    block_bytes = cache.block_bytes
    assert cache.request_bytes(10 * BLOCK_TOKENS - places) == 10 * block_bytes
    assert cache.request_bytes(10 * BLOCK_TOKENS - places + 1) == 11 * block_bytes


def test_windows_keep_drafted_tokens_too() -> None:
    model = catalogue.load("gpt-oss-120b")
    plain, wide = (cache_of(model, ONE, "bf16", spec) for spec in (None, drafting("ngram", 16)))
    # A full window is a block longer for 16 more tokens under way, and the layers that keep all hold a block more.
    window = next(group for group in wide.groups if group.window)
    assert wide.request_bytes(64_000) - plain.request_bytes(64_000) == wide.block_bytes * (window.count + 1)


def test_what_drafts_has_a_cache_of_its_own() -> None:
    """A draft layer of DeepSeek-V3 keeps what each of its 61 layers keeps; a draft model keeps its 28 layers."""
    deepseek, qwen = catalogue.load("deepseek-v3"), catalogue.load("qwen3-32b-fp8")
    plain, mtp = (cache_of(deepseek, EIGHT, "fp8", spec) for spec in (None, drafting("mtp", 1)))
    assert mtp.per_token == pytest.approx(plain.per_token * 62 / 61)
    two = Layout(tensor=2)
    sizes = [cache_of(model, two, "fp8").per_token for model in (qwen, SMALL)]
    assert cache_of(qwen, two, "fp8", drafting("draft")).per_token == sum(sizes)
    assert cache_of(qwen, two, "fp8", drafting("ngram")).per_token == sizes[0]


def test_each_drafted_token_has_a_state_until_it_is_accepted() -> None:
    """vLLM v1/kv_cache_interface.py, MambaSpec: 2 + num_speculative_blocks pages."""
    model = catalogue.load("qwen3-next-80b-a3b")
    plain, wide = (cache_of(model, ONE, "fp8", spec) for spec in (None, drafting("ngram", 3)))
    assert wide.state / wide.block_bytes == plain.state / plain.block_bytes * 5 / 2
    # The convolution's tail has as many places more, and attention's blocks are made as large.
    longer = state_bytes(model.mixers["linear"], ranks=1, drafted=3) - state_bytes(model.mixers["linear"], ranks=1)
    assert longer == 3 * 2 * 8192
    assert plain.block_bytes < wide.block_bytes <= plain.block_bytes + 12 * (longer + 16 * 1024)


def test_a_draft_layer_weighs_what_its_makers_say() -> None:
    """README_WEIGHTS.md of DeepSeek-V3: 11.5 billion parameters of its own, beside embeddings that it shares; FP8."""
    model = catalogue.load("deepseek-v3")
    assert parameters(model).draft / 1e9 == pytest.approx(11.5, rel=0.012)
    # More by what is in 16 bits: the projection of two vectors to one, and the copies that latent attention makes.
    more = (2 * 7168**2 + 256 * 7168 + 2 * 128 * 512 * 256) / 1e9
    assert draft_weights(model, ONE, drafting("mtp", 1)) / 1e9 == pytest.approx(11.61 + more, rel=1e-3)
    eighth = draft_weights(model, EIGHT, drafting("mtp", 1)) / 1e9
    # The projection is whole on each rank.
    assert 11.5 / 8 + 4 * 7168**2 / 1e9 < eighth < 11.5 / 8 + 4 * 7168**2 / 1e9 + 0.05
    assert draft_weights(model, EIGHT, drafting("ngram")) == draft_weights(model, EIGHT, None) == 0


def test_a_draft_model_is_loaded_and_read() -> None:
    case = case_of("qwen3-32b-fp8", drafting("draft"), Layout(tensor=2))
    plain = without_drafts(case)
    assert case.weights - plain.weights == pytest.approx(weights_per_gpu(SMALL, Layout(tensor=2)))
    files = weight_bytes(SMALL).files
    assert draft_files(case.order.speculation) == files
    read = Proof(case).cold_start["read_weights"].value - Proof(plain).cold_start["read_weights"].value
    assert read == pytest.approx(files / case.order.storage_bytes_per_s)


@pytest.mark.parametrize(("method", "budgeted"), [("ngram", 4), ("mtp", 4), ("draft", 5)])
def test_a_step_has_room_for_all_that_it_verifies(method: Method, budgeted: int) -> None:
    case = case_of("qwen3-next-80b-a3b", drafting(method, 3), Layout(tensor=4), max_num_batched_tokens=512)
    assert case.width == budgeted
    assert case.slots == 512 // budgeted
    wide = case_of("qwen3-next-80b-a3b", drafting(method, 3), Layout(tensor=4), max_num_seqs=512 // budgeted + 1)
    full = Case(replace(wide.order, max_num_batched_tokens=512), wide.layout, 1)
    assert "setting" in {problem.kind for problem in full.fit_problems}


def test_a_pipeline_does_not_draft() -> None:
    case = case_of("llama-3.3-70b", drafting("ngram"), Layout(tensor=4, pipeline=2))
    assert [problem.kind for problem in case.fit_problems] == ["illegal"]
    assert "pipeline stages" in case.fit_problems[0].text
    chosen = prove(order("llama-3.1-405b", speculation=drafting("ngram"), load=CHAT, one_node=True)).case
    assert chosen.layout.pipeline == 1


def test_a_draft_model_must_be_cut_like_the_model() -> None:
    """Qwen3-0.6B has 16 heads, which 32 ranks cannot divide; Qwen3-8B has 32."""
    case = case_of("qwen3-8b", drafting("draft"), Layout(tensor=32))
    assert "Qwen/Qwen3-0.6B, which drafts: 16 heads cannot be divided by TP32" in case.fit_problems[0].text


@pytest.mark.parametrize(
    ("name", "speculation", "key", "why"),
    [
        ("qwen3-32b-fp8", drafting("mtp", 1), "method", "names no draft_layers"),
        ("bge-m3", drafting("ngram"), "method", "its task is embed"),
        ("llama-3.3-70b", drafting("draft"), "catalogue", "151,936 tokens, and that of"),
        ("qwen3-8b", replace(drafting("draft"), draft=catalogue.load("qwen3-embedding-0.6b")), "catalogue", "embed"),
        ("deepseek-v3", drafting("mtp", 3), "", ""),
    ],
)
def test_what_cannot_draft_for_a_model_is_named(name: str, speculation: Speculation, key: str, why: str) -> None:
    unsuited = why_unsuited(catalogue.load(name), speculation)
    assert (unsuited.key if unsuited else "") == key
    assert why in (unsuited.why if unsuited else "")


def test_further_tokens_go_through_all_draft_layers_again() -> None:
    model = catalogue.load("deepseek-v3").model_copy(update={"draft_layers": 2})
    assert why_unsuited(model, drafting("mtp", 1)) is None
    assert why_unsuited(model, drafting("mtp", 4)) is None
    unsuited = why_unsuited(model, drafting("mtp", 3))
    assert unsuited is not None
    assert unsuited.key == "tokens"


def test_code_of_a_draft_models_repository_is_not_run_by_the_way() -> None:
    code = catalogue.RemoteCode(reason="its layers are its own", files=("modeling.py",))
    draft = SMALL.model_copy(update={"remote_code": code})
    speculation = replace(drafting("draft"), draft=draft)
    unsuited = why_unsuited(catalogue.load("qwen3-32b-fp8"), speculation)
    assert unsuited is not None
    assert "needs code of its repository" in unsuited.why


def test_a_draft_that_ends_before_the_context_is_no_draft_of_it() -> None:
    asked = order("qwen3-next-80b-a3b", speculation=drafting("draft"), layout=Layout(tensor=4))
    proof = prove(asked)
    assert [problem.kind for problem in proof.problems] == ["context"]
    assert "drafts nothing beyond 40,960 tokens" in proof.problems[0].text
    assert prove(replace(asked, context_tokens=40_960)).holds


def test_where_drafts_are_the_reason_taking_them_out_is_a_fix() -> None:
    """A gap between steps is longer with drafts, whatever the tokens per second."""
    load = replace(CHAT, requests_per_s=0.2)
    plain = case_of("qwen3-32b-fp8", None, Layout(tensor=2), load=load, replicas=1)
    between = plain.decode_s(1) * 1e3 * 1.3
    slo, speculation = Slo.of(itl_p50_ms=between), drafting("draft", 8, 0.2)
    asked = replace(plain.order, layout=plain.layout, slo=slo, speculation=speculation)
    proof = prove(asked)
    assert not proof.holds
    assert prove(replace(asked, speculation=None)).holds
    assert nearest(proof)[0].text == "take server.speculative out"


def test_the_block_shows_what_drafts_and_what_it_changes() -> None:
    text = block(Proof(case_of("qwen3-32b-fp8", drafting("draft", 3, 0.7), Layout(tensor=2), load=CHAT)))
    drafts, gain = (
        next(line for line in text.splitlines() if line.strip().startswith(word)) for word in ("dra", "gai")
    )
    assert "draft by Qwen/Qwen3-0.6B, 3 per step, 70 % accepted as the site declares: 2.53 tokens per step" in drafts
    assert "one request x 1." in gain
    assert "at this load a mean of" in gain
    assert text.count("[estimated]") >= 2
    assert "drafts" not in block(Proof(case_of("qwen3-32b-fp8", None, Layout(tensor=2), load=CHAT)))


def test_a_dense_draft_layer_is_the_models_last_one() -> None:
    """Of layers of several kinds the last is the one that drafts: experts, behind dense ones."""
    model = catalogue.load("deepseek-v3")
    drafts = drafter(model, drafting("mtp", 1))
    assert drafts is not None
    assert not any(isinstance(layer, DenseFeedForward) for layer in drafts.feed_forward.values())
    assert (drafts.hidden, drafts.vocabulary, drafts.draft_layers) == (7168, 129_280, 0)
