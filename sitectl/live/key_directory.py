"""Asks the directory of keys in a site's cluster."""

from __future__ import annotations

import getpass
import os
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from services.directory import variables
from sitectl.live import site_service
from sitectl.live.site_cluster import SiteCluster
from sitectl.live.site_service import PlatformService, SiteService

PAGE = "docs/how-to/keys-for-tenants.md"
_DIRECTORY = PlatformService(
    name=variables.SERVICE,
    port=variables.DEFAULT_PORT,
    called="directory of keys",
    secret=variables.TOKENS_SECRET,
    token_key=variables.OPERATOR_KEY,
    token_header=variables.TOKEN_HEADER,
    setting="callers.database_secret",
    page=PAGE,
    meanwhile="keys that exist go on working",
)
_LONGEST_ACTOR = 60


@dataclass(frozen=True)
class KeyDirectory:
    """Of one site. Every request raises SitectlError where it is refused, or nothing answers."""

    _service: SiteService

    def create(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """A new key, with its text."""
        return self._service.ask("POST", "/v1/keys", order)

    def keys(self, tenant: str | None) -> list[dict[str, Any]]:
        """What was ever made, of one tenant or of all."""
        keys: list[dict[str, Any]] = self._service.ask("GET", f"/v1/keys?{urlencode({'tenant': tenant or ''})}")["keys"]
        return keys

    def rotate(self, key_id: str, overlap_s: int) -> dict[str, Any]:
        """A new key in the place of this one, with its text."""
        return self._service.ask("POST", f"/v1/keys/{key_id}/rotate", {"overlap_s": overlap_s})

    def revoke(self, key_id: str) -> dict[str, Any]:
        """The key, which works no more."""
        return self._service.ask("DELETE", f"/v1/keys/{key_id}")

    def suspensions(self) -> list[dict[str, Any]]:
        """Those in force."""
        listed: list[dict[str, Any]] = self._service.ask("GET", "/v1/suspensions")["suspensions"]
        return listed

    def suspend(self, order: Mapping[str, str]) -> dict[str, Any]:
        """The suspension, in force."""
        return self._service.ask("POST", "/v1/suspensions", order)

    def lift(self, tenant: str, name: str) -> dict[str, Any]:
        """The suspension, in force no more."""
        return self._service.ask("DELETE", f"/v1/suspensions/{quote(tenant, safe='')}/{quote(name, safe='')}")

    def forget(self, tenant: str) -> dict[str, Any]:
        """How much there was of a tenant that left, by kind."""
        return self._service.ask("DELETE", f"/v1/tenants/{quote(tenant, safe='')}")

    def acts(self) -> list[dict[str, Any]]:
        """Every row of the audit, from the first one."""
        acts: list[dict[str, Any]] = []
        while True:
            page = self._service.ask("GET", f"/v1/audit?{urlencode({'after': acts[-1]['number'] if acts else 0})}")
            acts += page["acts"]
            if not page["more"]:
                return acts

    def prompts(self, tenant: str, prompt: str | None = None) -> list[dict[str, Any]]:
        """Versions of a tenant's prompts, or of one with their texts."""
        path = f"/v1/prompts?{urlencode({'tenant': tenant})}" if prompt is None else _prompt(tenant, prompt)
        versions: list[dict[str, Any]] = self._service.ask("GET", path)["versions"]
        return versions

    def put_prompt(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """A new version, which is in use."""
        return self._service.ask("POST", "/v1/prompts", order)

    def use_prompt(self, tenant: str, prompt: str, version: int) -> dict[str, Any]:
        """The version, which is in use."""
        return self._service.ask("POST", f"{_prompt(tenant, prompt)}/use", {"version": version})

    def remove_prompt(self, tenant: str, prompt: str, version: int) -> dict[str, Any]:
        """The version, which is not there any more."""
        return self._service.ask("DELETE", f"{_prompt(tenant, prompt)}/{version}")

    def orders(self, tenant: str | None = None) -> list[dict[str, Any]]:
        """Orders of models, of one tenant or of all, the newest first."""
        asked = urlencode({"tenant": tenant or ""})
        orders: list[dict[str, Any]] = self._service.ask("GET", f"/v1/orders?{asked}")["orders"]
        return orders

    def order_model(self, order: Mapping[str, str]) -> dict[str, Any]:
        """A new order of a model."""
        return self._service.ask("POST", "/v1/orders", order)

    def change_order(self, order_id: str, state: str, why: str) -> dict[str, Any]:
        """The order, proposed or declined."""
        return self._service.ask("POST", f"/v1/orders/{order_id}", {"state": state, "why": why})


def _prompt(tenant: str, prompt: str) -> str:
    return f"/v1/prompts/{quote(tenant, safe='')}/{quote(prompt, safe='')}"


@contextmanager
def of_cluster(cluster: SiteCluster) -> Iterator[KeyDirectory]:
    """The directory of a site's cluster. Raises SitectlError where the cluster does not answer, or has none."""
    headers = {variables.ACTOR_HEADER: _actor(), variables.SOURCE_HEADER: "sitectl"}
    with site_service.of_cluster(cluster, _DIRECTORY, headers) as service:
        yield KeyDirectory(service)


def _actor() -> str:
    """Who calls, for the directory's audit: the user of this machine."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return re.sub(r"[^\x21-\x7e]", "?", f"{user}@{socket.gethostname()}")[:_LONGEST_ACTOR]
