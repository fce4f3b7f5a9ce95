"""`key`: make, list, rotate and revoke the keys of tenants while the platform runs, or make one for the site's file."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from datetime import UTC, datetime
from typing import Any

import click

from floor.counts import counted
from sitectl.commands.site_directory import site_directory
from sitectl.live import key_directory
from sitectl.output.columns import columns
from sitectl.shell.command import Command, CommandContext, CommandGroup, pass_context, site_names
from sitectl.shell.errors import Exit, SitectlError

MORE = f"""\
\b
  python -m sitectl key create prod search ci --expires 90d --models qwen3-32b
  python -m sitectl key list prod --tenant search
  python -m sitectl key rotate prod q7xk2mzp4d --overlap 24h
  python -m sitectl key revoke prod q7xk2mzp4d
  python -m sitectl key new

Keys that people order while the platform runs are in the site's directory of keys, as digests: a key is printed once,
when it is made. Tenants and their models are those of the site's file; its own keys are there too, and not here.

It needs the stack's kubeconfig and kubectl, and a role that reads the Secret directory-secrets. {key_directory.PAGE}
has every step.
"""
_CREATE_MORE = """\
The key alone is on stdout, so that it can go into a file or a Secret; what it is for is on stderr. It is not shown
again. Gateways take it within seconds.

\b
  python -m sitectl key create prod search ci > key
"""
_NEW_MORE = """\
The key alone is on stdout; on stderr is what to write below `tenants.TENANT.keys.PURPOSE`. It needs no site and asks
nothing. A gatekeeper has to decide about callers.
"""
_ROTATE_MORE = """\
The new key has the tenant, the name, the models and the length of life of the old one. Both work until the overlap
ends, then the new one only. The new key alone is on stdout.
"""
_REVOKE_MORE = """\
Gateways refuse it within seconds. To replace a key that is in use, rotate it.
"""
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class _Duration(click.ParamType[int]):
    """Whole seconds, minutes, hours or days, as seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = re.fullmatch(r"(\d{1,9})([smhd])", str(value))
        if match is None:
            self.fail(f"got '{value}'; allowed: a whole number with s, m, h or d, such as 90d", param, ctx)
        return int(match[1]) * _UNITS[match[2]]


def _checked(_: click.Context, __: click.Parameter, key_id: str) -> str:
    """The id. Raises SitectlError, which quotes no key."""
    if re.fullmatch(r"[a-z2-7]{10}", key_id):
        return key_id
    is_whole = key_id.startswith("sk-")
    raise SitectlError(
        "this is a whole key, which is now in the history of your shell" if is_whole else "this is no id of a key",
        got="" if is_whole else key_id,
        allowed="10 lower-case letters and digits, as `key list` shows them",
        fix=f"write {key_id[3:13]}, and remove the line from the history"
        if is_whole
        else "sitectl key list SITE has them",
        status=Exit.USAGE,
    )


@click.group(cls=CommandGroup, epilog=MORE)
def command() -> None:
    pass


_SITE = click.argument("site", shell_complete=site_names, help="name of the site, which is its stack")
_ID = click.argument(
    "key_id", metavar="ID", callback=_checked, help="the key's id, which is between sk- and the second dash"
)


@command.command(cls=Command, epilog=_CREATE_MORE)
@_SITE
@click.argument("tenant", help="a tenant of the site's file")
@click.argument("name", help="what the key is for, as ci or batch-jobs; several keys may have one name")
@click.option("--expires", type=_Duration(), metavar="TIME", help="how long it works, as 90d (default: until revoked)")
@click.option("--models", metavar="MODEL[,MODEL]", help="the models that it opens (default: all of the tenant)")
@pass_context
def create(
    context: CommandContext, *, site: str, tenant: str, name: str, expires: int | None, models: str | None
) -> int:
    """Make a key, and print it once."""
    order: dict[str, Any] = {"tenant": tenant, "name": name}
    order |= {"expires_in_s": expires} if expires is not None else {}
    order |= {"models": [model.strip() for model in models.split(",")]} if models is not None else {}
    with site_directory(context, site) as directory:
        made = directory.create(order)
        _hand_out(context, site, made)
    return int(Exit.OK)


@command.command(cls=Command, epilog=_NEW_MORE)
@pass_context
def new(context: CommandContext) -> int:
    """Make a key for the site's file, which gets its digest only; nothing else knows of it."""
    text = f"sk-{secrets.token_urlsafe(32)}"
    digest = hashlib.sha256(text.encode()).hexdigest()
    print(json.dumps({"key": text, "sha256": digest}) if context.json else text, file=context.out, flush=True)
    context.progress.note(f"for the site's file: {{sha256: {digest}}}")
    return int(Exit.OK)


@command.command("list", cls=Command)
@_SITE
@click.option("--tenant", metavar="TENANT", help="only the keys of this one")
@pass_context
def list_(context: CommandContext, *, site: str, tenant: str | None) -> int:
    """List keys, those that have ended too; never what opens a model."""
    with site_directory(context, site) as directory:
        keys = directory.keys(tenant)
    rows = [("ID", "KEY", "STATE", "MODELS", "CREATED", "EXPIRES")]
    rows += [
        (
            key["id"],
            f"{key['tenant']}.{key['name']}",
            key["state"],
            "all" if key["models"] is None else ",".join(key["models"]),
            _moment(key["created"]),
            _moment(key["expires"]),
        )
        for key in keys
    ]
    lines = columns(rows)
    works = sum(key["state"] == "works" for key in keys)
    lines.append(f"{site}: {counted(len(keys), 'key')}, {works} in use")
    context.say("\n".join(lines), {"site": site, "keys": keys})
    return int(Exit.OK)


@command.command(cls=Command, epilog=_ROTATE_MORE)
@_SITE
@_ID
@click.option(
    "--overlap", type=_Duration(), default="24h", show_default=True, metavar="TIME", help="how long both keys work"
)
@pass_context
def rotate(context: CommandContext, *, site: str, key_id: str, overlap: int) -> int:
    """Make a successor of a key, and print it once; the old one ends after the overlap."""
    with site_directory(context, site) as directory:
        made = directory.rotate(key_id, overlap)
        _hand_out(context, site, made)
        context.progress.note(f"{key_id} works until the overlap ends, or until its own end if that comes first")
    return int(Exit.OK)


@command.command(cls=Command, epilog=_REVOKE_MORE)
@_SITE
@_ID
@pass_context
def revoke(context: CommandContext, *, site: str, key_id: str) -> int:
    """End a key at once."""
    with site_directory(context, site) as directory:
        key = directory.revoke(key_id)
    line = f"{site}: {key_id} of {key['tenant']}.{key['name']} is revoked since {_moment(key['revoked'])}"
    context.say(line, {"site": site, "key": key})
    return int(Exit.OK)


def _hand_out(context: CommandContext, site: str, made: dict[str, Any]) -> None:
    """Print a key, which nothing shows again. Raises SitectlError where it cannot be printed."""
    # The context's own printing hides keys.
    text = json.dumps({"site": site, **made}, indent=2, sort_keys=True) if context.json else made["key"]
    try:
        print(text, file=context.out, flush=True)
    except OSError as error:
        raise SitectlError(
            f"the key {made['id']} was made and cannot be printed: {error.strerror}",
            fix=f"end it (sitectl key revoke {site} {made['id']}), then make another one",
        ) from None
    models = "all its models" if made["models"] is None else ", ".join(made["models"])
    context.progress.note(
        f"key {made['id']} of {made['tenant']}.{made['name']}: opens {models}; expires: {_moment(made['expires'])}\n"
        "keep it now: it is not shown again"
    )


def _moment(seconds: int | None) -> str:
    return "never" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%MZ")
