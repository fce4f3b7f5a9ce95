"""`python -m services.ledger serve`: answers requests, and first migrates the tables."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from services.database import Database
from services.failure import ServiceError
from services.ledger import variables
from services.ledger.server import application
from services.ledger.settings import LedgerSettings
from services.ledger.signals import Thresholds
from services.ledger.tables import KEPT
from services.serving import serve

_FILES = {
    "--database-url-file": "address of the database, as postgresql://USER:PASSWORD@HOST:PORT/DATABASE",
    "--prices-file": "the price book; it is read again when it changes",
    "--writer-token-file": "token of the shippers, who only add rows",
    "--operator-token-file": "token of those who read usage, costs and bills",
}


def main(arguments: Sequence[str]) -> int:
    """Answer requests until a signal ends it; exit status. A failure is written as text, never as a traceback."""
    parser = argparse.ArgumentParser(
        prog="python -m services.ledger serve",
        description="Takes rows in, keeps them in PostgreSQL, and answers about usage, costs and bills.",
        epilog="Several may share a database. Each migrates it when it starts, and waits while it is away.",
    )
    for option in variables.FILES:
        parser.add_argument(option, type=Path, metavar="FILE", required=True, help=_FILES[option])
    parser.add_argument("--port", type=int, default=variables.DEFAULT_PORT, help="default: %(default)s")
    parser.add_argument(
        "--keep-months",
        type=_months,
        default=variables.KEEP_MONTHS,
        help="how many whole months the rows are kept beside the running one, and the keys of sums by hour, which are"
        " kept for ever; default: %(default)s",
    )
    parser.add_argument(
        "--keep-traces-days",
        type=_days,
        default=variables.KEEP_TRACES_DAYS,
        help="for how many days rows have their prompt and trace ids; default: %(default)s",
    )
    parser.add_argument(
        "--watch-keys",
        type=_thresholds,
        metavar="JSON",
        help=f"look every minute which keys may be abused, by these thresholds: {', '.join(Thresholds.model_fields)};"
        " default: keys are not watched",
    )
    parser.add_argument("--issuer", default="inference-platform", help="who bills, for FOCUS; default: %(default)s")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stdout)
    settings = LedgerSettings(
        database_url=given.database_url_file,
        prices=given.prices_file,
        writer_token=given.writer_token_file,
        operator_token=given.operator_token_file,
    )
    try:
        settings.check()
    except ServiceError as refusal:
        print(f"error: {refusal.message}", file=sys.stderr, flush=True)
        return 1
    database = Database(settings.url, KEPT)
    app = application(
        settings,
        database,
        keep_months=given.keep_months,
        keep_traces_days=given.keep_traces_days,
        issuer=given.issuer,
        watch_keys=given.watch_keys,
    )
    serve(app, database, given.port)
    return 0


def _months(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 1200:
        raise argparse.ArgumentTypeError(f"got {number}; allowed: 1 to 1200")
    return number


def _days(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 7300:
        raise argparse.ArgumentTypeError(f"got {number}; allowed: 1 to 7300")
    return number


def _thresholds(text: str) -> Thresholds:
    try:
        return Thresholds.model_validate_json(text)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}" for detail in error.errors())
        raise argparse.ArgumentTypeError(f"got {text}; {wrong}") from None
