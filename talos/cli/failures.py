"""How a command ends: exit codes, and the failures of the command line itself."""

from __future__ import annotations

from enum import IntEnum

from floor.problems import ProblemError
from talos.api import errors
from talos.api.talosconfig import TalosconfigError
from talos.documents.problems import ConfigError
from talos.factory.extensions import ExtensionError
from talos.factory.schematic import FactoryError


class Exit(IntEnum):
    """Exit codes; Pulumi shows the last lines of stderr with them."""

    DONE = 0
    BUG = 1
    USAGE = 2
    REFUSED = 3
    AWAY = 4
    UNTRUSTED = 5
    FAILED = 6
    INTERRUPTED = 130


EXIT_CODES = """\
exit codes:
  0    it is as asked: done now, or was so before
  1    a bug of this program
  2    wrong options, or a file that cannot be used
  3    refused: what was asked is not valid, or is not allowed like this
  4    not reachable, or not there in time; run it again
  5    not trusted: another certificate than expected, or the machine denies us
  6    failed on the machine: it reports so, or it came back with something else
  130  interrupted; run it again, it goes on from where the machine is"""


class CommandError(ProblemError):
    """A failure that the command line reports."""

    exit = Exit.FAILED


class InputError(CommandError):
    """Options or files that cannot be used."""

    exit = Exit.USAGE


class NotAllowedError(CommandError):
    """What was asked for is possible, but not with these options."""

    exit = Exit.REFUSED


class NotInTimeError(CommandError):
    """The machine did not get there within the time allowed."""

    exit = Exit.AWAY


class OtherOwnerError(CommandError):
    """The machine belongs to another cluster, or is another machine."""

    exit = Exit.UNTRUSTED


_EXITS: tuple[tuple[type[Exception], Exit], ...] = (
    (TalosconfigError, Exit.USAGE),
    (ExtensionError, Exit.REFUSED),
    (FactoryError, Exit.AWAY),
    (ConfigError, Exit.USAGE),
    (errors.UntrustedError, Exit.UNTRUSTED),
    (errors.DeniedError, Exit.UNTRUSTED),
    (errors.InvalidError, Exit.REFUSED),
    (errors.UnreachableError, Exit.AWAY),
    (errors.TooSlowError, Exit.AWAY),
    (errors.NotReadyError, Exit.AWAY),
    (errors.MachineApiError, Exit.FAILED),
)


def exit_for(error: Exception) -> Exit:
    """The exit code for a failure; BUG for one without a known fix."""
    if isinstance(error, CommandError):
        return error.exit
    return next((code for kind, code in _EXITS if isinstance(error, kind)), Exit.BUG)
