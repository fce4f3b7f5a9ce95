"""Takes a service's tables back to those that an earlier program has."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from services.database import Database, Kept
from services.mounted import secret


def run(kept: Kept) -> int:
    """Migrate back, as the command line asks; exit status."""
    parser = argparse.ArgumentParser(prog=f"python -m services.{kept.service}.back", description=__doc__)
    parser.add_argument("revision", help="number of the last migration that the earlier program has, such as 0001")
    parser.add_argument("--database-url-file", type=Path, metavar="FILE", required=True)
    given = parser.parse_args(sys.argv[1:])
    asyncio.run(_back(kept, given.database_url_file, given.revision))
    return 0


async def _back(kept: Kept, url: Path, revision: str) -> None:
    database = Database(lambda: secret(url).decode(), kept)
    try:
        await database.migrate(back_to=revision)
    finally:
        await database.close()
