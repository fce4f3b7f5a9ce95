"""`python -m services.ledger.again`: adds the lines that were no row, and are one by now."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from services.database import Database
from services.ledger import variables
from services.ledger.prices import book_of
from services.ledger.store import Writer
from services.ledger.tables import KEPT
from services.ledger.unreadable import UnreadableLines
from services.mounted import secret


def run() -> int:
    """As the command line asks; exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m services.ledger.again",
        description="Reads the lines again that were no row, of the table unreadable_lines. Those that are one by now"
        " are added, each once, and deleted there.",
    )
    parser.add_argument("--database-url-file", type=Path, metavar="FILE", required=True)
    parser.add_argument("--prices-file", type=Path, metavar="FILE", required=True)
    parser.add_argument(
        "--keep-months",
        type=int,
        default=variables.KEEP_MONTHS,
        help="as of the ledger: older rows are refused; default: %(default)s",
    )
    given = parser.parse_args()
    asyncio.run(_again(given.database_url_file, given.prices_file, given.keep_months))
    return 0


async def _again(url: Path, prices: Path, keep_months: int) -> None:
    database = Database(lambda: secret(url).decode(), KEPT)
    try:
        writer, book = Writer(database, keep_months), book_of(prices)
        sums, left = await UnreadableLines(database).read_again(writer, book)
    finally:
        await database.close()
    print(f"{sums.added} rows added, {sums.known} known before; {left} lines are no row")


if __name__ == "__main__":
    sys.exit(run())
