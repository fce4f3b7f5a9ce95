"""A small real OpenID Connect issuer that pods of a lab reach, where people log in to the portal."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import oidc_provider_mock
import werkzeug.serving

_PLAIN = "AUTHLIB_INSECURE_TRANSPORT"


@dataclass(frozen=True)
class Issuer:
    """Where it answers."""

    url: str

    def token(self, person: str, client: str) -> str:
        """A token that it signs for a client of this person's."""
        redirect = "http://x.example/"
        asked = {"client_id": client, "redirect_uri": redirect, "response_type": "code", "scope": "openid profile"}
        with httpx.Client(base_url=self.url, trust_env=False) as browser:
            given = browser.post("/oauth2/authorize", params=asked, data={"sub": person}).headers["location"]
            grant = {"grant_type": "authorization_code", "redirect_uri": redirect}
            grant["code"] = httpx.URL(given).params["code"]
            answer = browser.post("/oauth2/token", data=grant, auth=(client, "x"))
        return str(answer.json()["id_token"])


@contextmanager
def issuing(host: str, people: Mapping[str, Sequence[str]]) -> Iterator[Issuer]:
    """At an address of this machine. people: with their groups."""
    users = [
        oidc_provider_mock.User(sub=name, claims={"preferred_username": name, "groups": list(groups)})
        for name, groups in people.items()
    ]
    before = os.environ.get(_PLAIN)
    # It takes plain HTTP for a mistake; a trial's issuer may have it.
    os.environ[_PLAIN] = "1"
    server = werkzeug.serving.make_server(host, 0, oidc_provider_mock.app(user_claims=users), threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield Issuer(f"http://{host}:{server.server_port}")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        if before is None:
            del os.environ[_PLAIN]
        else:
            os.environ[_PLAIN] = before
