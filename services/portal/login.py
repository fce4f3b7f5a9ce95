"""Who a request is from: a session after a log in at the issuer, or a token of the issuer."""

from __future__ import annotations

import contextlib
import hmac
import logging
import re
import secrets
import time
from collections.abc import Mapping
from typing import Any

import httpx2
from authlib.integrations.base_client import OAuthError
from authlib.integrations.starlette_client import OAuth
from fastapi import Request, Response
from fastapi.responses import RedirectResponse
from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet
from joserfc.jws import JWSRegistry

from services.portal.catalogue import Catalogue
from services.portal.failure import PortalError, away
from services.portal.people import Person
from services.portal.settings import PortalSettings, secret

SESSION_S = 3600
"""Then the issuer is asked again, without a question to the person, and so for their groups."""

_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"]
_LEEWAY_S = 60
_FETCH_EVERY_S = 60
_KEYS_S = 3600
# A path of this portal. Two slashes would begin an address of another host.
_OWN_PATH = re.compile(r"/(?![/\\])[A-Za-z0-9/_.~?&=%-]*")

log = logging.getLogger(__name__)


class LogInNeeded(Exception):  # noqa: N818 - no error
    """The page is for people who are logged in."""


class Issuer:
    """The OpenID provider."""

    def __init__(self, settings: PortalSettings, trust: Any) -> None:
        self._settings = settings
        self._next_fetch = 0.0
        self._stale = time.monotonic() + _KEYS_S
        self._client = OAuth().register(
            "issuer",
            client_id=settings.client_id,
            client_secret=secret(settings.client_secret_file),
            server_metadata_url=f"{settings.issuer}/.well-known/openid-configuration",
            client_kwargs={"code_challenge_method": "S256", "verify": trust, "timeout": 5},
        )

    async def begin(self, request: Request, then: str) -> Response:
        """To the issuer, and from there to the callback. Raises PortalError."""
        # A session that is there lasts until another one begins: any page of others can lead here.
        request.session["then"] = then if _OWN_PATH.fullmatch(then) and not then.startswith("/login") else "/"
        supported = (await self._metadata()).get("scopes_supported") or ()
        scopes = ("openid", "profile", "email", *({"groups"} & set(supported)))
        callback = f"{self._settings.public_url}/callback"
        answer: Response = await self._client.authorize_redirect(request, callback, scope=" ".join(scopes))
        return answer

    async def finish(self, request: Request, catalogue: Catalogue) -> Response:
        """Begin the session of the person that the issuer names. Raises PortalError."""
        then = str(request.session.get("then", "/"))
        again = "Log in again, in one window and within an hour."
        await self._metadata()
        try:
            await self._refresh()
            token = await self._client.authorize_access_token(request)
            person = _person_of(token.get("userinfo") or {}, self._settings.groups_claim)
        except httpx2.HTTPError as error:
            raise self._failed(error) from None
        except (OAuthError, JoseError, ValueError, KeyError, TypeError) as error:
            # Its text may be the browser's.
            log.warning("a log in failed: %s", type(error).__name__)
            raise PortalError(400, "log_in_failed", "The log in did not succeed.", again) from None
        request.session.clear()
        request.session.update(
            sub=person.subject,
            name=person.name,
            # No others: browsers drop a cookie above 4 KB. An operator needs none but the one that makes them so.
            groups=sorted(person.groups.intersection(catalogue.operators) or person.groups & catalogue.groups),
            until=int(time.time()) + SESSION_S,
            id=secrets.token_urlsafe(16),
            csrf=secrets.token_urlsafe(32),
        )
        log.info("%s logged in", person.actor)
        return RedirectResponse(then, 303)

    async def end_address(self) -> str | None:
        """Where the person ends the session at the issuer; None where that offers nothing, or does not answer."""
        own = f"{self._settings.public_url}/goodbye"
        try:
            metadata = await self._metadata()
        except PortalError:
            return None
        if not (end := metadata.get("end_session_endpoint")):
            return None
        back = {"client_id": self._settings.client_id, "post_logout_redirect_uri": own}
        return str(httpx2.URL(end).copy_merge_params(back))

    async def bearer(self, token: str) -> Person:
        """Of a token that the issuer signed for this portal. Raises PortalError."""
        try:
            claims = await self._claims(token)
            times = jwt.JWTClaimsRegistry(
                leeway=_LEEWAY_S,
                iss={"essential": True, "value": (await self._metadata())["issuer"]},
                aud={"essential": True, "values": [self._settings.client_id, self._settings.public_url]},
                exp={"essential": True},
                sub={"essential": True},
            )
            times.validate(claims)
        except (JoseError, ValueError, KeyError, TypeError) as error:
            log.warning("a token is refused: %s", type(error).__name__)
            fix = "Send a JWT that the issuer signed for this portal, as Authorization: Bearer."
            raise PortalError(401, "invalid_token", "The token is not valid here.", fix) from None
        return _person_of(claims, self._settings.groups_claim)

    async def _claims(self, token: str) -> dict[str, Any]:
        await self._metadata()
        try:
            try:
                await self._refresh()
                return self._decoded(token, await self._client.fetch_jwk_set())
            except InvalidKeyIdError:
                # It may be signed with a key that is newer than those that are known; anyone may claim so.
                if time.monotonic() < self._next_fetch:
                    raise
                self._next_fetch = time.monotonic() + _FETCH_EVERY_S
                return self._decoded(token, await self._client.fetch_jwk_set(force=True))
        except httpx2.HTTPError as error:
            raise self._failed(error) from None

    async def _refresh(self) -> None:
        """Read the issuer's keys again now and then: one that it has withdrawn signs no more log ins. While it does
        not answer, those that are known count.
        """
        if time.monotonic() < self._stale:
            return
        self._stale = time.monotonic() + _KEYS_S
        with contextlib.suppress(httpx2.HTTPError):
            await self._client.fetch_jwk_set(force=True)

    @staticmethod
    def _decoded(token: str, keys: Any) -> dict[str, Any]:
        registry = JWSRegistry(algorithms=_ALGORITHMS, strict_check_header=False)
        return dict(jwt.decode(token, KeySet.import_key_set(keys), registry=registry).claims)

    async def _metadata(self) -> Mapping[str, Any]:
        try:
            metadata: Mapping[str, Any] = await self._client.load_server_metadata()
        except (httpx2.HTTPError, ValueError) as error:
            raise self._failed(error) from None
        if str(metadata.get("issuer", "")).rstrip("/") != self._settings.issuer:
            log.error("the issuer names itself otherwise than --issuer")
            raise self._failed(None)
        return metadata

    def _failed(self, error: Exception | None) -> PortalError:
        log.warning("the issuer failed: %s", type(error).__name__)
        return away("log in service", "Who is logged in already can go on, and keys go on working.")


def session_person(request: Request) -> Person:
    """Who is logged in. Raises LogInNeeded."""
    session = request.session
    if not session.get("sub") or session.get("until", 0) < time.time():
        raise LogInNeeded
    return Person(session["sub"], session["name"], frozenset(session["groups"]))


def require_csrf(request: Request, token: object) -> None:
    """Raise PortalError for a request that no page of this session made."""
    expected = request.session.get("csrf", "")
    if not expected or not hmac.compare_digest(str(token).encode(), expected.encode()):
        fix = "Load the page again, and repeat what you did there."
        raise PortalError(403, "csrf", "This request does not come from a page of your session.", fix)


def _person_of(claims: Mapping[str, Any], groups_claim: str) -> Person:
    names = (claims.get("preferred_username"), claims.get("email"), claims["sub"])
    groups = _claim(claims, groups_claim)
    known = [group for group in groups if isinstance(group, str)] if isinstance(groups, list) else []
    return Person(str(claims["sub"]), str(next(filter(None, names)))[:80], frozenset(known))


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """The claim of this name, which may have dots in it; else, at each dot, the one within the claim before it."""
    outer, _, inner = name.partition(".")
    if name in claims or not inner:
        return claims.get(name)
    within = claims.get(outer)
    return _claim(within, inner) if isinstance(within, Mapping) else None
