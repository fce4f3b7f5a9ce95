"""The command line. A subcommand is a module of `sitectl.commands`, imported when it is used."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Mapping
from typing import Any, TextIO

import click
from click.shell_completion import shell_complete

from floor import command_line
from floor.problems import SiteError, meant
from floor.secret_texts import without_secrets
from sitectl.shell import home, invocation, terminal
from sitectl.shell.command import COMPLETE, CommandContext, CommandGroup, writing
from sitectl.shell.errors import MEANINGS, Exit, SitectlError, bug, no_resources, unusable_file

COMMANDS: Mapping[str, str] = {
    "init": "write a commented, valid file for a new site; asks nothing",
    "catalogue": "list the models that a site can order, show one, or add one from its config.json",
    "validate": "check site files: every mistake at once, with line, allowed values and fix",
    "proof": "prove each model: does it fit, how fast, how many at once, what it costs; and all of them on the nodes",
    "split": "print a model's prompts and answers on replicas of their own, as objects that no site deploys",
    "fits": "judge whether the vLLM of anyone's manifests starts, and what it holds; without a site",
    "advise": "show which kind of GPU carries a model's load at the least cost",
    "whatif": "simulate a spike, a lost node or other prompts: targets, refusals, cost, time to recover",
    "explain": "show where a value comes from: a key of a site, or a field of an object",
    "render": "write what a site declares into a folder, one file per object and per machine, without secrets",
    "rules": "check what sites declare against the platform's rules",
    "diff": "show what differs between two git revisions or two rendered folders, without a cluster",
    "bundle": "fetch what sites install, and compare it with the pins; lock, list, pack and verify all that they take",
    "weights": "list what models consist of in locks, and compare folders with these",
    "plan": "show what `pulumi up` would do: the irreversible first, GPUs, cost, restarts, tenants",
    "comment": "post what a change does to every site as one comment, edited in place",
    "drift": "show where a cluster differs from its site's file, and who set what; or keep one issue per site",
    "upgrade-path": "show the steps from the versions that run to those that are pinned, and how far each goes back",
    "gpu-nodes": "show why a node does not offer its GPUs: which of the known states it is in, with cause and fix",
    "access": "write the files with which one more person looks after a site, as viewer, operator or admin",
    "key": "make, list, rotate, revoke and suspend keys of tenants while the platform runs; see which may be abused",
    "canary": "show how canaries do beside their models' stable revisions, and what is next",
    "calibrate": "show what a model's steps take on the site's own GPUs, by its metrics, for the proof to use",
    "evaluate": "ask both revisions of a model a set of questions, and compare how many answers are good",
    "prompts": "put, list, show, compare, use and remove prompts of tenants that clients name by id",
    "audit": "show who changed which key, from where, and check that no row was changed or is missing",
    "order": "list, place, propose and decline orders of models; a proposal changes the site's file, with its proof",
    "usage": "show what tenants used of a site: requests, tokens and money, by tenant, key, model, tier or day",
    "costs": "show what a site's GPUs cost in a month, what tenants owe for it, and how much stood idle",
    "bill": "print what a tenant owes for a month: text, CSV, JSON or FOCUS",
    "recover": "after a loss of the state: read the keys that it held out of the cluster, into a file for `up`",
    "versions": "list every version that the platform pins",
    "doctor": "check whether this machine can work on sites, and how to get what is missing",
    "docs": "list the documentation's pages, or print one",
    "completion": "print the completion of a shell: bash, zsh or fish",
}

_FIRST_STEPS = """\
\b
a first site:
  python -m sitectl init berlin --model glm-5-1=glm-5.1-fp8 --tenant search
  python -m sitectl validate berlin    every mistake at once, with line and fix
  python -m sitectl proof berlin       what each model holds, and what it costs
  python -m sitectl rules berlin       what no site may do
  python -m sitectl plan berlin        what `pulumi up` would do

\b
exit status:
"""


def _print_version(context: click.Context, option: click.Parameter, value: Any) -> None:  # noqa: ARG001 - click's form
    if value:
        click.echo(f"sitectl {home.version()} ({home.FOLDER})")
        context.exit()


COMMAND_LINE = CommandGroup(
    "sitectl",
    package="sitectl.commands",
    meanings=COMMANDS,
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_print_version,
            help="print the version and where it is, and stop",
        )
    ],
    help="Reads, checks, renders, compares and explains a site, mostly without engine or cluster.",
    epilog=_FIRST_STEPS + "\n".join(f"{status.value:>3} {meaning}" for status, meaning in MEANINGS.items()),
)


def main(argv: list[str] | None = None, out: TextIO | None = None) -> int:
    """Run one subcommand. Whatever goes wrong is printed in one form; a traceback is shown with --debug alone."""
    terminal.prepare_streams()
    context = CommandContext(out=out or sys.stdout)
    try:
        if instruction := os.environ.get(COMPLETE):
            return shell_complete(COMMAND_LINE, {}, "sitectl", COMPLETE, instruction)
        words = sys.argv[1:] if argv is None else argv
        status = command_line.invoke(COMMAND_LINE, words, name=invocation.name(), obj=context)
        context.progress.end()
        with writing():
            context.out.flush()
    except BrokenPipeError:
        # The reader has seen enough (`| head`).
        _write_nowhere(context.out)
        return int(Exit.OK)
    except KeyboardInterrupt:
        return int(Exit.INTERRUPTED)
    except Exception as error:  # noqa: BLE001 - the edge: one line for the user, --debug for the trace
        return _failed(error, context)
    return status


def _failed(error: Exception, context: CommandContext) -> int:
    """Print the error; its exit status."""
    failure = _in_our_form(error)
    if context.debug:
        sys.stderr.write(without_secrets("".join(traceback.format_exception(error))))
    try:
        if context.json:
            context.say("", {"error": failure.record()})
        context.out.flush()
    except (OSError, SitectlError):
        _write_nowhere(context.out)
    _print_error(failure)
    return int(failure.status)


def _print_error(error: SitectlError) -> None:
    """On stderr; where that is full, the status alone shows it."""
    with contextlib.suppress(OSError):
        print(terminal.shown(invocation.as_called(without_secrets(error.text())), sys.stderr), file=sys.stderr)


def _in_our_form(error: Exception) -> SitectlError:
    match error:
        case SitectlError():
            return error
        case click.UsageError():
            wrong = command_line.problem(error)
            what = wrong.what + meant(wrong.near)
            return SitectlError(what, allowed=wrong.allowed, fix=wrong.fix, status=Exit.USAGE)
        case SiteError():
            return SitectlError(str(error), status=Exit.REFUSED)
        case OSError():
            return unusable_file(error)
        case MemoryError():
            return no_resources("out of memory")
    return bug(error)


def _write_nowhere(out: TextIO) -> None:
    """What is still buffered goes nowhere, without a complaint at exit."""
    if out is sys.stdout:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
