"""`python -m services.ledger.forget`: replaces the name of a tenant's key in all that is kept."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from services.database import Database
from services.ledger.retention import FORGOTTEN, forget_key
from services.ledger.tables import KEPT
from services.mounted import secret


def run() -> int:
    """As the command line asks; exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m services.ledger.forget",
        description=f"Replaces the name of a key by `{FORGOTTEN}` in rows and sums, and deletes its signals. Bills stay"
        " what they are. Revoke the key before: what it sends later has its name again.",
    )
    parser.add_argument("key", metavar="TENANT.KEY", type=_key)
    parser.add_argument("--database-url-file", type=Path, metavar="FILE", required=True)
    given = parser.parse_args()
    rows = asyncio.run(_forget(given.database_url_file, *given.key))
    print(f"{rows} rows had this key; its name is in no table any more")
    return 0


def _key(text: str) -> tuple[str, str]:
    tenant, _, key = text.partition(".")
    if not tenant or not key:
        raise argparse.ArgumentTypeError(f"got {text}; allowed: TENANT.KEY, such as search.ci")
    return tenant, key


async def _forget(url: Path, tenant: str, key: str) -> int:
    database = Database(lambda: secret(url).decode(), KEPT)
    try:
        return await forget_key(database, tenant, key)
    finally:
        await database.close()


if __name__ == "__main__":
    sys.exit(run())
