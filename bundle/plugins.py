"""Pulumi's plugins that the project's locked packages go with."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from bundle.wheels import Package

# Packages of providers are called after them. This one brings rules, and has no provider.
_PROVIDER = re.compile(r"pulumi[-_](?!policy$)(?P<name>[a-z0-9-]+)")


@dataclass(frozen=True, order=True)
class Plugin:
    """The plugin of a provider, which has the version of its package."""

    name: str
    version: str
    """As the package has it, such as `4.34.2`."""

    @property
    def folder(self) -> str:
        """Below Pulumi's folder of plugins."""
        return f"{self.key}-v{self.version}"

    @property
    def key(self) -> str:
        """Kind and name, as `pulumi plugin ls` has them."""
        return f"resource-{self.name}"

    @property
    def program(self) -> str:
        """The executable in its folder."""
        return f"pulumi-resource-{self.name}"


def plugins_of(packages: Iterable[Package]) -> tuple[Plugin, ...]:
    """One for each package of a provider, sorted."""
    named = ((_PROVIDER.fullmatch(package.name), package.version) for package in packages)
    return tuple(sorted(Plugin(match["name"], version) for match, version in named if match))
