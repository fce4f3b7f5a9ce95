"""`python -m services.directory serve|migrate`: see its --help. Started by the platform's pods."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Mapping, Sequence
from os import environ
from pathlib import Path
from types import FrameType

import uvicorn

from services.directory import variables
from services.directory.database import Database, reason_of
from services.directory.failure import DirectoryError
from services.directory.server import application
from services.directory.settings import Settings


class _Server(uvicorn.Server):
    """Requests that wait for a change would hold up its end."""

    def __init__(self, config: uvicorn.Config, database: Database) -> None:
        super().__init__(config)
        self._database = database

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._database.end_waits()
        super().handle_exit(sig, frame)


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Exit status of one command; a failure is written as text, never as a traceback."""
    parser = argparse.ArgumentParser(prog="directory", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (
        ("serve", "answer requests; first brings the tables to this program's version"),
        ("migrate", "bring the tables to this program's version"),
    ):
        command = commands.add_parser(name, help=text)
        for option, variable in variables.OPTIONS.items():
            named = environment.get(variable)
            command.add_argument(
                option,
                type=Path,
                metavar="FILE",
                default=named,
                required=named is None and (name == "serve" or option == "--database-url-file"),
                help=f"or {variable}",
            )
        port = environment.get(variables.PORT, str(variables.DEFAULT_PORT))
        command.add_argument("--port", type=int, default=port, help=f"or {variables.PORT} (default: %(default)s)")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stdout)
    settings = Settings(
        database_url=given.database_url_file,
        tenants=given.tenants_file,
        pepper=given.pepper_file,
        operator_token=given.operator_token_file,
        reader_token=given.reader_token_file,
    )
    database = Database(settings.url)
    try:
        if given.command == "migrate":
            asyncio.run(database.migrate())
            return 0
        settings.check()
    except DirectoryError as refusal:
        return _failed(refusal.message)
    except Exception as error:  # noqa: BLE001 - a traceback may quote the database's address with its password
        return _failed(f"the tables were not brought to this version: {reason_of(error)}; fix: see the database's log")
    config = uvicorn.Config(
        application(settings, database),
        host="0.0.0.0",  # noqa: S104 - a pod's own
        port=given.port,
        access_log=False,
        log_config=None,
        server_header=False,
    )
    _Server(config, database).run()
    return 0


def _failed(message: str) -> int:
    print(f"error: {message}", file=sys.stderr, flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], environ))
