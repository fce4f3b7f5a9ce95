"""Which forge, repository and account: from arguments, or from what the forge's own CI sets."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from sitectl.forge import github, gitlab
from sitectl.forge.model import Client, Forge
from sitectl.shell.errors import Exit, SitectlError

Function = TypeVar("Function", bound=Callable[..., Any])
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)+|\d+")


def options(*, required: bool) -> Callable[[Function], Function]:
    """Options of every command that talks to a forge, which are the arguments of `choose`."""

    def declare(command: Function) -> Function:
        for option in (
            click.option(
                "--author", default="", metavar="ACCOUNT", help="account of the token (default: the CI's own)"
            ),
            click.option("--api", metavar="URL", help="default: GITHUB_API_URL or CI_API_V4_URL, else the public one"),
            click.option("--repository", metavar="OWNER/NAME", help="default: GITHUB_REPOSITORY or CI_PROJECT_ID"),
            click.option("--forge", type=click.Choice(["github", "gitlab"]), required=required, help="whose API it is"),
        ):
            command = option(command)
        return command

    return declare


def choose(*, forge: str, repository: str, api: str, author: str, environment: Mapping[str, str] = os.environ) -> Forge:
    """The forge; its token is GITHUB_TOKEN or GITLAB_TOKEN. Raises SitectlError for what is missing."""
    hub = forge == "github"
    variable = "GITHUB_TOKEN" if hub else "GITLAB_TOKEN"
    token = environment.get(variable, "")
    if not token:
        raise SitectlError(
            f"no token: {variable} is not set",
            fix=f"set {variable}; what it may do: python -m sitectl docs ci",
            status=Exit.UNABLE,
        )
    named = repository or environment.get("GITHUB_REPOSITORY" if hub else "CI_PROJECT_ID", "")
    if not _REPOSITORY.fullmatch(named) or ".." in named:
        raise SitectlError("which repository?", got=named, allowed="owner/name", fix="--repository", status=Exit.USAGE)
    base = api or environment.get("GITHUB_API_URL" if hub else "CI_API_V4_URL", "")
    if hub:
        client = Client(base or github.API, github.headers(token))
        return github.GitHub(client, named, *([author] if author else []))
    return gitlab.GitLab(Client(base or gitlab.API, gitlab.headers(token)), named, author)
