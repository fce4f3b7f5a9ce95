"""`python -m services.directory`, which the platform's pods start: answers requests, and first migrates the tables."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from services.database import Database
from services.directory import variables
from services.directory.server import application
from services.directory.settings import Settings
from services.directory.signal_watch import SuspendOptions
from services.directory.tables import KEPT
from services.failure import ServiceError
from services.serving import serve


def main(arguments: Sequence[str]) -> int:
    """Answer requests until a signal ends it; exit status. A failure is written as text, never as a traceback."""
    parser = argparse.ArgumentParser(prog="directory", description=__doc__)
    for option in variables.FILES:
        parser.add_argument(option, type=Path, metavar="FILE", required=True)
    parser.add_argument("--port", type=int, default=variables.DEFAULT_PORT, help="default: %(default)s")
    parser.add_argument("--ledger", metavar="URL", help="the ledger, whose signals of keys may suspend these")
    parser.add_argument("--ledger-token-file", type=Path, metavar="FILE", help="the ledger's token for operators")
    parser.add_argument(
        "--suspend-on",
        type=lambda text: text.split(","),
        metavar="SIGNAL[,SIGNAL]",
        help="signals that suspend a key, by their rank; default: none",
    )
    parser.add_argument(
        "--most-suspended-per-hour",
        type=int,
        metavar="KEYS",
        help="that signals suspend",
    )
    parser.add_argument(
        "--never-suspend",
        type=lambda text: text.split(","),
        default=[],
        metavar="TENANT.NAME[,TENANT.NAME]",
        help="keys that no signal suspends; default: none",
    )
    given = parser.parse_args(arguments)
    suspending = None
    if given.suspend_on:
        if not (given.ledger and given.ledger_token_file and given.most_suspended_per_hour):
            parser.error("--suspend-on needs --ledger, --ledger-token-file and --most-suspended-per-hour")
        suspending = SuspendOptions(
            ledger_url=given.ledger.rstrip("/"),
            ledger_token=given.ledger_token_file,
            signals=given.suspend_on,
            most_per_hour=given.most_suspended_per_hour,
            never=given.never_suspend,
        )
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stdout)
    settings = Settings(
        database_url=given.database_url_file,
        tenants=given.tenants_file,
        pepper=given.pepper_file,
        operator_token=given.operator_token_file,
        reader_token=given.reader_token_file,
    )
    try:
        settings.check()
    except ServiceError as refusal:
        print(f"error: {refusal.message}", file=sys.stderr, flush=True)
        return 1
    database = Database(settings.url, KEPT)
    serve(application(settings, database, suspending), database, given.port)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
