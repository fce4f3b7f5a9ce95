"""`python -m services.ledger`, which the platform's pods start: keeps what every request of a tenant used.

  serve   takes rows in, keeps them in PostgreSQL, answers about usage, costs and bills
  ship    beside an Envoy: sends the lines of its access log to the ledger, each of which counts once

`serve --help` and `ship --help` have their options.
"""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Sequence

# A shipper is beside every Envoy, and needs none of what the ledger imports.
_COMMANDS = {"serve": "services.ledger.serve:main", "ship": "services.ledger.ship:main"}


def main(arguments: Sequence[str]) -> int:
    """Run a command; its exit status."""
    name, *rest = arguments or ("",)
    if name in _COMMANDS:
        status: int = pkgutil.resolve_name(_COMMANDS[name])(rest)
        return status
    asks = name in {"-h", "--help", "help"}
    print((__doc__ or "").strip(), file=sys.stdout if asks else sys.stderr)
    if not asks:
        what = f"no command {name!r}" if name else "no command"
        print(f"error: {what}; allowed: {', '.join(_COMMANDS)}; fix: name one of them", file=sys.stderr)
    return 0 if asks else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
