"""`python -m services.portal`, which the platform's pods start: pages for people who choose models."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

import uvicorn

from services.portal import variables
from services.portal.failure import PortalError
from services.portal.server import application
from services.portal.settings import PortalSettings


def main(arguments: Sequence[str]) -> int:
    """Answer requests until a signal ends it; exit status. A failure is written as text, never as a traceback."""
    parser = argparse.ArgumentParser(prog="portal", description=__doc__)
    for option, text in variables.URLS.items():
        parser.add_argument(option, type=_url, metavar="URL", required=True, help=text)
    for option, text in variables.FILES.items():
        parser.add_argument(option, type=Path, metavar="FILE", required=True, help=text)
    parser.add_argument("--client-id", metavar="ID", required=True, help="the portal's client at the issuer")
    parser.add_argument(
        "--ledger", type=_url, metavar="URL", help="ledger of usage; without it there is no page of usage"
    )
    parser.add_argument("--ledger-token-file", type=Path, metavar="FILE", help="the ledger's token of an operator")
    parser.add_argument("--ca-file", type=Path, metavar="FILE", help="further authorities to trust, PEM")
    claim = "of a token, with a person's groups; a dot leads into it; default: %(default)s"
    parser.add_argument("--groups-claim", metavar="CLAIM", default=variables.DEFAULT_GROUPS_CLAIM, help=claim)
    parser.add_argument("--port", type=int, default=variables.DEFAULT_PORT, help="default: %(default)s")
    given = vars(parser.parse_args(arguments))
    port = given.pop("port")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stdout)
    # Its lines name addresses with what was asked.
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    settings = PortalSettings(**given)
    try:
        settings.check()
        app = application(settings)
    except PortalError as refusal:
        print(f"error: {refusal}", file=sys.stderr, flush=True)
        return 1
    uvicorn.run(
        app,
        host="0.0.0.0",  # noqa: S104 - a pod's own
        port=port,
        access_log=False,
        log_config=None,
        server_header=False,
        # An answer of the playground may last longer than a pod has to end.
        timeout_graceful_shutdown=20,
    )
    return 0


def _url(text: str) -> str:
    return text.rstrip("/")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
