"""A real Keycloak: an OpenID provider as sites have it, with its own pages to log in.

`python -m tests.lab.keycloak_server` fetches its distribution by Maven once, 177 MB, into the lab's cache: the lab's
test workers have no network. It needs Java 17 or later.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from lab.errors import LabError
from lab.free_ports import free_port
from lab.paths import Lab
from tests.lab.waiting import eventually

VERSION = "26.7.3"
_SHA256 = "27a6535553c3cdcd083872ba40629efafb3475e3b758e0c6f691395561dd0f1f"
_GROUP, _ARTIFACT = "org.keycloak", "keycloak-quarkus-dist"
_FETCH = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
REALM, CLIENT, CLIENT_SECRET = "site", "portal", "secret-of-the-client"
_DONE = "complete"


@dataclass(frozen=True)
class Keycloak:
    """One that answers, with people whose passwords are `of-NAME`."""

    address: str

    @property
    def issuer(self) -> str:
        return f"{self.address}/realms/{REALM}"

    def token(self, person: str, client: str = CLIENT) -> str:
        """An ID token for a client that takes passwords."""
        grant = {"grant_type": "password", "scope": "openid", "username": person, "password": f"of-{person}"}
        grant |= {"client_id": client, "client_secret": CLIENT_SECRET}
        answer = httpx.post(f"{self.issuer}/protocol/openid-connect/token", data=grant, trust_env=False, timeout=60)
        assert answer.is_success, answer.text
        return str(answer.json()["id_token"])

    def sessions(self, person: str) -> int:
        """That this person has."""
        admin = self._admin()
        users = admin.get(f"/admin/realms/{REALM}/users", params={"username": person, "exact": True}).json()
        return len(admin.get(f"/admin/realms/{REALM}/users/{users[0]['id']}/sessions").json())

    def replace_keys(self) -> None:
        """Sign with another key, and withdraw the one before."""
        admin = self._admin()
        kind, realm = "org.keycloak.keys.KeyProvider", admin.get(f"/admin/realms/{REALM}").json()["id"]
        parts = admin.get(f"/admin/realms/{REALM}/components", params={"type": kind, "parent": realm}).json()
        for part in parts:
            if part["providerId"] == "rsa-generated":
                admin.delete(f"/admin/realms/{REALM}/components/{part['id']}").raise_for_status()
        made = {"name": "newer", "providerId": "rsa-generated", "providerType": kind, "parentId": realm}
        made["config"] = {"priority": ["200"], "active": ["true"], "enabled": ["true"]}
        admin.post(f"/admin/realms/{REALM}/components", json=made).raise_for_status()

    def _admin(self) -> httpx.Client:
        grant = {"grant_type": "password", "client_id": "admin-cli", "username": "admin", "password": "of-admin"}
        address = f"{self.address}/realms/master/protocol/openid-connect/token"
        token = httpx.post(address, data=grant, trust_env=False, timeout=60).json()["access_token"]
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.Client(base_url=self.address, headers=headers, trust_env=False, timeout=60)


@contextmanager
def running(lab: Lab, folder: Path, people: Mapping[str, Sequence[str]], redirect: str) -> Iterator[Keycloak]:
    """With people by name, and their groups; the client's log ins lead to addresses below `redirect`."""
    home = folder / "keycloak"
    shutil.copytree(_distribution(lab), home)
    realm = home / "data" / "import" / f"{REALM}.json"
    realm.parent.mkdir(parents=True)
    realm.write_text(json.dumps(_realm(people, redirect)))
    port = free_port()
    command = ["sh", str(home / "bin" / "kc.sh"), "start-dev", "--import-realm", f"--http-port={port}"]
    admin = {"KC_BOOTSTRAP_ADMIN_USERNAME": "admin", "KC_BOOTSTRAP_ADMIN_PASSWORD": "of-admin"}
    with (folder / "keycloak.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--http-host=127.0.0.1"],
            env=os.environ | admin,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        keycloak = Keycloak(f"http://127.0.0.1:{port}")
        try:
            eventually(lambda: _answers(keycloak), timeout_s=240)
            yield keycloak
        finally:
            os.killpg(process.pid, 15)
            process.wait()


def _answers(keycloak: Keycloak) -> bool:
    try:
        return httpx.get(keycloak.issuer, trust_env=False, timeout=5).is_success
    except httpx.TransportError:
        return False


def _realm(people: Mapping[str, Sequence[str]], redirect: str) -> dict[str, Any]:
    def mapper(name: str, kind: str, **config: str) -> dict[str, Any]:
        return {"name": name, "protocol": "openid-connect", "protocolMapper": kind, "config": config}

    groups = {"claim.name": "groups", "full.path": "false", "id.token.claim": "true"}
    clients = [
        {
            "clientId": name,
            "secret": CLIENT_SECRET,
            "publicClient": False,
            "directAccessGrantsEnabled": True,
            "redirectUris": [f"{redirect}/*"],
            "attributes": {"post.logout.redirect.uris": "+", "pkce.code.challenge.method": "S256"},
            "protocolMappers": [mapper("groups", "oidc-group-membership-mapper", **groups)],
        }
        for name in (CLIENT, "another")
    ]
    users = [
        {
            "username": name,
            "email": f"{name}@example.com",
            "emailVerified": True,
            "firstName": name.title(),
            "lastName": "Example",
            "enabled": True,
            "groups": [f"/{group}" for group in groups_of],
            "credentials": [{"type": "password", "value": f"of-{name}", "temporary": False}],
        }
        for name, groups_of in people.items()
    ]
    named = sorted({group for groups_of in people.values() for group in groups_of})
    return {
        "realm": REALM,
        "enabled": True,
        "sslRequired": "none",
        "accessTokenLifespan": 300,
        "groups": [{"name": group} for group in named],
        "users": users,
        "clients": clients,
    }


def _distribution(lab: Lab) -> Path:
    """Unpacked, in the lab's cache. Raises LabError where it is not there."""
    folder = lab.cache / f"keycloak-{VERSION}"
    if not (folder / _DONE).exists():
        raise LabError(
            f"there is no Keycloak in {lab.cache}", fix="python -m tests.lab.keycloak_server, with a network"
        )
    return folder / folder.name


def fetch(lab: Lab) -> None:
    """The distribution, unless it is there. Raises LabError."""
    folder = lab.cache / f"keycloak-{VERSION}"
    if (folder / _DONE).exists():
        return
    if not shutil.which("mvn") or not shutil.which("java"):
        raise LabError("Keycloak needs Maven and Java", fix="apt-get install maven default-jre-headless")
    shutil.rmtree(folder, ignore_errors=True)
    artifact = f"{_GROUP}:{_ARTIFACT}:{VERSION}:zip"
    command = ["mvn", "-q", "-B", _FETCH, f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"]
    fetched = subprocess.run(command, capture_output=True, text=True, check=False)
    archive = folder / f"{_ARTIFACT}-{VERSION}.zip"
    if fetched.returncode or hashlib.sha256(archive.read_bytes()).hexdigest() != _SHA256:
        raise LabError(f"{artifact} is not what it was: {fetched.stdout[-500:]}", fix="look at Maven's settings")
    with zipfile.ZipFile(archive) as whole:
        whole.extractall(folder)
    archive.unlink()
    (folder / _DONE).touch()


def log_in(page: Any, person: str) -> None:
    """At Keycloak's own page."""
    page.get_by_label("Username or email").fill(person)
    page.get_by_role("textbox", name="Password").fill(f"of-{person}")
    page.get_by_role("button", name="Sign In").click()


if __name__ == "__main__":
    fetch(Lab.from_environment())
