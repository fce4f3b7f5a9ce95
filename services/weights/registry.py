"""An OCI registry: the files of a lock, each a blob that the model's repository has under the sha256 of the file."""

from __future__ import annotations

import base64
import http.client
import json
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn
from urllib.parse import quote, urlencode, urlsplit

from services.weights.failure import Exit, WeightsError
from services.weights.hub import Hub, is_later, later
from services.weights.manifest import Manifest
from services.weights.retrying import RetryableError

_LARGEST_TOKEN = 1 << 20
# The name of a scheme, or a parameter of the scheme before it (RFC 9110, 11.6.1).
_CHALLENGE = re.compile(
    r'[\s,]*(?:(?P<name>[\w-]+)\s*=\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^\s,"]*))|(?P<scheme>[\w-]+))'
)
_VISIBLE = re.compile(r"[!-~]+")


@dataclass(frozen=True)
class Login:
    """Who asks."""

    username: str
    password: str = field(repr=False)

    @property
    def basic(self) -> str:
        """The header that has it."""
        return f"Basic {base64.b64encode(f'{self.username}:{self.password}'.encode()).decode()}"


class Registry(Hub):
    """Answers of one registry. No manifest is read: a lock decides what a revision consists of.

    A login goes to the registry and to its token service, never to a store that the registry redirects to.
    """

    _OTHERS = "its token service, or of the store that it redirects to"

    def __init__(self, address: str, *, login: Login | None, **how: Any) -> None:
        """address: `https://HOST[/PREFIX]`. login: None for a registry that all may read. how: as Hub takes it."""
        super().__init__(address, **how)
        self._login = login
        self._token_opener = self._opened_by(_NoRedirects())
        self._logging_in = threading.Lock()
        # What each repository wants, once it has answered a request without that.
        self._authorizations: dict[str, str] = {}

    def manifest(self, repository: str, revision: str) -> Manifest:
        """Raises WeightsError: a registry has files under their digests alone."""
        raise self._no_manifest(f"{repository} at {revision}", "no lock of it")

    def _address(self, manifest: Manifest, path: str) -> str:
        scheme, host, prefix = urlsplit(self.endpoint)[:3]
        repository = quote(f"{prefix}/{manifest.repository.lower()}")
        return f"{scheme}://{host}/v2{repository}/blobs/sha256:{manifest.files[path].sha256}"

    def _authorize(self, request: urllib.request.Request) -> None:
        authorization = self._authorizations.get(_repository(request.full_url))
        if authorization:
            request.add_unredirected_header("Authorization", authorization)

    def _authorize_redirected(self, request: urllib.request.Request, before: urllib.request.Request) -> None:
        authorization = before.unredirected_hdrs.get("Authorization")
        if authorization and self._is_own(request.full_url):
            request.add_unredirected_header("Authorization", authorization)

    def _get(self, url: str, what: str, headers: dict[str, str] | None = None) -> Any:
        """Once more with what the registry wants, where it answers 401; a token that ran out is one such answer."""
        asked_with = self._authorizations.get(_repository(url))
        try:
            return super()._get(url, what, headers)
        except _UnauthorizedError as unauthorized:
            with self._logging_in:
                # Another thread may have logged in since.
                if self._authorizations.get(_repository(url)) == asked_with:
                    self._authorizations[_repository(url)] = self._authorization(unauthorized, what, url)
        try:
            return super()._get(url, what, headers)
        except _UnauthorizedError as again:
            raise self._no_access_by(again.got, what, url) from None

    def _authorization(self, unauthorized: _UnauthorizedError, what: str, url: str) -> str:
        """The header by which the registry gives the file. Raises WeightsError, RetryableError."""
        bearer = unauthorized.challenges.get("bearer")
        if bearer and "realm" in bearer:
            return f"Bearer {self._token_by(bearer, what, url)}"
        if self._login and "basic" in unauthorized.challenges:
            return self._login.basic
        raise self._no_access_by(unauthorized.got, what, url)

    def _token_by(self, bearer: Mapping[str, str], what: str, url: str) -> str:
        """A token by https://distribution.github.io/distribution/spec/auth/token/."""
        service, realm = self._service(bearer["realm"]), bearer["realm"].partition("#")[0]
        wanted: Mapping[str, str] = {"scope": f"repository:{_repository(url)}:pull", **bearer}
        query = urlencode([(name, wanted[name]) for name in ("service", "scope") if name in wanted])
        request = urllib.request.Request(f"{realm}{'&' if '?' in realm else '?'}{query}")  # noqa: S310 - the scheme is checked
        if self._login:
            request.add_unredirected_header("Authorization", self._login.basic)

        def refused(error: urllib.error.HTTPError) -> NoReturn:
            got = f"status {error.code} from {service}"
            if is_later(error):
                raise later(error, service)
            if error.code in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
                raise self._no_access_by(got, what, url)
            raise self._no_token(service, got)

        with self._open(self._token_opener, request, refused) as answer:
            try:
                stated = json.loads(answer.read(_LARGEST_TOKEN))
                token = str(stated.get("token") or stated.get("access_token") or "")
            except (ValueError, AttributeError, RecursionError):
                token = ""
            except (OSError, http.client.HTTPException) as error:
                raise self._broken(error) from None
        # http.client would quote any other in a traceback.
        if not _VISIBLE.fullmatch(token):
            raise self._no_token(service, "an answer without a token")
        return token

    def _service(self, realm: str) -> str:
        """Scheme and host of a token service. Raises WeightsError where a password would go to it as plain text."""
        try:
            place = urlsplit(realm)
            service = f"{place.scheme}://{place.hostname}" if place.hostname and _VISIBLE.fullmatch(realm) else ""
        except ValueError:
            service = ""
        if service and (place.scheme == "https" or self._is_own(realm)):
            return service
        raise WeightsError(
            Exit.OTHER,
            f"{self.endpoint} gives tokens out at an address that a login must not go to",
            got=service or "no address",
            allowed="an https address, or one of the registry itself",
            fix="have the registry name its token service by https, as the realm of its answer 401",
        )

    def _no_token(self, service: str, got: str) -> WeightsError:
        wrong = f"{service}, the token service of {self.endpoint}, gives no token"
        return WeightsError(
            Exit.OTHER, wrong, got=got, fix="see its log, and whether the registry names the right address as realm"
        )

    def _refused(self, error: urllib.error.HTTPError, what: str, asked: str) -> NoReturn:
        """By the codes of https://github.com/opencontainers/distribution-spec/blob/main/spec.md#error-codes."""
        status, code, answered = error.code, _code(error), urlsplit(error.geturl() or asked)
        server = f"{answered.scheme}://{answered.netloc}"
        got = f"status {status} {code}".rstrip() + f" from {server}"
        if status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
            is_elsewhere = not self._is_own(server) and answered.path != urlsplit(asked).path
            if answered.query or is_elsewhere:
                # The link has run out, and the next one is new.
                raise RetryableError(f"the store {answered.netloc} refuses the link of {self.endpoint} with {status}")
            if not self._is_own(server):
                wrong = f"{self.endpoint} sends on to {server}, where no login goes"
                raise WeightsError(Exit.TOKEN, wrong, got=got, fix=f"begin storage.weights.oci.address with {server}")
            if status == http.client.UNAUTHORIZED:
                raise _UnauthorizedError(got, error.headers.get_all("WWW-Authenticate") or ())
            raise self._no_access_by(got, what, asked)
        if status in (404, 410):
            host, repository = urlsplit(asked).netloc, _repository(asked)
            fix = f"push the lock's files as they are: oras push {host}/{repository}:COMMIT FILE...; then call pulumi "
            fix += "up again"
            if not code:
                fix = f"correct storage.weights.oci.address where it is no registry's; or {fix}"
            wrong = f"{host} has no blob {asked.rpartition('/')[2]} in its repository {repository}, which is {what}"
            raise WeightsError(Exit.NOT_FOUND, wrong, got=got, fix=fix)
        super()._refused(error, what, asked)

    def _no_access_by(self, got: str, what: str, url: str) -> WeightsError:
        """Also of what is not there: registries state that to those alone who may pull."""
        place, repository = self._token_from, _repository(url)
        if self._login:
            wrong = f"the login in {place} does not open {what}, or it is not there"
            fix = f"push the lock's files to {repository}, or let this login pull from it, or put another into {place}"
        elif place:
            wrong, fix = f"there is no login in {place}, and {what} needs one", "create that Secret with both"
        else:
            wrong = f"{what} needs a login, or is not there"
            fix = f"push the lock's files to {repository}, or name a Secret that has one, as "
            fix += "storage.weights.oci.login_secret"
        return WeightsError(Exit.TOKEN, wrong, got=got, fix=f"{fix}; then call pulumi up again")


class _UnauthorizedError(Exception):
    """The registry answers 401, and states what it wants."""

    def __init__(self, got: str, headers: Iterable[str]) -> None:
        super().__init__(got)
        self.got = got
        self.challenges = challenges(headers)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A token service answers itself: a login goes nowhere else, and an answer to a request without it misleads."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def challenges(headers: Iterable[str]) -> dict[str, dict[str, str]]:
    """Parameters by scheme, names in lower case, of the headers WWW-Authenticate; the first of a scheme counts."""
    schemes: list[tuple[str, dict[str, str]]] = []
    for header in headers:
        for part in _CHALLENGE.finditer(header):
            if part["scheme"]:
                schemes.append((part["scheme"].lower(), {}))
            elif schemes:
                value = part["plain"] if part["quoted"] is None else re.sub(r"\\(.)", r"\1", part["quoted"])
                schemes[-1][1].setdefault(part["name"].lower(), value)
    return dict(reversed(schemes))


def _repository(url: str) -> str:
    """Of a blob's address."""
    return urlsplit(url).path.partition("/v2/")[2].rpartition("/blobs/")[0]


def _code(error: urllib.error.HTTPError) -> str:
    """The first code of an answer that refuses, such as BLOB_UNKNOWN; empty without one."""
    try:
        stated = json.loads(error.read(4096))
        code = str(stated["errors"][0]["code"])
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError, RecursionError):
        return ""
    return code if re.fullmatch(r"[A-Z_]{1,64}", code) else ""
