"""`python -m sitectl`, and what `pip install` makes the command `sitectl` of.

Its syntax is that of Python 3.6: an old one must reach the launcher's error message.
"""

import gc
import importlib.util
import os
import sys
from pathlib import Path

from sitectl.shell.called import called_as

VARIABLE = "SITECTL_CALLED_AS"
LAUNCHER = Path(__file__).resolve().parent.parent / "bin" / "sitectl"
LAUNCHED = VARIABLE in os.environ


def in_the_environment():
    # type: () -> None
    """Without the packages, the launcher finds or makes the environment that has them."""
    if importlib.util.find_spec("pydantic") is None:
        if not LAUNCHER.exists():
            sys.exit("error: %s lacks packages\n  fix: pip install . again, without --no-deps" % sys.prefix)  # noqa: UP031
        if LAUNCHED:
            sys.exit("error: %s lacks packages\n  fix: remove it, and it is made again" % sys.prefix)  # noqa: UP031
        os.execv(sys.executable, [sys.executable, str(LAUNCHER)] + sys.argv[1:])  # noqa: RUF005, S606


def run():
    # type: () -> int
    """The status of the command that the arguments are."""
    # A command is short: looking for cycles at the usual rate takes a tenth of it.
    gc.set_threshold(100000)
    try:
        in_the_environment()
        from sitectl.shell.cli import main as command_line  # noqa: PLC0415 - it needs the packages

        return command_line()
    except KeyboardInterrupt:
        return 130


def main():
    # type: () -> int
    """The installed command."""
    os.environ.setdefault(VARIABLE, called_as(sys.argv[0]))
    return run()


if __name__ == "__main__":
    sys.exit(run())
