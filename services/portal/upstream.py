"""The services that the portal asks: the directory of keys, the ledger of usage, the gateway."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx2

from services.directory import variables as directory_names
from services.ledger import variables as ledger_names
from services.ledger.variables import SIGNALS_PATH
from services.portal.failure import PortalError, away, missing, refused
from services.portal.origin import ADDRESS
from services.portal.people import Person
from services.portal.settings import secret

_STREAM_S = httpx2.Timeout(5, read=120)

_REFUSALS = {
    "owner_suspended": (
        "A key of yours in this team is suspended, so you get no other one there.",
        "Ask who runs the platform; they see why.",
    ),
    "too_many_keys": ("You have as many keys as may work in a team.", "Revoke one that you do not use."),
    "rotated_already": ("This key was rotated already.", "Rotate its successor, or order another key."),
    "ordered_already": ("Your team has ordered it already.", "The page Orders shows how far it is."),
    "too_many_acts": ("You changed too much within a minute.", "Wait a minute, and do it again."),
}
"""What the directory refuses a person, by its code, in words for them."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Service:
    """One of them, and what works without it."""

    client: httpx2.AsyncClient
    url: str
    part: str
    without_it: str
    wait: httpx2.Timeout

    async def ask(self, method: str, path: str, headers: Mapping[str, str], **more: Any) -> httpx2.Response:
        """Its answer, of any status below 500. Raises PortalError where there is none."""
        try:
            response = await self.client.request(method, self.url + path, headers=headers, timeout=self.wait, **more)
        except httpx2.HTTPError as error:
            raise self.failed(type(error).__name__) from None
        if response.status_code >= 500 or response.status_code == 401:
            raise self.failed(f"status {response.status_code}")
        return response

    def failed(self, reason: str) -> PortalError:
        log.warning("the %s failed: %s", self.part, reason)
        return away(self.part, self.without_it)


class KeyService:
    """The keys. Each act carries the person who asks for it."""

    def __init__(self, client: httpx2.AsyncClient, url: str, token_file: Path) -> None:
        rest = (
            "Keys that exist go on working, and the catalogue is there. If you just made or changed a key, "
            "look at the list of keys before you do it again."
        )
        self._service = _Service(client, url, "directory of keys", rest, httpx2.Timeout(5))
        self._token_file = token_file

    async def keys(
        self, actor: str, tenant: str, state: str, most: int, owner: str = "", part: str = ""
    ) -> list[dict[str, Any]]:
        """Of a tenant, without their text; state: works or ended; owner: the mark of a person; part: of name or id."""
        asked = {"tenant": tenant, "state": state, "most": most, "owner": owner, "part": part}
        return list((await self._ask(actor, "GET", "/v1/keys", params=asked))["keys"])

    async def key(self, actor: str, key_id: str) -> dict[str, Any]:
        """One of any tenant."""
        return await self._ask(actor, "GET", f"/v1/keys/{quote(key_id, safe='')}")

    async def create(
        self, person: Person, tenant: str, name: str, models: list[str] | None, expires_in_s: int, most: int | None
    ) -> dict[str, Any]:
        """The new key, with its text as `key`. most: keys of theirs that may work."""
        owner = {"mark": person.mark, "most": most}
        order = {"tenant": tenant, "name": name, "models": models, "expires_in_s": expires_in_s, "owner": owner}
        return await self._ask(person.actor, "POST", "/v1/keys", json=order)

    async def rotate(self, person: Person, key_id: str, overlap_s: int, most: int) -> dict[str, Any]:
        """Its successor, with its text as `key`."""
        order = {"overlap_s": overlap_s, "owner": {"mark": person.mark, "most": most}}
        return await self._ask(person.actor, "POST", f"/v1/keys/{quote(key_id, safe='')}/rotate", json=order)

    async def revoke(self, actor: str, key_id: str) -> dict[str, Any]:
        """The key, which does not work any more."""
        return await self._ask(actor, "DELETE", f"/v1/keys/{quote(key_id, safe='')}")

    async def orders(self, actor: str, tenant: str | None = None) -> list[dict[str, Any]]:
        """A tenant's orders of models, or those of all, the newest first."""
        params = {} if tenant is None else {"tenant": tenant}
        return list((await self._ask(actor, "GET", "/v1/orders", params=params))["orders"])

    async def order_model(self, actor: str, tenant: str, model: str, note: str) -> dict[str, Any]:
        """The order."""
        return await self._ask(actor, "POST", "/v1/orders", json={"tenant": tenant, "model": model, "note": note})

    async def decline(self, actor: str, order_id: str, why: str) -> dict[str, Any]:
        """The order, which is declined."""
        return await self._ask(actor, "POST", f"/v1/orders/{order_id}", json={"state": "declined", "why": why})

    async def prompts(self, actor: str, tenant: str, prompt: str | None = None) -> list[dict[str, Any]]:
        """Versions of a tenant's prompts; those of one prompt have their `text`."""
        asked = ("/v1/prompts", {"tenant": tenant}) if prompt is None else (_prompt(tenant, prompt), {})
        return list((await self._ask(actor, "GET", asked[0], params=asked[1]))["versions"])

    async def put_prompt(self, actor: str, tenant: str, prompt: str, text: str) -> dict[str, Any]:
        """The new version, which is in use."""
        return await self._ask(actor, "POST", "/v1/prompts", json={"tenant": tenant, "id": prompt, "text": text})

    async def use_prompt(self, actor: str, tenant: str, prompt: str, version: int) -> dict[str, Any]:
        """The version, which is in use."""
        return await self._ask(actor, "POST", f"{_prompt(tenant, prompt)}/use", json={"version": version})

    async def remove_prompt(self, actor: str, tenant: str, prompt: str, version: int) -> dict[str, Any]:
        """The version, whose text is gone."""
        return await self._ask(actor, "DELETE", f"{_prompt(tenant, prompt)}/{version}")

    async def suspensions(self, actor: str) -> list[dict[str, Any]]:
        """Of all tenants, those in force."""
        return list((await self._ask(actor, "GET", "/v1/suspensions"))["suspensions"])

    async def suspend(self, actor: str, tenant: str, name: str, why: str) -> dict[str, Any]:
        """The suspension."""
        return await self._ask(actor, "POST", "/v1/suspensions", json={"tenant": tenant, "name": name, "why": why})

    async def lift(self, actor: str, tenant: str, name: str) -> dict[str, Any]:
        """The suspension, which ends."""
        return await self._ask(actor, "DELETE", f"/v1/suspensions/{quote(tenant, safe='')}/{quote(name, safe='')}")

    async def acts(self, actor: str, after: int, most: int) -> dict[str, Any]:
        """`acts` of the audit behind this number, and its `head`."""
        return await self._ask(actor, "GET", "/v1/audit", params={"after": after, "limit": most})

    async def _ask(self, actor: str, method: str, path: str, **more: Any) -> dict[str, Any]:
        headers = {
            directory_names.TOKEN_HEADER: secret(self._token_file),
            directory_names.ACTOR_HEADER: actor,
            directory_names.SOURCE_HEADER: f"{directory_names.PORTAL} {ADDRESS.get()}".strip(),
        }
        response = await self._service.ask(method, path, headers, **more)
        answer: dict[str, Any] = _json(response, self._service)
        if response.status_code == 404:
            raise missing("There is no such key, order or prompt.")
        if response.is_error:
            error = answer.get("error", {})
            if (known := _REFUSALS.get(str(error.get("code")))) is not None:
                raise PortalError(response.status_code, str(error["code"]), *known)
            message = str(error.get("message", "no reason given"))
            raise refused(f"The directory refuses: {message}.", "Correct what it names.")
        return answer


class UsageLedger:
    """What was used, and what it costs."""

    def __init__(self, client: httpx2.AsyncClient, url: str, token_file: Path) -> None:
        self._service = _Service(
            client,
            url,
            "ledger of usage",
            "Nothing is lost: usage is counted and shown later. All other pages work.",
            # It adds up a month.
            httpx2.Timeout(5, read=15),
        )
        self._token_file = token_file

    async def buckets(self, kind: str, tenant: str, start: int, end: int) -> list[dict[str, Any]]:
        """Days of a tenant by model and key, in OpenAI's form. kind: usage/completions or costs."""
        params: dict[str, Any] = {
            "start_time": start,
            "end_time": end,
            "bucket_width": "1d",
            "project_ids": [tenant],
            "group_by": ["model", "api_key_id"],
            "limit": 31,
        }
        buckets: list[dict[str, Any]] = []
        while True:
            response = await self._ask(f"/v1/organization/{kind}", params)
            page = _json(response, self._service)
            buckets += page["data"]
            if not page.get("has_more") or not page.get("next_page"):
                return buckets
            params["page"] = page["next_page"]

    async def bill(self, tenant: str, month: str, form: str) -> tuple[bytes, str]:
        """Content and media type."""
        response = await self._ask(f"/v1/bills/{tenant}/{month}", {"format": form})
        return response.content, response.headers.get("content-type", "application/octet-stream")

    async def signals(self) -> dict[str, Any]:
        """`signals` of keys. Raises PortalError: with the code NOT_THERE where the ledger does not watch them."""
        return _json(await self._ask(SIGNALS_PATH, {}), self._service)

    async def _ask(self, path: str, params: Mapping[str, Any]) -> httpx2.Response:
        headers = {ledger_names.TOKEN_HEADER: secret(self._token_file)}
        response = await self._service.ask("GET", path, headers, params=params)
        if response.status_code == 404:
            raise missing("The ledger has nothing of this tenant and month.")
        if response.is_error:
            raise self._service.failed(f"status {response.status_code}")
        return response


class ModelGateway:
    """The models, asked with a key as any client does."""

    def __init__(self, client: httpx2.AsyncClient, url: str, endpoint: str) -> None:
        self._service = _Service(client, url, "gateway", "Your keys and the catalogue are there.", _STREAM_S)
        # It is reached at an address of the cluster, and answers for the name that people use.
        self._host = urlsplit(endpoint)

    async def stream(self, key: str, model: str, prompt: str) -> AsyncGenerator[str]:
        """Pieces of the answer's text. Raises PortalError, also in the middle of it."""
        asked = {"model": model, "messages": [{"role": "user", "content": prompt}], "stream": True}
        headers = {"authorization": f"Bearer {key}", "host": self._host.netloc}
        request = self._service.client.build_request(
            "POST",
            f"{self._service.url}/v1/chat/completions",
            json=asked,
            headers=headers,
            timeout=self._service.wait,
            extensions={"sni_hostname": self._host.hostname or ""},
        )
        try:
            response = await self._service.client.send(request, stream=True)
            async with contextlib.aclosing(response):
                if response.is_error:
                    raise _refusal_of(response.status_code, await response.aread())
                async for line in response.aiter_lines():
                    if text := _piece(line):
                        yield text
        except httpx2.HTTPError as error:
            raise self._service.failed(type(error).__name__) from None


def _prompt(tenant: str, prompt: str) -> str:
    return f"/v1/prompts/{quote(tenant, safe='')}/{quote(prompt, safe='')}"


def _piece(line: str) -> str:
    """The text of one event. Raises PortalError where it is an error."""
    data = line.removeprefix("data:").strip()
    if not line.startswith("data:") or data == "[DONE]":
        return ""
    with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError):
        event = json.loads(data)
        if "error" in event:
            raise _refusal(str(event["error"].get("message", "")), 502)
        return str(event["choices"][0]["delta"].get("content") or "") if event["choices"] else ""
    return ""


def _refusal_of(status: int, body: bytes) -> PortalError:
    try:
        message = str(json.loads(body)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        message = ""
    return _refusal(message, status)


def _refusal(message: str, status: int) -> PortalError:
    fix = "Wait a moment and try again; the guide for clients explains each answer of the endpoint."
    code = "key_not_known" if status == 401 else "model_refused"
    return PortalError(502 if status != 429 else 429, code, f"The model did not answer: {message or status}.", fix)


def _json(response: httpx2.Response, service: _Service) -> dict[str, Any]:
    try:
        answer = response.json()
        if isinstance(answer, dict):
            return answer
    except ValueError:
        pass
    raise service.failed("no JSON")
