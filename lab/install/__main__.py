"""`python -m lab.install`: the installer by itself, for a machine that needs only the tools or the CRD bundle."""

from __future__ import annotations

import sys

from floor import command_line
from lab.errors import LabError
from lab.install.command import command
from lab.paths import Lab


def main() -> int:
    try:
        return command_line.run(command, name="python -m lab.install", obj=Lab.from_environment())
    except LabError as error:
        print(f"error: {error.what}\nfix: {error.fix}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; run it again and it goes on where it stopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
