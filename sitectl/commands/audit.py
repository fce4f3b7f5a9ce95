"""`audit`: who changed what of a site's keys, and whether that record is whole."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import click

from floor.counts import counted
from services.directory.audit import Head, chained
from sitectl.commands.site_directory import site_directory
from sitectl.live import key_directory
from sitectl.output.columns import columns
from sitectl.shell.command import Command, CommandContext, pass_context, site_names
from sitectl.shell.errors import Exit, SitectlError

MORE = f"""\
\b
  python -m sitectl audit prod
  python -m sitectl audit prod --since 2026-11-01 --json

Each act is a row of the directory's database, with a hash over the row before it. This command reads all rows and
computes the hashes again: a row that was changed, added or removed does not fit, and is named. The last line has the
head, COUNT:HASH. Keep it where the database's password does not reach: with --check, the command also finds a chain
whose last rows were removed, or that was written again. It exits with 1 where something does not fit.

It needs the stack's kubeconfig and kubectl, and a role that reads the Secret directory-secrets. {key_directory.PAGE}
has what an act is.
"""


def _head(_: click.Context, __: click.Parameter, text: str | None) -> Head | None:
    head = None if text is None else Head.named(text)
    if text is not None and head is None:
        raise click.BadParameter(f"got '{text}'; allowed: COUNT:HASH, as the last line of an earlier audit has it")
    return head


@click.command(cls=Command, epilog=MORE)
@click.argument("site", shell_complete=site_names, help="name of the site, which is its stack")
@click.option(
    "--since",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="YYYY-MM-DD",
    help="show acts from this day of UTC on; all are checked",
)
@click.option("--check", "kept", callback=_head, metavar="HEAD", help="a head that was kept, as COUNT:HASH")
@pass_context
def command(context: CommandContext, *, site: str, since: datetime | None, kept: Head | None) -> int:
    with site_directory(context, site) as directory:
        acts = directory.acts()
    head, wrong = chained(acts, kept)
    begin = since.replace(tzinfo=UTC).timestamp() if since else 0
    shown = [act for act in acts if act["at"] >= begin]
    record = {"site": site, "acts": shown, "head": None if wrong else str(head), "wrong": wrong}
    context.say(_text(site, shown, head if not wrong else None), record)
    if wrong and not context.json:
        raise SitectlError(
            f"the audit of {site} is not whole: {wrong}",
            fix=f"compare the database with a backup from before; see who has its password ({key_directory.PAGE})",
            status=Exit.REFUSED,
        )
    return int(Exit.REFUSED if wrong else Exit.OK)


def _text(site: str, acts: list[dict[str, Any]], head: Head | None) -> str:
    rows = [("AT", "WHO", "FROM", "WHAT", "OF", "TENANT", "CHANGE")]
    rows += [
        (
            datetime.fromtimestamp(act["at"], UTC).strftime("%Y-%m-%d %H:%M:%SZ"),
            act["actor"],
            act["source"] or "-",
            act["action"],
            act["subject"],
            act["tenant"],
            _change(act["before"] or {}, act["after"] or {}),
        )
        for act in acts
    ]
    whole = f", each row fits, head {head}" if head else ""
    return "\n".join([*columns(rows), f"{site}: {counted(len(acts), 'act')}{whole}"])


def _change(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """What differs."""
    return ", ".join(
        f"{name}: {json.dumps(after.get(name))}"
        if before.get(name) is None
        else f"{name}: {json.dumps(before[name])} -> {json.dumps(after.get(name))}"
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    )
