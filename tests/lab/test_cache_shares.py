"""How much of a model's KV cache is held: by the gatekeeper in the pinned Envoy, counted in the real store."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from components.gateway.door_scripts import RANK_PATH
from components.specs.access import TenantSpec
from components.specs.callers import Dedicated, SharedCache
from components.specs.limits import LimitsSpec
from components.specs.tiers import TierSpec
from lab.paths import Lab
from tests.lab.gatekeeper_rig import MODEL, Rig, rig
from tests.lab.waiting import eventually

pytestmark = pytest.mark.row("001.14", "001.27", "opening 6")

CHAT = "/v1/chat/completions"
CACHE = SharedCache(tokens=10_000, context=2_000, answer=500)
SHARE = 1_000
# As the gatekeeper estimates a prompt.
_BYTES_OF_A_TOKEN = 4
LIMITS = LimitsSpec(kv_cache_share=SHARE / CACHE.tokens)


def tenant(limits: LimitsSpec | None = LIMITS) -> TenantSpec:
    return TenantSpec(models=(MODEL,), limits=limits, prefix_cache="shared")


TENANTS = {"acme": tenant(), "globex": tenant(), "free": tenant(None), "own": tenant(), "steps": tenant()}
OWN = "chat-own"


@pytest.fixture(scope="module")
def door(module_lab_of_tools: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """`own` has replicas of its own, with a cache of twice the size."""
    caches = {MODEL: CACHE, OWN: SharedCache(tokens=2 * CACHE.tokens, context=CACHE.context, answer=CACHE.answer)}
    dedicated = {"own": {MODEL: Dedicated(revision=OWN, when_away="refuse")}}
    folder = tmp_path_factory.mktemp("rig")
    with rig(module_lab_of_tools, folder, TENANTS, dedicated=dedicated, caches=caches) as made:
        yield made


def body_of(tokens: int, **given: Any) -> bytes:
    """A request that holds so many tokens at its end: one answer, and the prompt by its bytes."""
    body = {"model": MODEL, "stream": True, "max_tokens": 100, **given}
    body["max_tokens"] = tokens - len(json.dumps(body)) // _BYTES_OF_A_TOKEN
    return json.dumps(body).encode()


def held(door: Rig, stack: ExitStack, tenant: str, body: bytes, path: str = CHAT) -> int:
    """Status of a request that goes on until the stack closes."""
    answer = stack.enter_context(door.client.stream("POST", path, content=body, headers=door.headers(tenant)))
    return answer.status_code


@pytest.fixture(autouse=True)
def _answers_go_on(door: Rig) -> Iterator[None]:
    door.engine.go_on.clear()
    yield
    door.engine.go_on.set()
    eventually(lambda: not any(door.under_way(f"{name}:{MODEL}", "cache") for name in TENANTS))


def test_a_tenant_holds_no_more_than_its_share(door: Rig) -> None:
    with ExitStack() as stack:
        assert held(door, stack, "acme", body_of(SHARE // 2)) == 200
        refused = door.ask("acme", body_of(SHARE // 2 + 1))
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "rate_limit_exceeded")
        assert refused.headers["retry-after"] == "1"
        for figure in (f"need {SHARE // 2 + 1} tokens", f"KV cache of {MODEL}", f"the {SHARE} that it may hold"):
            assert figure in refused.json()["error"]["message"]
        assert held(door, stack, "acme", body_of(SHARE // 2)) == 200
        assert held(door, stack, "globex", body_of(SHARE)) == 200
        assert held(door, stack, "free", body_of(10 * SHARE)) == 200
    with ExitStack() as stack:
        eventually(lambda: held(door, stack, "acme", body_of(SHARE)) == 200)


def test_a_request_to_rank_holds_all_but_its_documents_once_for_each(door: Rig) -> None:
    query, documents = "x" * 400, ["a", "b", "c"]
    body = json.dumps({"model": MODEL, "stream": True, "query": query, "documents": documents}).encode()
    with ExitStack() as stack:
        assert held(door, stack, "acme", body, RANK_PATH) == 200
        members = door.of_store(f"ZRANGE cache:acme:{MODEL} 0 -1").decode().split()
    read = len(body) + (len(documents) - 1) * (len(body) - len(json.dumps(documents)))
    assert members[-1].rpartition(":")[2] == str(read // _BYTES_OF_A_TOKEN)


@pytest.mark.parametrize(
    ("path", "given", "tokens"),
    [
        pytest.param(CHAT, {}, CACHE.answer, id="no length"),
        pytest.param(CHAT, {"max_tokens": 300}, 300, id="chat"),
        pytest.param(CHAT, {"max_tokens": 1, "max_completion_tokens": 200}, 200, id="two lengths"),
        pytest.param(CHAT, {"max_tokens": 300, "n": 2}, 600, id="two answers"),
        pytest.param("/v1/completions", {"max_tokens": 100, "prompt": ["a", "b", "c"]}, 300, id="three prompts"),
        pytest.param("/v1/completions", {"prompt": ["x" * 4000] * 3, "max_tokens": 500}, 1500, id="long prompts"),
        pytest.param("/v1/responses", {"max_output_tokens": 300}, 300, id="responses"),
        pytest.param("/anthropic/v1/messages", {"max_tokens": 300}, 300, id="messages"),
        pytest.param("/v1/embeddings", {"input": "x" * 1000}, 0, id="embeddings"),
        pytest.param(CHAT, {"max_tokens": 1e15, "n": 1}, CACHE.context, id="past the context"),
        pytest.param(CHAT, {"max_tokens": 300, "n": 1e15}, 300 * 2**16, id="past all numbers"),
    ],
)
def test_each_api_holds_its_prompt_and_its_answers(door: Rig, path: str, given: dict[str, Any], tokens: int) -> None:
    body = json.dumps({"model": MODEL, "stream": True, **given}).encode()
    # Of a list each prompt has a context of its own.
    prompts = len(given.get("prompt", " "))
    prompt = prompts * (len(body) // _BYTES_OF_A_TOKEN // prompts)
    takes = CACHE.context if tokens == CACHE.context else prompt + tokens
    with ExitStack() as stack:
        assert held(door, stack, "acme", body, path) == 200
        members = door.of_store(f"ZRANGE cache:acme:{MODEL} 0 -1").decode().split()
        assert members[-1].rpartition(":")[2] == str(takes)


def test_a_request_that_is_larger_than_the_share_goes_alone(door: Rig) -> None:
    with ExitStack() as stack:
        assert held(door, stack, "globex", body_of(2 * SHARE)) == 200
        assert door.ask("globex", body_of(20)).status_code == 429
    with ExitStack() as stack:
        eventually(lambda: held(door, stack, "globex", body_of(20)) == 200)
        assert door.ask("globex", body_of(2 * SHARE)).status_code == 429


def test_dedicated_replicas_have_a_share_of_their_own_cache(door: Rig) -> None:
    with ExitStack() as stack:
        assert [held(door, stack, "own", body_of(SHARE)) for _ in range(2)] == [200, 200]
        assert door.ask("own", body_of(20)).status_code == 429


@pytest.mark.row("001.19")
def test_all_tenants_hold_no_more_than_a_model_has_pages_for(lab_of_tools: Lab, tmp_path: Path) -> None:
    """A prompt with an answer of the mean length, or of a shorter one that its client sets."""
    cache = SharedCache(tokens=9_999, context=2_000, answer=500, room=1_000, expected=200)
    with rig(lab_of_tools, tmp_path, {"free": tenant(None), "other": tenant(None)}, caches={MODEL: cache}) as made:
        long = body_of(5_000)
        takes = len(long) // _BYTES_OF_A_TOKEN + cache.expected
        with ExitStack() as stack:
            held_all = [held(made, stack, caller, long) for caller in ("free", "other", "free", "other")]
            left = cache.room - len(held_all) * takes
            assert held_all == [200] * 4
            assert 0 < left < takes
            refused = made.ask("other", long)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "model_overloaded")
            assert refused.headers["retry-after"] == "1"
            assert held(made, stack, "other", body_of(left)) == 200
            assert made.ask("free", body_of(30)).status_code == 503


@pytest.mark.row("001.02", "004.16")
def test_a_part_of_a_models_room_is_kept_for_other_tiers(lab_of_tools: Lab, tmp_path: Path) -> None:
    """A tier is admitted by what all hold together, and so is a request that wishes for it."""
    tiers = {"chat": TierSpec(priority=10), "batch": TierSpec(priority=-10, admitted_below=0.5)}
    tenants = {name: TenantSpec(models=(MODEL,), tier=tier) for name, tier in (("chats", "chat"), ("jobs", "batch"))}
    cache = SharedCache(tokens=9_999, context=2_000, answer=500, room=1_000, expected=200)
    with rig(lab_of_tools, tmp_path, tenants, tiers, caches={MODEL: cache}) as made, ExitStack() as stack:
        assert held(made, stack, "jobs", body_of(150)) == 200
        assert held(made, stack, "chats", body_of(150)) == 200
        assert held(made, stack, "jobs", body_of(150)) == 200
        for caller, given in (("jobs", {}), ("chats", {"service_tier": "flex"})):
            refused = made.ask(caller, body_of(150, **given))
            assert (refused.status_code, refused.json()["error"]["code"]) == (429, "rate_limit_exceeded")
            assert "kept for other tiers than batch" in refused.json()["error"]["message"]
        assert [held(made, stack, "chats", body_of(150)) for _ in range(3)] == [200] * 3


def test_shares_hold_in_any_order_of_requests(door: Rig) -> None:
    """Compared with what is under way by the answers that clients got."""
    chance, under_way = random.Random(0), list[tuple[int, ExitStack]]()  # noqa: S311 - the same steps each time
    admitted = refused = 0
    for _ in range(150):
        if under_way and chance.random() < 0.4:
            _, ending = under_way.pop(chance.randrange(len(under_way)))
            ending.close()
            eventually(lambda: door.under_way(f"steps:{MODEL}", "cache") == len(under_way))
            continue
        tokens, stack = chance.randrange(40, 600), ExitStack()
        fits = not under_way or sum(size for size, _ in under_way) + tokens <= SHARE
        assert held(door, stack, "steps", body_of(tokens)) == (200 if fits else 429)
        if fits:
            admitted += 1
            under_way.append((tokens, stack))
        else:
            refused += 1
            stack.close()
    assert admitted > 30 < refused
    for _, stack in under_way:
        stack.close()
