"""Keys that are suspended, and the networks that keys come from: the pinned Envoy, a real gatekeeper, a simulated
directory.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from components.specs.access import TenantSpec
from lab.paths import Lab
from tests.lab.gatekeeper_rig import MODEL, Rig, key_of, rig
from tests.lab.test_gatekeeper_follows import FIRST, FULL, SimulatedDirectory
from tests.lab.waiting import eventually

pytestmark = pytest.mark.row("004.04", "004.11")

BODY: dict[str, Any] = {"model": MODEL}
ACME = {"tenant": "acme", "name": "key", "since": 1_796_083_200, "lifted": False}


@pytest.fixture
def directory() -> Iterator[SimulatedDirectory]:
    with SimulatedDirectory() as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        served.answer = FULL | {"keys": []}
        yield served
        served.shutdown()


@pytest.fixture
def door(lab_of_tools: Lab, tmp_path: Path, directory: SimulatedDirectory) -> Iterator[Rig]:
    for name in ("pepper", "token"):
        (tmp_path / name).write_text(FIRST)
    files = [f"--{name}-file={tmp_path / name}" for name in ("pepper", "token", "kept")]
    more = [f"--directory=http://127.0.0.1:{directory.server_port}", "--networks", *files]
    tenants = {name: TenantSpec(models=(MODEL,)) for name in ("acme", "globex")}
    with rig(lab_of_tools, tmp_path, tenants, more=more) as made:
        yield made


def suspended(door: Rig) -> bool:
    return door.ask("acme", BODY).status_code == 403


def test_a_suspended_key_is_refused_until_that_is_lifted(door: Rig, directory: SimulatedDirectory) -> None:
    """It is a key of the site's file. A gatekeeper that starts without the directory still knows."""
    assert not suspended(door)
    directory.answer = {"cursor": "e:2", "full": False, "keys": [], "suspensions": [ACME]}
    eventually(lambda: suspended(door))
    error = door.ask("acme", BODY).json()["error"]
    assert (error["code"], error["type"]) == ("key_suspended", "permission_error")
    assert error["message"].startswith(
        "The key acme.key has been suspended since 2026-12-01T00:00:00Z. Ask the operators"
    )
    assert door.ask("globex", BODY).status_code == 200
    assert re.search(r'gatekeeper_answers_total\{answer="suspended"\} [1-9]', door.state_of("/metrics").text)
    directory.answer = None
    door.kill("gatekeeper")
    door.start_gatekeeper()
    eventually(lambda: suspended(door))
    directory.answer = {"cursor": "e:3", "full": False, "keys": [], "suspensions": [ACME | {"lifted": True}]}
    eventually(lambda: not suspended(door))


def test_what_the_directory_has_no_more_is_not_suspended(door: Rig, directory: SimulatedDirectory) -> None:
    """Of a database that was restored from before."""
    directory.answer = {"cursor": "e:2", "full": False, "keys": [], "suspensions": [ACME]}
    eventually(lambda: suspended(door))
    directory.answer = {"cursor": "f:1", "full": True, "keys": [], "suspensions": []}
    eventually(lambda: not suspended(door))


def test_a_network_is_named_by_a_digest_of_its_key(door: Rig) -> None:
    """Addresses of one network have one name, which another key's requests from there do not have, and no header
    makes it another one.
    """

    def named(tenant: str, address: str, **headers: str) -> str:
        transport = httpx.HTTPTransport(local_address=address)
        with httpx.Client(base_url=door.client.base_url, transport=transport, timeout=60) as client:
            answer = client.post("/v1/chat/completions", json=BODY, headers=door.headers(tenant) | headers)
        name: str = answer.json()["network"]
        return name

    name = named("acme", "127.0.5.1")
    assert re.fullmatch(r"[0-9a-f]{16}", name)
    assert named("acme", "127.0.5.254") == name
    assert named("acme", "127.0.5.1", **{"x-forwarded-for": "203.0.113.7", "forwarded": "for=203.0.113.7"}) == name
    others = [named("acme", "127.0.6.1"), named("globex", "127.0.5.1")]
    # Without the gatekeeper's secret, no one makes it out of an address.
    others += [hashlib.sha256(text.encode()).hexdigest()[:16] for text in ("127.0.5.0/24", "127.0.5.1")]
    assert name not in others


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("198.51.100.1", "198.51.100.254", True),
        ("198.51.100.1", "198.51.101.1", False),
        # Pods of two nodes, and of two clusters.
        ("10.244.3.7", "::ffff:10.244.9.1", True),
        ("10.244.3.7", "10.245.3.7", False),
        ("2001:db8:1::1", "2001:db8:1:ffff::1", True),
        ("2001:db8:1::1", "2001:db8:2::1", False),
    ],
)
def test_how_wide_a_network_is(door: Rig, first: str, second: str, same: bool) -> None:
    def of(number: int, *parts: bytes) -> bytes:
        """A field of protobuf's wire format."""
        content = b"".join(parts)
        return bytes([number << 3 | 2, len(content)]) + content

    def named(address: str) -> bytes:
        header = of(3, of(1, b"authorization"), of(2, f"Bearer {key_of('acme')}".encode()))
        source = of(1, of(1, of(1, of(2, address.encode()))))
        with door.deciding() as channel:
            check: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
                "/envoy.service.auth.v3.Authorization/Check"
            )
            answer = check(of(1, source, of(4, of(2, header))))
        (name,) = re.findall(rb"(?<![0-9a-f])[0-9a-f]{16}(?![0-9a-f])", answer)
        return bytes(name)

    assert (named(first) == named(second)) is same
