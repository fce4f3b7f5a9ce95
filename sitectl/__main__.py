"""`python -m sitectl`. Its syntax is that of Python 3.6: an old one must get as far as the launcher's words."""

import importlib.util
import os
import sys
from pathlib import Path

LAUNCHER = Path(__file__).resolve().parent.parent / "bin" / "sitectl"

if __name__ == "__main__":
    if importlib.util.find_spec("pydantic") is None:
        # Without the environment: the launcher finds or makes it.
        os.execv(sys.executable, [sys.executable, str(LAUNCHER)] + sys.argv[1:])  # noqa: RUF005, S606 - for old Pythons
    try:
        from sitectl.cli import main

        status = main()
    except KeyboardInterrupt:
        status = 130
    sys.exit(status)
