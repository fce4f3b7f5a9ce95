"""The base of every addon: a namespace, charts of others in it, who reaches their pods, and when they work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_kubernetes.helm import v3 as helm

from components.addons.charts import Chart
from components.component import Component
from components.namespace import Namespace, PodSecurity
from floor.stateful import Holder, Keeping

# Helm keeps each revision with all its values in a Secret.
_REVISIONS_KEPT = 5


@dataclass(frozen=True, kw_only=True)
class AddonRelease:
    """One chart as Helm installs it."""

    name: str
    """Of the release; with the addon's name before it, of the resource."""
    chart: Chart
    values: Mapping[str, Any]
    hooks_upgrade_definitions: bool = False
    """The chart brings definitions with hooks that upgrade them, which Helm must not check against the old ones."""
    holder: Holder | None = None
    """What data would go with it."""
    keeping: Keeping = "disposable"
    """Whether the engine refuses to uninstall it."""


@dataclass(frozen=True, kw_only=True)
class AddonArgs:
    """What an addon consists of, and where it is installed."""

    namespace: str
    pod_security: PodSecurity
    releases: Sequence[AddonRelease]
    """Each after the one before it."""
    network_policies: Sequence[Mapping[str, Any]] = ()
    """The namespace denies all other ingress."""
    before: Sequence[Mapping[str, Any]] = ()
    """Objects that the releases need."""
    needs: Sequence[pulumi.Resource] = ()
    """What must be there before them."""
    patience_s: int = 900
    """How long Helm waits for each release."""


@dataclass(frozen=True, kw_only=True)
class AddonHandle:
    """An addon that works; empty where the site sets `external`."""

    ready: list[pulumi.Resource]


class Addon(Component):
    """Namespace, policies and releases; a subclass adds objects of its own and finishes.

    Releases, not rendered charts: these charts have hooks that upgrade and remove their definitions. Nothing of the
    program is of these kinds before the release is done, so the definitions come with the chart (ADR 34), but for
    cert-manager's (ADR 38).
    """

    def __init__(self, name: str, args: AddonArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        here = pulumi.ResourceOptions(parent=self)
        self.space = Namespace(args.namespace, pod_security=args.pod_security, opts=here).handle
        allowed: list[pulumi.Resource] = [
            self.child(f"network-policy-{policy['metadata']['name']}", policy, depends_on=[self.space.ready])
            for policy in args.network_policies
        ]
        first = [self.child(f"{body['kind'].lower()}-{body['metadata']['name']}", body) for body in args.before]
        self.installed: list[pulumi.Resource] = []
        for release in args.releases:
            after = [*args.needs, self.space.ready, *allowed, *first, *self.installed]
            self.installed.append(self._installed(release, args, after))

    def _installed(self, release: AddonRelease, args: AddonArgs, after: list[pulumi.Resource]) -> pulumi.Resource:
        def make(name: str, opts: pulumi.ResourceOptions) -> helm.Release:
            chart = release.chart
            return helm.Release(
                name,
                name=release.name,
                chart=chart.chart,
                version=chart.version,
                repository_opts=helm.RepositoryOptsArgs(repo=chart.repository) if chart.repository else None,
                namespace=args.namespace,
                values=dict(release.values),
                disable_openapi_validation=release.hooks_upgrade_definitions or None,
                timeout=args.patience_s,
                max_history=_REVISIONS_KEPT,
                opts=opts,
            )

        if release.holder is None:
            return make(f"{self.name}-{release.name}", pulumi.ResourceOptions(parent=self, depends_on=after))
        return self.stateful(release.name, release.holder, make, keeping=release.keeping, depends_on=after)
