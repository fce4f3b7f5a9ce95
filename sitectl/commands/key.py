"""`key`: make, list, rotate, revoke and suspend keys of tenants while the platform runs, see which may be abused,
forget a tenant that left, or make one for the site's file.
"""

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
from sitectl.live import key_directory, ledger, site_cluster
from sitectl.offline import checkout
from sitectl.output.columns import columns
from sitectl.shell.command import Command, CommandContext, CommandGroup, pass_context, site_names
from sitectl.shell.errors import Exit, SitectlError

MORE = f"""\
\b
  python -m sitectl key create prod search ci --expires 90d --models qwen3-32b
  python -m sitectl key list prod --tenant search
  python -m sitectl key rotate prod q7xk2mzp4d --overlap 24h
  python -m sitectl key revoke prod q7xk2mzp4d
  python -m sitectl key signals prod
  python -m sitectl key suspend prod search.ci 'seen in a public repository'
  python -m sitectl key lift prod search.ci
  python -m sitectl key forget prod search
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
_SUSPEND_MORE = """\
Gateways refuse it within seconds with 403, until `key lift`. It is suspended by its name: all keys of that name are,
also one of the site's file, and a successor of a rotated one. What a signal has suspended is yours then, and its alert
ends. The reason is for people who look after the site; clients do not see it.
"""
_FORGET_MORE = """\
Take the tenant out of the site's file and run `pulumi up` first. Its keys are refused for good, also if a tenant of its
name comes back; names of people that were in them are gone at once, and the rows within two hours. The audit and the
ledger keep what the law may ask for.
"""
_LIFT_MORE = """\
It works again within seconds, unless it was revoked or has expired. For a day no signal suspends it.
"""
_SIGNALS_MORE = f"""\
Of the last seven days, those of now first. They are seen where the site sets `usage.abuse`: {ledger.PAGE} has what they
are and what they do not see. It needs a role that reads the Secret ledger-secrets.
"""
_TO_DO = {
    "networks": "is it in more hands than it was made for? Rotate it, and suspend it meanwhile",
    "refusals": "what does its client not obey? Ask its owner, raise a limit that is too low, or suspend it",
    "burst": "is this a new use? Ask its owner, give the key limits of its own, or suspend it",
}
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
            _state(key),
            "all" if key["models"] is None else ",".join(key["models"]),
            _moment(key["created"]),
            _moment(key["expires"]),
        )
        for key in keys
    ]
    lines = columns(rows)
    works = sum(_state(key) in ("works", "replaced") for key in keys)
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


def _client(_: click.Context, __: click.Parameter, text: str) -> tuple[str, str]:
    """Tenant and name."""
    tenant, _dot, name = text.partition(".")
    if tenant and name and not text.startswith("sk-"):
        return tenant, name
    raise SitectlError(
        "this is no name of a key",
        got="" if text.startswith("sk-") else text,
        allowed="TENANT.NAME, as `key list` and the site's file have it",
        fix="write the tenant, a dot and what the key is for, as search.ci",
        status=Exit.USAGE,
    )


_CLIENT = click.argument("client", metavar="TENANT.NAME", callback=_client, help="the key's tenant and name")


@command.command(cls=Command, epilog=_SIGNALS_MORE)
@_SITE
@pass_context
def signals(context: CommandContext, *, site: str) -> int:
    """List keys that may be abused: by which signal, and what it is made of."""
    file = checkout.site_files(context.project, [site])[site]
    with context.progress.layer(f"ask the ledger of {site}"):
        cluster = site_cluster.of_site(context.project, site, file)
        with ledger.of_cluster(cluster) as asked:
            record = asked.key_signals()
    listed = record["signals"]
    rows = [("KEY", "SIGNAL", "NOW", "BEGAN", "LAST", "FIGURES")]
    rows += [
        (
            f"{row['tenant']}.{row['key']}",
            row["signal"],
            "yes" if row["on"] else "no",
            _moment(row["began"]),
            _moment(row["seen"]),
            _figures(row["figures"]),
        )
        for row in listed
    ]
    seen = {row["signal"] for row in listed}
    lines = columns(rows) if listed else []
    lines += [f"{signal}: {what}" for signal, what in _TO_DO.items() if signal in seen]
    lines.append(f"{site}: {counted(len(listed), 'signal')}, {sum(row['on'] for row in listed)} of them now")
    context.say("\n".join(lines), {"site": site, **record})
    return int(Exit.OK)


@command.command(cls=Command, epilog=_SUSPEND_MORE)
@_SITE
@_CLIENT
@click.argument("why", help="for the audit, in one line")
@pass_context
def suspend(context: CommandContext, *, site: str, client: tuple[str, str], why: str) -> int:
    """Have a key refused until that is lifted; it is not lost."""
    tenant, name = client
    with site_directory(context, site) as directory:
        made = directory.suspend({"tenant": tenant, "name": name, "why": why})
        if name not in {key["name"] for key in directory.keys(tenant)}:
            context.progress.note(
                f"the directory has no key {tenant}.{name}: it is one of the site's file, or the name is wrong"
            )
    line = f"{site}: {tenant}.{name} has been suspended since {_moment(made['since'])}: {made['why']}"
    context.say(line, {"site": site, "suspension": made})
    return int(Exit.OK)


@command.command(cls=Command, epilog=_LIFT_MORE)
@_SITE
@_CLIENT
@pass_context
def lift(context: CommandContext, *, site: str, client: tuple[str, str]) -> int:
    """Let a suspended key work again."""
    with site_directory(context, site) as directory:
        lifted = directory.lift(*client)
    line = f"{site}: {'.'.join(client)} is not suspended any more"
    context.say(line, {"site": site, "suspension": lifted})
    return int(Exit.OK)


@command.command(cls=Command)
@_SITE
@pass_context
def suspended(context: CommandContext, *, site: str) -> int:
    """List keys that are suspended: since when, by whom, and why."""
    with site_directory(context, site) as directory:
        held = directory.suspensions()
    rows = [("KEY", "SINCE", "BY", "WHY")]
    rows += [(f"{row['tenant']}.{row['name']}", _moment(row["since"]), row["actor"], row["why"]) for row in held]
    lines = columns(rows) if held else []
    context.say("\n".join([*lines, f"{site}: {counted(len(held), 'key')} suspended"]), {"site": site, "keys": held})
    return int(Exit.OK)


@command.command(cls=Command, epilog=_FORGET_MORE)
@_SITE
@click.argument("tenant", help="a tenant that is not in the site's file any more")
@pass_context
def forget(context: CommandContext, *, site: str, tenant: str) -> int:
    """Delete the keys, prompts and orders of a tenant that left."""
    with site_directory(context, site) as directory:
        counts = directory.forget(tenant)["forgotten"]
    parts = ", ".join(counted(count, name.removesuffix("s")) for name, count in counts.items() if count)
    context.say(f"{site}: forgotten of {tenant}: {parts or 'nothing was left'}", {"site": site, "forgotten": counts})
    return int(Exit.OK)


def _state(key: dict[str, Any]) -> str:
    """As people see it: a directory has a suspension beside the state of a key, as it ends none."""
    if key["state"] != "works":
        return str(key["state"])
    return "suspended" if key.get("suspended") else "replaced" if key.get("successor") else "works"


def _figures(figures: dict[str, Any]) -> str:
    """In one line, what is by reason behind the others."""
    parts = [f"{name} {value}" for name, value in figures.items() if name != "why"]
    return ", ".join(parts + [f"{why}: {count}" for why, count in figures.get("why", {}).items()])


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
