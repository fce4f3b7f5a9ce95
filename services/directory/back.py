"""`python -m services.directory.back`: takes the tables back to those that an earlier program has."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from services.database import Database
from services.directory.tables import KEPT
from services.mounted import secret


def main(arguments: Sequence[str]) -> int:
    """Migrate back; exit status."""
    parser = argparse.ArgumentParser(prog="directory.back", description=__doc__)
    parser.add_argument("revision", help="number of the last migration that the earlier program has, such as 0001")
    parser.add_argument("--database-url-file", type=Path, metavar="FILE", required=True)
    given = parser.parse_args(arguments)
    asyncio.run(_back(given.database_url_file, given.revision))
    return 0


async def _back(url: Path, revision: str) -> None:
    database = Database(lambda: secret(url).decode(), KEPT)
    try:
        await database.migrate(back_to=revision)
    finally:
        await database.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
