"""A mirror whose certificate is of the site's own authority: trusted where the site names it, and refused in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lab.hub.server import EmulatedHubServer
from lab.hub.server import Hub as EmulatedHub
from services.weights.__main__ import main
from services.weights.failure import Exit
from tests.certificates import Authority, authority
from tests.unit.services.weights_rig import Rig, write_order

pytestmark = pytest.mark.row("000.19", "opening 10", "opening 14")

PLACE = "ConfigMap inference-models/hub-ca, key ca.crt"
LOOPBACK = "127.0.0.1"


@pytest.fixture(scope="module")
def own() -> Authority:
    return authority()


@pytest.fixture
def rig(tmp_path: Path, own: Authority) -> Iterator[Rig]:
    emulated = EmulatedHub()
    server = EmulatedHubServer(emulated, LOOPBACK, identity=own.identity(tmp_path, LOOPBACK))
    yield Rig(tmp_path / "volume", emulated, server.url)
    server.close()


def brought(rig: Rig, capsys: pytest.CaptureFixture[str], *options: str, place: str = PLACE) -> tuple[int, str]:
    """Exit status, and what the program states of its end."""
    order = write_order(rig.root.with_name("order"), replace(rig.order(), ca_from=place))
    status = main(["bring", "--volume", str(rig.root), *order, *options], {})
    return status, capsys.readouterr().err


def bundle(folder: Path, *authorities: Authority) -> str:
    file = folder / "ca.crt"
    file.write_text("".join(trusted.pem for trusted in authorities))
    return f"--ca={file}"


def test_the_named_authority_is_trusted_for_hub_and_store(
    rig: Rig, own: Authority, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Large files come from the store; beside the authority there may be others."""
    assert rig.url.startswith("https://")
    assert brought(rig, capsys, bundle(tmp_path, authority("other"), own)) == (Exit.OK, "")
    assert rig.is_whole()
    assert rig.emulated.seen_by_store


def test_without_a_named_authority_the_key_of_the_site_is_named(rig: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    status, text = brought(rig, capsys, place="")
    assert status == Exit.UNREACHABLE
    assert f"the certificate of {rig.url}, or of the store that it redirects to, is not trusted" in text
    assert "storage.weights.ca_config_map" in text


def test_another_authority_is_refused_with_the_place_of_the_right_one(
    rig: Rig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, text = brought(rig, capsys, bundle(tmp_path, authority("other")))
    assert status == Exit.UNREACHABLE
    assert "is not trusted" in text
    assert f"put its authority into {PLACE}" in text


@pytest.mark.parametrize(("content", "says"), [(None, "it is not there"), ("none", "no certificate in PEM")])
def test_a_place_without_a_certificate_is_named(
    rig: Rig, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, says: str
) -> None:
    file = tmp_path / "ca.crt"
    if content is not None:
        file.write_text(content)
    status, text = brought(rig, capsys, f"--ca={file}")
    assert status == Exit.UNREACHABLE
    assert f"no authority can be read from {PLACE}; got {says}" in text
    assert not rig.emulated.requests


def test_the_machines_own_authorities_stay_trusted(
    rig: Rig, own: Authority, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that the mirror redirects to may be a public one."""
    machine = tmp_path / "machine.pem"
    machine.write_text(own.pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(machine))
    assert brought(rig, capsys, bundle(tmp_path, authority("other"))) == (Exit.OK, "")
