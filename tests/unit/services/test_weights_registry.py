"""Weights out of an OCI registry: each file by its digest, and only what a lock lists."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.weights.failure import Exit
from services.weights.registry import Login
from tests.certificates import authority
from tests.unit.services.emulated_registry import (
    PASSWORD,
    USER,
    Answer,
    Asked,
    EmulatedRegistry,
    basic,
    digest,
    error,
    serving,
)
from tests.unit.services.registry_rig import (
    BLOB,
    LOGIN,
    MODEL,
    PLACE,
    REPOSITORY,
    is_whole,
    once,
    program,
    pushed,
    trusting,
)
from tests.unit.services.weights_rig import FILES, LARGE, REVISION, refused

pytestmark = pytest.mark.row("003.08", "opening 10")


def test_files_are_blobs_of_the_models_repository_and_no_manifest_is_read(tmp_path: Path) -> None:
    registry = pushed()
    with serving(registry) as address:
        bringing = program(tmp_path, address)
        bringing.run()
    assert is_whole(bringing)
    assert sorted(asked.path for asked in registry.asked) == sorted(
        f"/v2/{REPOSITORY}/blobs/{digest(data)}" for data in FILES.values()
    )


def test_a_blob_goes_on_where_it_broke(tmp_path: Path) -> None:
    registry = pushed(instead=once(Answer(200, BLOB, cut=1000)))
    with serving(registry) as address:
        bringing = program(tmp_path, address)
        bringing.run()
    assert is_whole(bringing)
    assert registry.ranges(BLOB) == ["", "bytes=1000-"]


def test_a_registry_without_ranges_sends_the_blob_from_its_begin(tmp_path: Path) -> None:
    registry = pushed(instead=once(Answer(200, BLOB, cut=1000)))
    first = registry.instead
    registry.instead = lambda asked: first(asked) or (Answer(200, BLOB) if asked.range_ else None)
    with serving(registry) as address:
        bringing = program(tmp_path, address)
        bringing.run()
    assert is_whole(bringing)
    assert registry.ranges(BLOB) == ["", "bytes=1000-"]


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize(
    ("signature", "is_own"),
    [("?signature=1", False), ("", False), ("?signature=1", True)],
    ids=["signed", "bare", "own"],
)
def test_a_link_that_ran_out_is_asked_for_again(tmp_path: Path, status: int, signature: str, is_own: bool) -> None:
    """Also one of the registry's own, which no login opens either."""
    registry, store = pushed(guard="token"), EmulatedRegistry()
    files = {f"/store/{digest(data)}": data for data in FILES.values()}
    refusals = [Answer(status)]
    store.instead = lambda asked: refusals.pop() if refusals else Answer(200, files[asked.path.partition("?")[0]])
    with serving(registry) as address, serving(store) as elsewhere:
        links = address if is_own else elsewhere

        def sends_on(asked: Asked) -> Answer | None:
            if asked.path.startswith("/store/"):
                return store.instead(asked)
            link = f"{links}/store/{asked.path.rpartition('/')[2]}{signature}"
            return Answer(307, headers={"Location": link}) if asked.authorization.startswith("Bearer") else None

        registry.instead = sends_on
        bringing = program(tmp_path, address, LOGIN)
        bringing.run()
    assert is_whole(bringing)


def test_a_registry_that_answers_by_https_alone_is_named_by_it(tmp_path: Path) -> None:
    own = authority()
    plain, safe = EmulatedRegistry(), pushed(guard="basic")
    with serving(plain) as address, serving(safe, own.identity(tmp_path, "127.0.0.1")) as elsewhere:
        plain.instead = lambda asked: Answer(308, headers={"Location": f"{elsewhere}{asked.path}"})
        failure = refused(program(tmp_path, address, LOGIN, trust=trusting(own)))
    assert failure.status == Exit.TOKEN
    assert failure.fix == f"begin storage.weights.oci.address with {elsewhere}"


UNAUTHORIZED = error(401, "UNAUTHORIZED")


@pytest.mark.parametrize(
    ("answer", "login", "place", "status", "wrong", "fix"),
    [
        (
            UNAUTHORIZED,
            LOGIN,
            PLACE,
            Exit.TOKEN,
            f"the login in {PLACE} does not open",
            "push the lock's files to {}, or",
        ),
        (UNAUTHORIZED, None, PLACE, Exit.TOKEN, f"there is no login in {PLACE}, and", "create that Secret with both"),
        (UNAUTHORIZED, None, "", Exit.TOKEN, "needs a login, or is not there", "storage.weights.oci.login_secret"),
        (error(403, "DENIED"), LOGIN, PLACE, Exit.TOKEN, "got status 403 DENIED", "let this login pull"),
        (error(403, "DENIED"), None, "", Exit.TOKEN, "got status 403 DENIED", "push the lock's files"),
        (error(404, "BLOB_UNKNOWN"), None, "", Exit.NOT_FOUND, f"no blob {digest(BLOB)}", "push the lock's files"),
        (error(404, "NAME_UNKNOWN"), None, "", Exit.NOT_FOUND, f"{LARGE} of {MODEL} at {REVISION}", "oras push"),
        (Answer(404, b"<p>"), None, "", Exit.NOT_FOUND, digest(BLOB), "correct storage.weights.oci.address where"),
        (error(400, "DIGEST_INVALID"), None, "", Exit.OTHER, "refuses", "server's own log"),
    ],
)
def test_what_a_registry_refuses_has_the_fix_of_its_cause(
    tmp_path: Path, answer: Answer, login: Login | None, place: str, status: Exit, wrong: str, fix: str
) -> None:
    registry = pushed(instead=lambda asked: answer if digest(BLOB) in asked.path else None)
    with serving(registry) as address:
        failure = refused(program(tmp_path, address, login, token_from=place))
    assert failure.status == status
    assert wrong in failure.what
    assert fix.format(REPOSITORY) in failure.fix
    if status == Exit.NOT_FOUND:
        assert f"{address.removeprefix('http://')}/{REPOSITORY}:COMMIT" in failure.fix
    assert PASSWORD not in str(failure) and basic(USER, PASSWORD) not in str(failure)


@pytest.mark.parametrize("path", ["/token", digest(BLOB)])
def test_a_busy_registry_or_token_service_gets_a_pause(tmp_path: Path, path: str) -> None:
    registry = pushed(guard="token", instead=once(Answer(429, headers={"Retry-After": "40"}), path))
    with serving(registry) as address:
        bringing = program(tmp_path, address, LOGIN)
        bringing.run()
    assert is_whole(bringing)
    assert bringing.clock.now() == 40.0


def test_a_registry_that_is_not_there_is_given_up(tmp_path: Path) -> None:
    with serving(EmulatedRegistry()) as address:
        pass
    failure = refused(program(tmp_path, address))
    assert failure.status == Exit.UNREACHABLE
    assert f"{address.removeprefix('http://')} cannot be reached" in failure.what


def test_a_registry_without_a_lock_or_with_another_blob_is_refused(tmp_path: Path) -> None:
    registry = pushed(instead=lambda asked: Answer(200, bytes(len(BLOB))) if digest(BLOB) in asked.path else None)
    with serving(registry) as address:
        assert refused(program(tmp_path / "corrupt", address)).status == Exit.CORRUPT
        unlocked = refused(program(tmp_path / "unlocked", address, lock=""))
    assert unlocked.status == Exit.NOT_FOUND
    assert "weights lock" in unlocked.fix
