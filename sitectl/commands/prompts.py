"""`prompts`: the prompts of tenants by id, in versions: put, list, show, compare, use and remove them."""

from __future__ import annotations

import difflib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from floor.counts import counted
from sitectl.commands.site_directory import site_directory
from sitectl.output.columns import columns
from sitectl.shell.command import Command, CommandContext, CommandGroup, pass_context, site_names
from sitectl.shell.errors import Exit, SitectlError, unusable_file

_PAGE = "docs/how-to/prompts-by-id.md"
MORE = f"""\
\b
  python -m sitectl prompts put prod search greeting greeting.txt
  python -m sitectl prompts list prod search
  python -m sitectl prompts diff prod search greeting 1 2
  python -m sitectl prompts use prod search greeting 1

A prompt is a text with {{{{variables}}}}, of one tenant. Each change is a version of its own; one is in use. Clients
name the id in a request, and the gateway puts the text in its place. {_PAGE} has every step.

It needs the stack's kubeconfig and kubectl, and a role that reads the Secret directory-secrets.
"""
_PUT_MORE = """\
The new version is in use within seconds. `use` with the version before takes that back.
"""


@click.group(cls=CommandGroup, epilog=MORE)
def command() -> None:
    pass


_SITE = click.argument("site", shell_complete=site_names, help="name of the site, which is its stack")
_TENANT = click.argument("tenant", help="a tenant of the site's file")
_ID = click.argument("prompt", metavar="ID", help="the prompt's id, as clients name it")
_NUMBER = click.IntRange(min=1)
_VERSION = click.argument("version", type=_NUMBER, help="number of the version")


@command.command(cls=Command, epilog=_PUT_MORE)
@_SITE
@_TENANT
@_ID
@click.argument("file", type=click.Path(path_type=Path), help="file with the text, in UTF-8")
@pass_context
def put(context: CommandContext, *, site: str, tenant: str, prompt: str, file: Path) -> int:
    """Make a version of a prompt, which is in use from now on."""
    try:
        text = (context.folder / file).read_text()
    except OSError as error:
        raise unusable_file(error) from None
    except UnicodeDecodeError:
        raise SitectlError(f"{file} is not text in UTF-8", fix="save it as UTF-8", status=Exit.USAGE) from None
    with site_directory(context, site) as directory:
        made = directory.put_prompt({"tenant": tenant, "id": prompt, "text": text})
    variables = ", ".join(made["variables"]) or "none"
    context.say(f"{site}: {_named(made)} is in use; variables: {variables}", {"site": site, "prompt": made})
    return int(Exit.OK)


@command.command("list", cls=Command)
@_SITE
@_TENANT
@pass_context
def list_(context: CommandContext, *, site: str, tenant: str) -> int:
    """List the versions of a tenant's prompts."""
    with site_directory(context, site) as directory:
        versions = directory.prompts(tenant)
    rows = [("ID", "VERSION", "STATE", "AT", "WHO", "VARIABLES")]
    rows += [
        (
            version["id"],
            str(version["version"]),
            "in use" if version["in_use"] else "-",
            datetime.fromtimestamp(version["at"], UTC).strftime("%Y-%m-%d %H:%MZ"),
            version["actor"],
            ", ".join(version["variables"]) or "-",
        )
        for version in versions
    ]
    text = "\n".join([*columns(rows), f"{site}: {counted(len(versions), 'version')} of {tenant}"])
    context.say(text, {"site": site, "versions": versions})
    return int(Exit.OK)


@command.command(cls=Command)
@_SITE
@_TENANT
@_ID
@click.option("--version", "number", type=_NUMBER, metavar="NUMBER", help="default: the one in use")
@pass_context
def show(context: CommandContext, *, site: str, tenant: str, prompt: str, number: int | None) -> int:
    """Print the text of a version."""
    with site_directory(context, site) as directory:
        version = _chosen(directory.prompts(tenant, prompt), number)
    context.say(version["text"], {"site": site, "prompt": version})
    return int(Exit.OK)


@command.command(cls=Command)
@_SITE
@_TENANT
@_ID
@click.argument("before", type=_NUMBER, help="number of a version")
@click.argument("after", type=_NUMBER, help="number of another one")
@pass_context
def diff(context: CommandContext, *, site: str, tenant: str, prompt: str, before: int, after: int) -> int:
    """Show what differs between two versions."""
    with site_directory(context, site) as directory:
        versions = directory.prompts(tenant, prompt)
    old, new = (_chosen(versions, number) for number in (before, after))
    before_lines, after_lines = (version["text"].splitlines() for version in (old, new))
    lines = list(difflib.unified_diff(before_lines, after_lines, _named(old), _named(new), lineterm=""))
    context.say(
        "\n".join(lines) or f"{_named(old)} and {_named(new)} have the same text", {"site": site, "diff": lines}
    )
    return int(Exit.OK)


@command.command(cls=Command)
@_SITE
@_TENANT
@_ID
@_VERSION
@pass_context
def use(context: CommandContext, *, site: str, tenant: str, prompt: str, version: int) -> int:
    """Put a version in use, such as the one before."""
    with site_directory(context, site) as directory:
        used = directory.use_prompt(tenant, prompt, version)
    context.say(f"{site}: {_named(used)} is in use", {"site": site, "prompt": used})
    return int(Exit.OK)


@command.command(cls=Command)
@_SITE
@_TENANT
@_ID
@_VERSION
@pass_context
def remove(context: CommandContext, *, site: str, tenant: str, prompt: str, version: int) -> int:
    """Remove a version that is not in use, for good."""
    with site_directory(context, site) as directory:
        removed = directory.remove_prompt(tenant, prompt, version)
    context.say(f"{site}: {_named(removed)} is removed", {"site": site, "prompt": removed})
    return int(Exit.OK)


def _named(version: dict[str, Any]) -> str:
    return f"{version['id']}@{version['version']}"


def _chosen(versions: list[dict[str, Any]], number: int | None) -> dict[str, Any]:
    for version in versions:
        if version["version"] == number or (number is None and version["in_use"]):
            return version
    there = ", ".join(str(version["version"]) for version in versions)
    raise SitectlError("there is no such version", got=str(number), allowed=there, fix="name one", status=Exit.REFUSED)
