"""Weights out of the real registry of CNCF Distribution, which the emulated one of the unit tests is compared with."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from lab.free_ports import free_address
from lab.paths import Lab
from lab.registry import serving
from services.weights.__main__ import main
from services.weights.failure import Exit
from tests.certificates import Authority, authority
from tests.unit.services import emulated_registry as emulated
from tests.unit.services.emulated_registry import PASSWORD, SERVICE, USER, EmulatedRegistry, basic, digest
from tests.unit.services.registry_rig import BLOB, REPOSITORY, order_of
from tests.unit.services.weights_rig import FILES, LARGE, REVISION, write_order

pytestmark = pytest.mark.row("003.08")

ISSUER = "site"
# PASSWORD by bcrypt, which alone the registry reads in such a file.
HTPASSWD = f"{USER}:$2b$04$nEsABfV2wZDhQ0f2OP7W8eKy2qBz7e2VosmiAuywNXFJ70Kd3b2oi\n"
LOGIN = {"REGISTRY_USERNAME": USER, "REGISTRY_PASSWORD": PASSWORD}
GUARDS = ("", "basic", "token")


@pytest.fixture
def own() -> Authority:
    return authority()


def signed(own: Authority, scope: str) -> str:
    """A token for one scope, in the form that the registry documents: a JSON Web Token with its chain."""
    kind, name, action = scope.split(":")
    now = int(time.time())
    chain = [base64.b64encode(own.certificate.public_bytes(serialization.Encoding.DER)).decode()]
    claims = {
        "iss": ISSUER,
        "aud": SERVICE,
        "sub": USER,
        "nbf": now,
        "exp": now + 60,
        "access": [{"type": kind, "name": name, "actions": [action]}],
    }
    text = f"{_plain(_json({'typ': 'JWT', 'alg': 'ES256', 'x5c': chain}))}.{_plain(_json(claims))}"
    r, s = decode_dss_signature(own.key.sign(text.encode(), ec.ECDSA(hashes.SHA256())))
    return f"{text}.{_plain(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value).encode()


def _plain(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def push(url: str, data: bytes) -> None:
    """By the registry's API: one upload, and no manifest that names it."""
    begun = httpx.post(f"{url}/v2/{REPOSITORY}/blobs/uploads/", trust_env=False)
    place = httpx.URL(begun.headers["Location"]).copy_merge_params({"digest": digest(data)})
    done = httpx.put(place, content=data, trust_env=False)
    assert (done.status_code, done.headers["Docker-Content-Digest"]) == (201, digest(data))


@contextmanager
def real(lab: Lab, folder: Path, guard: str, *, realm: str = "", roots: Authority | None = None) -> Iterator[str]:
    """The registry with all files of the model, restarted behind its guard."""
    program, address, auth = lab.bin / "registry", free_address(), dict[str, Any]()
    folder.mkdir()
    with serving.running(program, address, folder):
        for data in FILES.values():
            push(f"http://{address}", data)
    if guard == "basic":
        (folder / "htpasswd").write_text(HTPASSWD)
        auth = {"htpasswd": {"realm": SERVICE, "path": str(folder / "htpasswd")}}
    if guard == "token" and roots:
        (folder / "roots.pem").write_text(roots.pem)
        named = {"realm": realm, "service": SERVICE, "issuer": ISSUER, "rootcertbundle": str(folder / "roots.pem")}
        auth = {"token": named}
    with serving.running(program, address, folder, auth):
        yield f"http://{address}"


def answers(url: str, authorizations: Mapping[str, str]) -> dict[str, tuple[Any, ...]]:
    """Status, code or digest of the body, and headers that the Job reads, by what was asked and by whom."""
    paths = {
        "blob": f"/v2/{REPOSITORY}/blobs/{digest(BLOB)}",
        "another blob": f"/v2/{REPOSITORY}/blobs/sha256:{'0' * 64}",
        "another repository": f"/v2/weights/another/blobs/{digest(BLOB)}",
    }
    asked = [(who, what, path, "") for who in authorizations for what, path in paths.items()]
    asked += [("right", range_, paths["blob"], range_) for range_ in ("bytes=1000-", f"bytes={len(BLOB)}-")]
    seen = dict[str, tuple[Any, ...]]()
    for who, what, path, range_ in asked:
        headers = {"Accept-Encoding": "identity", "Authorization": authorizations[who], "Range": range_}
        answer = httpx.get(
            url + path, headers={name: value for name, value in headers.items() if value}, trust_env=False
        )
        body = digest(answer.content) if answer.is_success else ""
        if answer.is_client_error and answer.status_code != httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
            body = answer.json()["errors"][0]["code"]
        read = ("WWW-Authenticate", "Content-Range", *(["Content-Length"] if answer.is_success else []))
        seen[f"{who}: {what}"] = (answer.status_code, body, *(answer.headers.get(name) for name in read))
    return seen


@pytest.mark.parametrize("guard", GUARDS)
def test_the_emulated_registry_answers_as_the_real_one(
    lab_of_tools: Lab, tmp_path: Path, own: Authority, guard: Any
) -> None:
    scopes = {"right": f"repository:{REPOSITORY}:pull", "of another": "repository:weights/another:pull"}
    tokens = {signed(own, scope): scope for scope in scopes.values()}
    authorizations = {
        "": {"right": ""},
        "basic": {"none": "", "wrong": basic(USER, "another"), "right": basic(USER, PASSWORD)},
        "token": {"none": "", "wrong": "Bearer nonsense"}
        | {who: f"Bearer {token}" for (who, scope) in scopes.items() for token in tokens if tokens[token] == scope},
    }[guard]
    realm = "https://auth.site.example/token"
    model = EmulatedRegistry(guard=guard, realm=realm, tokens=tokens)
    model.push(REPOSITORY, *FILES.values())
    with emulated.serving(model) as url:
        modelled = answers(url, authorizations)
    with real(lab_of_tools, tmp_path / "registry", guard, realm=realm, roots=own) as url:
        assert answers(url, authorizations) == modelled
    assert modelled["right: blob"][:2] == (200, digest(BLOB))
    assert modelled["right: bytes=1000-"][0] == 206


@pytest.mark.parametrize("guard", GUARDS)
def test_the_job_brings_a_model_out_of_the_real_registry(
    lab_of_tools: Lab, tmp_path: Path, own: Authority, guard: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """A part of the largest file is there, as an earlier run left it; the token service has the site's certificate."""
    service = EmulatedRegistry(issue=lambda scope: signed(own, scope))
    authorities = tmp_path / "ca.crt"
    authorities.write_text(own.pem)
    volume = tmp_path / "volume"
    part = volume / "parts" / REVISION / f"{LARGE}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(BLOB[:1000])
    with (
        emulated.serving(service, own.identity(tmp_path, "127.0.0.1")) as tokens_at,
        real(lab_of_tools, tmp_path / "registry", guard, realm=f"{tokens_at}/token", roots=own) as url,
    ):
        order = write_order(tmp_path / "order", order_of(url, parallel=4))
        command = ["bring", "--volume", str(volume), f"--ca={authorities}", *order]
        if guard:
            assert main(command, LOGIN | {"REGISTRY_PASSWORD": "of-yesterday"}) == Exit.TOKEN
            assert "does not open" in capfd.readouterr().err
        assert main(command, LOGIN if guard else {}) == Exit.OK
        elsewhere = write_order(tmp_path / "elsewhere", order_of(f"{url}/elsewhere"))
        command = ["bring", "--volume", str(tmp_path), f"--ca={authorities}", *elsewhere]
        assert main(command, LOGIN if guard else {}) == Exit.NOT_FOUND
        assert f"oras push {url.removeprefix('http://')}/elsewhere/{REPOSITORY}:COMMIT" in capfd.readouterr().err
    brought = volume / "revisions" / REVISION
    assert {path: (brought / path).read_bytes() for path in FILES} == FILES
    logins = [asked for asked in service.asked if asked.authorization == basic(USER, PASSWORD)]
    assert len(logins) == (2 if guard == "token" else 0), "one per repository"
    output = capfd.readouterr()
    assert PASSWORD not in output.out + output.err
