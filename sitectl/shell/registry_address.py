"""Options that name a registry: `HOST[:PORT][/PREFIX]`, as images are named in it."""

from __future__ import annotations

import re

import click

from floor.images import REPOSITORY
from sitectl.shell.errors import Exit, SitectlError

FORM = "HOST[:PORT][/PREFIX]"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
# A first part without dot and port is a path of Docker Hub to every tool, but for localhost.
_HOST = rf"(?:{_LABEL}(?:\.{_LABEL})+(?::[0-9]+)?|{_LABEL}:[0-9]+|localhost|\[[0-9A-Fa-f:]+\](?::[0-9]+)?)"
_ADDRESS = re.compile(rf"{_HOST}(?:/{REPOSITORY})?")


class RegistryAddress(click.ParamType[str]):
    """Text of this form. Raises SitectlError for any other."""

    name = FORM

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ARG002
        if _ADDRESS.fullmatch(value):
            return value
        option = param.opts[0] if param else "the address"
        raise SitectlError(
            f"{option} names no registry",
            # The part before an @ may be a password.
            got=value.rpartition("@")[2],
            allowed=f"{FORM}, HOST with a dot or a port, or localhost; no scheme, no credentials, no / at the end",
            fix=f"write it like {option} registry.site.example; credentials: crane auth login HOST",
            status=Exit.USAGE,
        )


REGISTRY = RegistryAddress()
