"""`python -m sitectl`. Its syntax is that of Python 3.6: an old one must reach the launcher's error message."""

import gc
import importlib.util
import os
import sys
from pathlib import Path

LAUNCHER = Path(__file__).resolve().parent.parent / "bin" / "sitectl"
LAUNCHED = "SITECTL_CALLED_AS" in os.environ


def in_the_environment():
    # type: () -> None
    """Without the packages, the launcher finds or makes the environment that has them."""
    if importlib.util.find_spec("pydantic") is None:
        if LAUNCHED:
            sys.exit("error: %s lacks packages\n  fix: remove it, and it is made again" % sys.prefix)  # noqa: UP031
        os.execv(sys.executable, [sys.executable, str(LAUNCHER)] + sys.argv[1:])  # noqa: RUF005, S606


if __name__ == "__main__":
    # A command is short: looking for cycles at the usual rate takes a tenth of it.
    gc.set_threshold(100_000)
    try:
        in_the_environment()
        from sitectl.cli import main

        status = main()
    except KeyboardInterrupt:
        status = 130
    sys.exit(status)
