"""Declares an addon: a namespace, charts of others in it, who reaches their pods, and when they work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
from pulumi_kubernetes.helm import v3 as helm

from components.addons.addon import Addon, AddonContent, AddonRelease, AddonSite
from components.component import Component
from components.namespace import Namespace

# Helm keeps each revision with all its values in a Secret.
_REVISIONS_KEPT = 5
# How long Helm waits for each release.
_PATIENCE_S = 900


def helm_release(
    name: str,
    release: AddonRelease,
    namespace: str,
    opts: pulumi.ResourceOptions,
    *,
    skip_crds: bool | None = None,
    patience_s: int = _PATIENCE_S,
) -> helm.Release:
    """The chart, installed. skip_crds: whether its definitions come from elsewhere."""
    chart = release.chart
    return helm.Release(
        name,
        name=release.name,
        chart=chart.chart,
        version=chart.version,
        repository_opts=helm.RepositoryOptsArgs(repo=chart.repository) if chart.repository else None,
        namespace=namespace,
        values=dict(release.values),
        skip_crds=skip_crds,
        disable_openapi_validation=release.hooks_upgrade_definitions or None,
        timeout=patience_s,
        max_history=_REVISIONS_KEPT,
        opts=opts,
    )


class InstalledAddon(Component):
    """Namespace, policies, releases, and the objects that need them; its type is the descriptor's.

    Releases, not rendered charts: these charts have hooks that upgrade and remove their definitions. Nothing of the
    program is of these kinds before the release is done, so the definitions come with the chart (ADR 34), but for
    cert-manager's (ADR 38).
    """

    def __init__(
        self,
        addon: Addon,
        site: AddonSite,
        needs: Sequence[pulumi.Resource] = (),
        opts: pulumi.ResourceOptions | None = None,
        filled: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """needs: what must be there before the releases. filled: what fills Secrets that they read."""
        own = addon.component
        if own is None:
            raise ValueError(f"another component installs {addon.key}")
        super().__init__(own.name, opts, token=own.resource_type)
        here, content = pulumi.ResourceOptions(parent=self), own.content(site)
        space: list[pulumi.Resource] = []
        if own.pod_security is not None:
            space = [Namespace(addon.namespace, pod_security=own.pod_security, opts=here).handle.ready]
        allowed: list[pulumi.Resource] = [
            self.child(f"network-policy-{policy['metadata']['name']}", policy, depends_on=space or list(needs))
            for policy in content.network_policies
        ]
        made_of_store = [
            self.child(f"filled-{body['metadata']['name']}", body, depends_on=[*needs, *space], patience_s=_PATIENCE_S)
            for body in filled
        ]
        first = [self.child(f"{body['kind'].lower()}-{body['metadata']['name']}", body) for body in content.before]
        installed: dict[str, pulumi.Resource] = {}
        for release in content.releases:
            after = [*needs, *space, *allowed, *made_of_store, *first, *installed.values()]
            installed[release.name] = self._release(release, addon.namespace, after)
        self.ready: list[pulumi.Resource] = [*installed.values(), *self._objects(content, installed)]
        """The addon works once these are there."""
        if content.notice and not pulumi.runtime.is_dry_run():
            pulumi.log.info(content.notice.format(stack=pulumi.get_stack()), self)
        self.finish(namespace=addon.namespace)

    def _objects(self, content: AddonContent, installed: Mapping[str, pulumi.Resource]) -> list[pulumi.Resource]:
        made: dict[str, pulumi.Resource] = {}
        for declared in content.objects:
            known = {**installed, **made}
            made[declared.suffix] = self.child(
                declared.suffix,
                declared.body,
                depends_on=[known[name] for name in declared.after or installed],
                patience_s=declared.patience_s,
                is_patch=declared.is_patch,
            )
        return list(made.values())

    def _release(self, release: AddonRelease, namespace: str, after: list[pulumi.Resource]) -> pulumi.Resource:
        def make(name: str, opts: pulumi.ResourceOptions) -> helm.Release:
            return helm_release(name, release, namespace, opts)

        if release.holder is None:
            return make(f"{self.name}-{release.name}", pulumi.ResourceOptions(parent=self, depends_on=after))
        return self.stateful(release.name, release.holder, make, keeping=release.keeping, depends_on=after)
