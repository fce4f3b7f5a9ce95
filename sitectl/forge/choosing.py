"""Which forge, repository and account: from arguments, or from what the forge's own CI sets."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping

from sitectl.errors import Exit, SitectlError
from sitectl.forge import github, gitlab
from sitectl.forge.model import Client, Forge

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)+|\d+")


def add_arguments(parser: argparse.ArgumentParser, *, is_needed: bool = True) -> None:
    """Arguments of every command that talks to a forge."""
    parser.add_argument("--forge", choices=["github", "gitlab"], required=is_needed, help="whose API it is")
    parser.add_argument("--repository", metavar="OWNER/NAME", help="default: GITHUB_REPOSITORY or CI_PROJECT_ID")
    parser.add_argument("--api", metavar="URL", help="default: GITHUB_API_URL or CI_API_V4_URL, else the public one")
    parser.add_argument("--author", default="", metavar="ACCOUNT", help="account of the token (default: the CI's own)")


def choose(arguments: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> Forge:
    """The forge; its token is GITHUB_TOKEN or GITLAB_TOKEN. Raises SitectlError for what is missing."""
    hub = arguments.forge == "github"
    variable = "GITHUB_TOKEN" if hub else "GITLAB_TOKEN"
    token = environment.get(variable, "")
    if not token:
        raise SitectlError(
            f"no token: {variable} is not set", fix="see docs/ci.md for what it may do", status=Exit.UNABLE
        )
    named = arguments.repository or environment.get("GITHUB_REPOSITORY" if hub else "CI_PROJECT_ID", "")
    if not _REPOSITORY.fullmatch(named) or ".." in named:
        raise SitectlError("which repository?", got=named, allowed="owner/name", fix="--repository", status=Exit.USAGE)
    base = arguments.api or environment.get("GITHUB_API_URL" if hub else "CI_API_V4_URL", "")
    if hub:
        client = Client(base or github.API, github.headers(token))
        return github.GitHub(client, named, *([arguments.author] if arguments.author else []))
    return gitlab.GitLab(Client(base or gitlab.API, gitlab.headers(token)), named, arguments.author)
