"""Weights out of an OCI registry that wants a login: for itself, or for tokens that a service gives out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from services.weights.__main__ import main
from services.weights.failure import Exit
from services.weights.registry import Login, challenges
from tests.certificates import Authority, authority
from tests.unit.services.emulated_registry import (
    PASSWORD,
    USER,
    Answer,
    Asked,
    EmulatedRegistry,
    basic,
    digest,
    serving,
)
from tests.unit.services.registry_rig import (
    BLOB,
    LOGIN,
    PLACE,
    REPOSITORY,
    blobs,
    is_whole,
    once,
    order_of,
    program,
    pushed,
    tokens,
    trusting,
)
from tests.unit.services.weights_rig import FILES, refused, write_order

pytestmark = pytest.mark.row("003.08", "opening 10")


def test_one_token_is_enough_for_all_files_of_a_repository(tmp_path: Path) -> None:
    registry = pushed(guard="token")
    with serving(registry) as address:
        bringing = program(tmp_path, address, LOGIN, parallel=4)
        bringing.run()
    assert is_whole(bringing)
    (asked,) = tokens(registry)
    assert asked.path == "/token?service=weights&scope=repository%3Aweights%2Fprod%2Fmade-up%2Fmodel-1.1%3Apull"
    assert asked.authorization == basic(USER, PASSWORD)
    assert {asked.authorization for asked in blobs(registry)} == {"", "Bearer token-0"}


def test_a_token_that_ran_out_is_followed_by_another_and_the_blob_goes_on(tmp_path: Path) -> None:
    registry = pushed(guard="token")

    def runs_out(asked: Asked) -> Answer | None:
        if digest(BLOB) in asked.path and asked.authorization == "Bearer token-0" and registry.tokens["token-0"]:
            registry.tokens["token-0"] = ""
            return Answer(200, BLOB, cut=1000)
        return None

    registry.instead = runs_out
    with serving(registry) as address:
        bringing = program(tmp_path, address, LOGIN)
        bringing.run()
    assert is_whole(bringing)
    assert [(asked.range_, asked.authorization) for asked in blobs(registry) if digest(BLOB) in asked.path][-2:] == [
        ("bytes=1000-", "Bearer token-0"),
        ("bytes=1000-", "Bearer token-1"),
    ]


def test_a_repository_that_all_may_read_has_tokens_without_a_login(tmp_path: Path) -> None:
    registry = pushed(guard="token", anonymous=True)
    with serving(registry) as address:
        bringing = program(tmp_path, address, token_from="")
        bringing.run()
    assert is_whole(bringing)
    assert [asked.authorization for asked in tokens(registry)] == [""]


def test_a_registry_that_wants_the_login_itself_gets_it(tmp_path: Path) -> None:
    registry = pushed(guard="basic")
    with serving(registry) as address:
        bringing = program(tmp_path, address, LOGIN)
        bringing.run()
    assert is_whole(bringing)
    assert [asked.authorization for asked in blobs(registry)][:2] == ["", basic(USER, PASSWORD)]


@pytest.fixture
def own() -> Authority:
    return authority()


def test_a_login_goes_to_a_token_service_elsewhere_by_https_alone(tmp_path: Path, own: Authority) -> None:
    registry, plain, safe = pushed(guard="token"), EmulatedRegistry(), EmulatedRegistry()
    plain.tokens = safe.tokens = registry.tokens
    with serving(registry) as address, serving(plain) as refused_at, serving(safe, own.identity(tmp_path, "127.0.0.1")):
        registry.realm = f"{refused_at}/token"
        failure = refused(program(tmp_path / "plain", address, LOGIN, trust=trusting(own)))
        registry.realm = f"{safe.url}/token?account=site"
        bringing = program(tmp_path / "safe", address, LOGIN, trust=trusting(own))
        bringing.run()
    assert failure.status == Exit.OTHER
    assert "an address that a login must not go to; got http://127.0.0.1; allowed: an https address" in str(failure)
    assert plain.asked == []
    assert is_whole(bringing)
    (asked,) = safe.asked
    assert asked.path.startswith("/token?account=site&service=weights&scope=repository")
    assert asked.authorization == basic(USER, PASSWORD)


def test_a_token_service_of_an_unknown_authority_gets_no_login(tmp_path: Path, own: Authority) -> None:
    registry, safe = pushed(guard="token"), EmulatedRegistry()
    with serving(registry) as address, serving(safe, own.identity(tmp_path, "127.0.0.1")):
        registry.realm = f"{safe.url}/token"
        failure = refused(program(tmp_path, address, LOGIN))
    assert failure.status == Exit.UNREACHABLE
    assert "its token service, or of the store that it redirects to, is not trusted" in str(failure)
    assert "storage.weights.ca_config_map" in failure.fix
    assert safe.asked == []


@pytest.mark.parametrize("guard", ["basic", "token"])
def test_a_store_elsewhere_gets_neither_login_nor_token(tmp_path: Path, guard: Any) -> None:
    registry, store = pushed(guard=guard), pushed()
    with serving(registry) as address, serving(store) as elsewhere:
        registry.store = elsewhere
        store.instead = once(Answer(200, BLOB, cut=1000))
        bringing = program(tmp_path, address, LOGIN)
        bringing.run()
    assert is_whole(bringing)
    assert {asked.authorization for asked in store.asked} == {""}
    assert [asked.range_ for asked in store.asked if digest(BLOB) in asked.path] == ["", "bytes=1000-"]


def test_a_registry_that_redirects_to_itself_keeps_its_token(tmp_path: Path) -> None:
    registry = pushed(guard="token")
    files = {f"/files/{digest(data)}": data for data in FILES.values()}

    def sends_on(asked: Asked) -> Answer | None:
        if asked.path in files:
            return Answer(200, files[asked.path]) if asked.authorization == "Bearer token-0" else Answer(403)
        if "/blobs/" in asked.path and asked.authorization:
            return Answer(307, headers={"Location": f"/files/{asked.path.rpartition('/')[2]}"})
        return None

    registry.instead = sends_on
    with serving(registry) as address:
        bringing = program(tmp_path, address, LOGIN)
        bringing.run()
    assert is_whole(bringing)


@pytest.mark.parametrize("guard", ["basic", "token"])
@pytest.mark.parametrize("login", [Login(USER, "of-yesterday"), None])
def test_a_login_that_does_not_open_it_is_named_by_its_secret(tmp_path: Path, guard: Any, login: Login | None) -> None:
    registry = pushed(guard=guard)
    with serving(registry) as address:
        bringing = program(tmp_path, address, login)
        failure = refused(bringing)
    assert failure.status == Exit.TOKEN
    assert ("there is no login in" if login is None else "the login in") + f" {PLACE}" in failure.what
    assert "of-yesterday" not in str(failure)
    assert bringing.clock.now() == 0.0, "it is no better later"


def test_a_token_that_opens_another_repository_alone_is_refused(tmp_path: Path) -> None:
    registry = pushed(guard="token")
    with serving(registry) as address:
        registry.issue = "of-{}".format
        registry.tokens[f"of-repository:{REPOSITORY}:pull"] = "repository:another:pull"
        failure = refused(program(tmp_path, address, LOGIN))
    assert failure.status == Exit.TOKEN
    assert "the login in" in failure.what and "of-repository" not in str(failure)
    assert len(tokens(registry)) == 1


@pytest.mark.parametrize(
    ("answer", "got"),
    [
        (Answer(200, b"[]"), "an answer without a token"),
        (Answer(200, b'{"token": "two\\nlines"}'), "an answer without a token"),
        (Answer(200, b"[" * 100_000), "an answer without a token"),
        (Answer(302, headers={"Location": "http://127.0.0.1:1/token"}), "status 302 from http://127.0.0.1"),
        (Answer(404), "status 404 from http://127.0.0.1"),
    ],
)
def test_a_token_service_that_gives_no_token_is_named(tmp_path: Path, answer: Answer, got: str) -> None:
    registry = pushed(guard="token", instead=lambda asked: answer if asked.path.startswith("/token") else None)
    with serving(registry) as address:
        failure = refused(program(tmp_path, address, LOGIN))
    assert failure.status == Exit.OTHER
    assert "gives no token" in failure.what and got in failure.what


def test_the_job_takes_its_login_from_the_environment(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    registry = pushed(guard="token")
    with serving(registry) as address:
        named = write_order(tmp_path / "order", order_of(address))
        command = ["bring", "--volume", str(tmp_path / "volume"), *named]
        assert main(command, {}) == Exit.TOKEN
        lines = {"REGISTRY_USERNAME": USER, "REGISTRY_PASSWORD": f"{PASSWORD}\nsecond-line"}
        assert main(command, lines) == Exit.TOKEN
        assert f"{PLACE} has more than REGISTRY_PASSWORD" in capfd.readouterr().err
        assert main(command, {**lines, "REGISTRY_PASSWORD": f"{PASSWORD}\n"}) == Exit.OK
    written = capfd.readouterr()
    for secret in (PASSWORD, basic(USER, PASSWORD).removeprefix("Basic "), "token-0", "second-line"):
        assert secret not in written.out + written.err
    assert PASSWORD not in repr(LOGIN)


@pytest.mark.parametrize(
    ("headers", "read"),
    [
        (
            ['Bearer realm="https://auth.example/token",service="a, b",scope="repository:x/y:pull,push"'],
            {"bearer": {"realm": "https://auth.example/token", "service": "a, b", "scope": "repository:x/y:pull,push"}},
        ),
        (
            ['Basic realm="a", bearer Realm=https://b/, service="c"'],
            {"basic": {"realm": "a"}, "bearer": {"realm": "https://b/", "service": "c"}},
        ),
        (["Negotiate", 'Basic realm="say \\"a\\""'], {"negotiate": {}, "basic": {"realm": 'say "a"'}}),
        (['Bearer realm="a"', 'Bearer realm="b"'], {"bearer": {"realm": "a"}}),
        (['realm="a"', "", '="'], {}),
    ],
)
def test_what_a_registry_wants_is_read_by_its_schemes(headers: list[str], read: dict[str, dict[str, str]]) -> None:
    assert challenges(headers) == read
