"""The client of an image factory: list its extensions, and register a schematic.

Its API: https://github.com/siderolabs/image-factory/blob/v1.5.0/docs/api.md
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import httpx

from talos.factory.extensions import Extension, parse_extensions
from talos.factory.schematic import FactoryError, Schematic
from talos.factory.site import FactorySite, checked_version

# What may pass by itself. A 500 does not: the factory answers a malformed version with it.
_PASSING = {429, 502, 503, 504}


class ImageFactory:
    """A client for one factory. Every call it makes may be repeated: a schematic's id is its content."""

    def __init__(
        self,
        site: FactorySite | None = None,
        *,
        transport: httpx.BaseTransport | None = None,
        timeout_s: float = 30.0,
        attempts: int = 5,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`transport` replaces the network (tests); `attempts` counts the first one too.

        Raises FactoryError for a proxy of the environment that cannot be used.
        """
        self.site = site or FactorySite()
        self._attempts = attempts
        self._sleep = sleep
        try:
            self._client = httpx.Client(
                base_url=self.site.base_url, transport=transport, timeout=timeout_s, follow_redirects=False
            )
        # Its text may have the proxy's password.
        except (httpx.InvalidURL, ImportError, ValueError) as error:
            raise FactoryError(
                f"{self.site.base_url} cannot be asked through the proxy of the environment ({type(error).__name__})",
                fix="let HTTPS_PROXY, HTTP_PROXY and ALL_PROXY name one by http:// or https://, or none",
            ) from None

    def __enter__(self) -> ImageFactory:
        """Itself; leaving closes its connections."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections."""
        self._client.close()

    def post_schematic(self, schematic: Schematic) -> str:
        """Make the factory know the schematic; returns its id.

        Raises FactoryError, also when the factory's id is not the one that was computed here: then everything that
        was written with ours (installer references) would point to another image.
        """
        answer = self._ask("POST", "/schematics", schematic.canonical())
        try:
            theirs = str(answer.json()["id"])
        except (ValueError, KeyError, TypeError):
            raise self._error(answer, "answered without a schematic id") from None
        if theirs != schematic.id:
            raise FactoryError(
                f"{self.site.base_url} gave the schematic id {theirs}, computed here is {schematic.id}",
                fix="the factory writes schematics in another form than image-factory v1.5.0: use that version, "
                "or report the schematic; do not install with either id",
            )
        return theirs

    def official_extensions(self, talos_version: str) -> tuple[Extension, ...]:
        """The factory's official extensions for a Talos version; FactoryError if it has none or is not there."""
        path = f"/version/{checked_version(talos_version)}/extensions/official"
        return parse_extensions(self._ask("GET", path).content, source=f"{self.site.base_url}{path}")

    def _ask(self, method: str, path: str, body: bytes | None = None) -> httpx.Response:
        for attempt in range(1, self._attempts + 1):
            last = attempt == self._attempts
            try:
                answer = self._client.request(method, path, content=body)
            except httpx.TransportError as error:
                if last:
                    raise FactoryError(
                        f"{method} {self.site.base_url}{path}: no answer, asked {attempt} times "
                        f"({type(error).__name__})",
                        fix="check the address, DNS, and that this machine reaches the factory",
                    ) from None
                self._sleep(_pause_s(attempt))
                continue
            if answer.status_code in _PASSING and not last:
                self._sleep(max(_pause_s(attempt), _asked_pause_s(answer)))
                continue
            if answer.status_code not in {200, 201}:
                raise self._error(answer, f"HTTP {answer.status_code}: {answer.text.strip()[:300]}")
            return answer
        raise AssertionError("unreachable")

    def _error(self, answer: httpx.Response, what: str) -> FactoryError:
        fix = {
            400: "the schematic or version is not valid for this factory; see what it reports",
            401: "this factory requires a login, which only its Enterprise edition has; use one without",
            402: "this needs the factory's Enterprise edition",
            404: "check the Talos version and that the address is an image factory's",
            500: "check the Talos version, then the factory's own log",
        }.get(answer.status_code, "look into the factory's own log")
        return FactoryError(f"{answer.request.method} {answer.request.url}: {what}", fix=fix)


def _pause_s(attempt: int) -> float:
    # Full jitter, so that many machines do not come back at once.
    return random.uniform(0.5, 1.0) * min(0.5 * 2.0 ** (attempt - 1), 10.0)  # noqa: S311


def _asked_pause_s(answer: httpx.Response) -> float:
    asked = str(answer.headers.get("retry-after", ""))
    return min(float(asked), 60.0) if asked.isdigit() else 0.0
