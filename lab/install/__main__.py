"""`python -m lab.install`: the installer by itself, for a machine that needs only the tools or the CRD bundle."""

from __future__ import annotations

import argparse
import sys

from lab.errors import LabError
from lab.install.command import add_arguments, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.install")
    add_arguments(parser)
    try:
        return run(parser.parse_args())
    except LabError as error:
        print(f"error: {error.what}\nfix: {error.fix}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; run it again and it goes on where it stopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
