"""Fills Secrets out of a site's store, each before what reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from components.addons.secret_store import (
    FilledSecrets,
    FilledSecretsArgs,
    SecretStore,
    SecretStoreArgs,
    SecretStoreHandle,
    external_secret,
)
from stacks.plan.remote_secrets import remote_secrets
from stacks.site.model import SiteConfig


@dataclass(frozen=True, kw_only=True)
class SecretSource:
    """What fills the Secrets of a site; nothing where the site makes all of them."""

    site: SiteConfig
    store: SecretStoreHandle
    opts: pulumi.ResourceOptions

    def bodies(self, namespace: str) -> list[Mapping[str, Any]]:
        """ExternalSecrets of a namespace, for the component that makes it and what reads them."""
        interval_s = self.site.secrets.refresh_interval_s
        return [
            external_secret(secret, self.store.name, interval_s)
            for secret in remote_secrets(self.site)
            if secret.namespace == namespace
        ]

    def fill(self, namespace: str, needs: Sequence[pulumi.Resource] = ()) -> list[pulumi.Resource]:
        """Declare those of a namespace; what reads them waits for what this returns. needs: the namespace."""
        bodies = self.bodies(namespace)
        if not bodies:
            return []
        args = FilledSecretsArgs(bodies=bodies, needs=[*self.store.ready, *needs])
        return FilledSecrets(f"secrets-{namespace}", args, self.opts).handle.ready


def declare_source(
    site: SiteConfig, installed: Sequence[pulumi.Resource], opts: pulumi.ResourceOptions
) -> SecretSource:
    """Declare the store, as far as the site lets the program; nothing where it sets `none`.

    installed: external-secrets, where the program installs it.
    """
    spec = site.secrets
    if spec.system == "none" or spec.store is None:
        return SecretSource(site=site, store=SecretStoreHandle(name="", ready=[]), opts=opts)
    readers = sorted({secret.namespace for secret in remote_secrets(site)})
    store = SecretStore("secret-store", SecretStoreArgs(store=spec.store, readers=readers, needs=installed), opts)
    return SecretSource(site=site, store=store.handle, opts=opts)
