"""What the gatekeeper decides by a request's body: what it takes out, sets, bounds and refuses, in the pinned Envoy."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from components.specs.access import TenantSpec
from components.specs.limits import LimitsSpec
from components.specs.tiers import TierSpec
from lab.paths import Lab
from tests.lab.gatekeeper_rig import CONTEXT, MODEL, Rig, rig
from tests.lab.waiting import eventually

pytestmark = pytest.mark.row("000.34")

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
RESPONSES, MESSAGES = "/v1/responses", "/anthropic/v1/messages"
ANSWER, PROMPT, PARALLEL = 100, 1000, 2
# Far more than a gatekeeper reads at once.
_MANY = 100
# As services/gatekeeper/slots.go has them.
_RENEWED_S, _FORGOTTEN_S = 11, 30
# Longer than a gatekeeper tries to take out a request that has ended.
_GIVEN_UP_S = 2


def tenant(**given: Any) -> TenantSpec:
    return TenantSpec(models=(MODEL,), **given)


TENANTS = {
    "acme": tenant(),
    "globex": tenant(tier="interactive"),
    "sharing": tenant(prefix_cache="shared"),
    "short": tenant(
        prefix_cache="shared", limits=LimitsSpec(max_answer_tokens=ANSWER, max_prompt_tokens=PROMPT), tier="batch"
    ),
    "narrow": tenant(limits=LimitsSpec(parallel_requests=PARALLEL)),
}
TIERS = {"interactive": TierSpec(priority=10), "standard": TierSpec(priority=0), "batch": TierSpec(priority=-10)}


@pytest.fixture(scope="module")
def door(module_lab_of_tools: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with rig(module_lab_of_tools, tmp_path_factory.mktemp("rig"), TENANTS, TIERS) as made:
        yield made


def at_engine(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    got: dict[str, Any] = answer.json()["body"]
    return got


def error(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, RESPONSES, "/v1/embeddings"])
def test_what_only_the_platform_decides_is_dropped_from_a_body(door: Rig, path: str) -> None:
    """Another field stays as it is, with its digits and its escapes."""
    own = b'{"model":"chat","seed":1.50,"user":"\\u00e9","x":{"priority":1}}'
    claims = {"priority": -9, "cache_salt": "x", "service_tier": "priority", "kv_transfer_params": {"host": "evil"}}
    claims |= {"ec_transfer_params": {}, "vllm_xargs": {"kv_transfer_params": "evil"}, "stream_interval": 10000}
    body = own[:-1] + b"," + json.dumps(claims).encode()[1:]
    got = at_engine(door.ask("sharing", body, path))
    assert got == json.loads(own)


@pytest.mark.row("opening 18")
def test_a_tenants_prompts_have_its_own_salt(door: Rig) -> None:
    salts = [
        at_engine(door.ask(name, {"model": MODEL, "cache_salt": "guessed"})).get("cache_salt")
        for name in ("acme", "acme", "globex", "sharing")
    ]
    assert salts[0] == salts[1] != salts[2]
    assert salts[3] is None
    assert len(str(salts[0])) == 32


def test_an_api_that_loses_the_salt_is_refused(door: Rig) -> None:
    assert error(door.ask("acme", {"model": MODEL}, MESSAGES)) == (403, "not_isolated")
    assert at_engine(door.ask("sharing", {"model": MODEL}, MESSAGES)) == {"model": MODEL}


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"chat","model":"other"}',
        b'{"model":"chat","mod\\u0065l":"other"}',
        b'{"model":"chat","Model":"other"}',
        b'{"model":"chat","PRIORITY":1}',
        b'{"model":"chat","\xe2\x84\xaav_transfer_params":1}',
        b'{"messages":[{"role":"user","role":"system"}]}',
        b'{"model":"chat"}{"model":"other"}',
        b'{"model":"chat"',
        b'{"model":"\xff"}',
        b"[]",
        b"null",
        b'{"model":"chat"' + b"".join(b',"%d":0' % number for number in range(50_001)) + b"}",
    ],
    ids=range(12),
)
def test_a_body_that_could_pass_as_two_is_refused(door: Rig, body: bytes) -> None:
    answer = door.ask("acme", body)
    assert error(answer) == (400, "invalid_request")
    assert answer.json()["error"]["message"]


@pytest.mark.row("001.37")
@pytest.mark.parametrize(
    ("path", "given", "bounded"),
    [
        (CHAT, {}, {"max_completion_tokens": ANSWER}),
        (CHAT, {"max_tokens": 5}, {"max_tokens": 5}),
        (
            CHAT,
            {"max_tokens": 10**9, "max_completion_tokens": None},
            {"max_tokens": ANSWER, "max_completion_tokens": None},
        ),
        (CHAT, {"max_tokens": 1000.0}, {"max_tokens": ANSWER}),
        (CHAT, {"max_tokens": 90, "n": 2}, {"max_tokens": ANSWER // 2, "n": 2}),
        (COMPLETIONS, {"prompt": ["a", "b"]}, {"prompt": ["a", "b"], "max_tokens": ANSWER // 2}),
        (COMPLETIONS, {"prompt": [1, 2, 3]}, {"prompt": [1, 2, 3], "max_tokens": ANSWER}),
        (COMPLETIONS, {"prompt": [[1], [2]], "n": 5}, {"prompt": [[1], [2]], "n": 5, "max_tokens": ANSWER // 10}),
        (RESPONSES, {"max_output_tokens": 2**40}, {"max_output_tokens": ANSWER}),
        (MESSAGES, {"max_tokens": 500}, {"max_tokens": ANSWER}),
        ("/v1/embeddings", {"input": "x"}, {"input": "x"}),
    ],
)
def test_no_answer_is_longer_than_its_tenant_may_have(
    door: Rig, path: str, given: dict[str, Any], bounded: dict[str, Any]
) -> None:
    got = at_engine(door.ask("short", {"model": MODEL, **given}, path))
    got.pop("priority", None)
    assert got == {"model": MODEL, **bounded}


@pytest.mark.parametrize("given", [{"max_tokens": "500"}, {"n": ANSWER + 1}, {"n": "2"}, {"max_tokens": 1e300}])
def test_a_length_that_cannot_be_bounded_is_refused(door: Rig, given: dict[str, Any]) -> None:
    assert error(door.ask("short", {"model": MODEL, **given})) == (400, "invalid_request")


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("options", [None, {"include_usage": False, "continuous_usage_stats": False}, "missing"])
def test_each_stream_ends_with_its_count_of_tokens(door: Rig, path: str, options: Any) -> None:
    """It is charged by that, whatever its client asks for."""
    door.engine.go_on.set()
    body = {"model": MODEL, "stream": True, **({} if options == "missing" else {"stream_options": options})}
    wanted = {**(options if isinstance(options, dict) else {}), "include_usage": True}
    assert at_engine(door.ask("sharing", body, path)) == {**body, "stream_options": wanted}


@pytest.mark.parametrize(
    ("path", "given"),
    [
        (CHAT, {}),
        (COMPLETIONS, {"stream": False, "stream_options": None}),
        (COMPLETIONS, {"stream": True, "stream_options": [1]}),
        (RESPONSES, {"stream": True, "stream_options": {"include_obfuscation": False}}),
    ],
)
def test_other_bodies_ask_for_no_count(door: Rig, path: str, given: dict[str, Any]) -> None:
    door.engine.go_on.set()
    assert at_engine(door.ask("sharing", {"model": MODEL, **given}, path)) == {"model": MODEL, **given}


def test_a_prompt_is_estimated_by_the_whole_body(door: Rig) -> None:
    """Also of a request that comes in chunks, which has no header with its length."""
    body = json.dumps({"model": MODEL, "input": "x" * 4000}).encode()
    answer = door.client.post(CHAT, content=iter([body[:9], body[9:]]), headers=door.headers("acme"))
    assert answer.json()["prompt"] == str(len(body) // 4)


@pytest.mark.row("004.13")
def test_a_prompt_is_estimated_as_no_longer_than_the_models_context(door: Rig) -> None:
    """A picture has many bytes for a token; a client that leaves its stream is billed by this estimate."""
    picture = {"model": MODEL, "messages": [{"role": "user", "content": "x" * 40 * CONTEXT}]}
    assert door.ask("sharing", picture).json()["prompt"] == str(CONTEXT)
    several = {"model": MODEL, "prompt": ["x" * 40 * CONTEXT, "y"]}
    assert door.ask("sharing", several, COMPLETIONS).json()["prompt"] == str(2 * CONTEXT)


@pytest.mark.row("001.07")
def test_a_prompt_above_its_tenants_limit_is_refused(door: Rig) -> None:
    assert error(door.ask("short", {"input": "x" * 4 * PROMPT})) == (400, "context_length_exceeded")
    assert door.ask("acme", {"input": "x" * 4 * PROMPT}).status_code == 200


@pytest.mark.row("002.15")
@pytest.mark.parametrize(
    ("name", "wish", "tier"),
    [
        ("globex", None, "interactive"),
        ("globex", "auto", "interactive"),
        ("globex", "batch", "batch"),
        ("globex", "flex", "batch"),
        ("short", "interactive", "batch"),
        ("acme", "interactive", ""),
        ("acme", "standard", "standard"),
    ],
)
def test_a_request_may_wish_for_a_lower_tier_and_for_none_above_its_tenants(
    door: Rig, name: str, wish: str | None, tier: str
) -> None:
    """The picker decides by the tier; in an engine the smallest number goes first, and none is 0."""
    answer = door.ask(name, {"model": MODEL, "priority": -999, **({"service_tier": wish} if wish else {})})
    assert answer.json()["tier"] == (f"{tier}.{MODEL}" if tier else "")
    assert at_engine(answer).get("priority", 0) == (-TIERS[tier].priority if tier else 0)


def test_an_api_that_loses_the_priority_gets_none(door: Rig) -> None:
    assert "priority" not in at_engine(door.ask("short", {"model": MODEL, "max_tokens": 1}, MESSAGES))


@pytest.mark.row("001.14")
def test_a_tenant_has_no_more_requests_under_way_than_it_may(door: Rig) -> None:
    """Also one that its client leaves has ended."""
    door.engine.go_on.clear()
    held = {"model": MODEL, "stream": True}
    with door.client.stream("POST", CHAT, json=held, headers=door.headers("narrow")):
        with door.client.stream("POST", CHAT, json=held, headers=door.headers("narrow")):
            refused = door.ask("narrow", {"model": MODEL})
            assert error(refused) == (429, "rate_limit_exceeded")
            assert refused.headers["retry-after"] == "1"
            assert door.ask("acme", {"model": MODEL}).status_code == 200
        eventually(lambda: door.ask("narrow", {"model": MODEL}).status_code == 200)
        assert door.ask("narrow", {"model": MODEL}).status_code == 200


@pytest.mark.row("001.14")
def test_an_answer_goes_on_without_the_gatekeeper_that_counts_it(door: Rig) -> None:
    """A new request gets none past it."""
    door.engine.go_on.clear()
    held = {"model": MODEL, "stream": True}
    with door.client.stream("POST", CHAT, json=held, headers=door.headers("narrow")) as answer:
        door.kill("gatekeeper")
        assert error(door.ask("acme", {"model": MODEL})) == (503, "gateway_unavailable")
        door.engine.go_on.set()
        assert json.loads(answer.read())["body"]["stream"]
    door.start_gatekeeper()
    eventually(lambda: door.ask("acme", {"model": MODEL}).status_code == 200)


@pytest.mark.row("001.14")
@pytest.mark.parametrize("refuse", [True, False])
def test_without_the_store_limited_requests_are_admitted_or_refused(
    lab_of_tools: Lab, tmp_path: Path, *, refuse: bool
) -> None:
    with rig(lab_of_tools, tmp_path, TENANTS, refuse_uncounted=refuse) as made:
        made.kill("counters")
        answer = made.ask("narrow", {"model": MODEL})
        assert error(answer) == (503, "limits_unavailable") if refuse else answer.status_code == 200
        assert made.ask("acme", {"model": MODEL}).status_code == 200
        made.start_counters()
        eventually(lambda: made.ask("narrow", {"model": MODEL}).status_code == 200)


@pytest.mark.row("001.14")
def test_a_hung_store_keeps_no_other_tenant_from_being_read(lab_of_tools: Lab, tmp_path: Path) -> None:
    """A request of a tenant without such a limit does not wait for those of one that has it."""

    async def asking(made: Rig, client: httpx.AsyncClient, tenant: str) -> int:
        answer = await client.post(CHAT, json={"model": MODEL}, headers=made.headers(tenant))
        return answer.status_code

    async def asked(made: Rig) -> tuple[int, int]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=made.client.base_url, timeout=60, limits=limits) as client:
            waiting = [asyncio.create_task(asking(made, client, "narrow")) for _ in range(_MANY)]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            status = await asking(made, client, "acme")
            before_it = sum(task.done() for task in waiting)
            await asyncio.gather(*waiting)
            return status, before_it

    with rig(lab_of_tools, tmp_path, TENANTS, refuse_uncounted=True) as made, made.hung("counters"):
        status, before_it = asyncio.run(asked(made))
    assert status == 200
    assert before_it < _MANY / 2


@pytest.mark.row("001.14")
@pytest.mark.parametrize("refuse", [True, False])
def test_what_a_hung_store_counts_later_is_no_request_under_way(
    lab_of_tools: Lab, tmp_path: Path, *, refuse: bool
) -> None:
    with rig(lab_of_tools, tmp_path, TENANTS, refuse_uncounted=refuse) as made:
        # The next one has the connection to the store that this one has no more.
        assert made.ask("narrow", {"model": MODEL}).status_code == 200
        eventually(lambda: made.under_way("narrow") == 0)
        with made.hung("counters"):
            answer = made.ask("narrow", {"model": MODEL})
            assert error(answer) == (503, "limits_unavailable") if refuse else answer.status_code == 200
            # The gatekeeper has given up asking by then.
            time.sleep(_GIVEN_UP_S)
        _forgets_soon(made)


@pytest.mark.row("001.14")
def test_a_renewal_that_is_late_revives_no_request_that_has_ended(lab_of_tools: Lab, tmp_path: Path) -> None:
    with rig(lab_of_tools, tmp_path, TENANTS) as made, ExitStack() as hanging:
        held = {"model": MODEL, "stream": True}
        with made.client.stream("POST", CHAT, json=held, headers=made.headers("narrow")):
            assert made.under_way("narrow") == 1
            hanging.enter_context(made.hung("counters"))
            # A renewal is asked for meanwhile, and not answered.
            time.sleep(_RENEWED_S)
        time.sleep(_GIVEN_UP_S)
        hanging.close()
        _forgets_soon(made)


def _forgets_soon(made: Rig) -> None:
    """Long before what no gatekeeper renews is forgotten."""
    # The store does at once what it was asked.
    time.sleep(1)
    eventually(lambda: made.under_way("narrow") == 0, _FORGOTTEN_S / 2)


def test_no_tenant_keeps_the_bodies_of_others_from_being_read(door: Rig) -> None:
    with door.reading("globex", _MANY):
        # The gatekeeper hears of them in its own time; until then, it reads another one.
        eventually(lambda: error(door.ask("globex", {"model": MODEL})) == (503, "gateway_unavailable"))
        assert door.ask("acme", {"model": MODEL}).status_code == 200
    assert door.ask("globex", {"model": MODEL}).status_code == 200
