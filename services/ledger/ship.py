"""`python -m services.ledger ship`: sends each line of an Envoy's access log to the ledger, and loses none."""

from __future__ import annotations

import argparse
import http.client
import json
import logging
import random
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import Counter, Gauge, start_http_server

from services.ledger import variables
from services.ledger.tail import Piece, Tail

_BEHIND = Gauge("inference_usage_shipper_bytes_behind", "Bytes of the log that the ledger has not confirmed.")
_OLDEST = Gauge("inference_usage_shipper_oldest_seconds", "Since the oldest line was written that is not confirmed.")
_SHIPPED = Counter("inference_usage_shipper_rows", "Rows that the ledger confirmed: added, or known before.")
_UNREADABLE = Counter("inference_usage_shipper_unreadable_lines", "Lines that the ledger could not read.")
_FAILURES = Counter("inference_usage_shipper_failures", "Attempts that the ledger did not confirm.", ["reason"])
_ROTATED = Counter("inference_usage_shipper_rotations", "Files that the log has been split into.")

_REOPEN_EVERY_S = 2.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S, _LONGEST_AT_END_S = 0.2, 10.0, 1.0
_TIMEOUT_S = 30.0
_FEWEST_LINES = 50
_CUT_OFF = (OSError, http.client.HTTPException)

log = logging.getLogger(__name__)
# Addresses of the cluster and of the pod: no proxy is on the way.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True, kw_only=True)
class ShipperSettings:
    """From where, and to where."""

    log: Path
    ledger_url: str
    token: Path
    admin_url: str
    rotate_bytes: int
    most_bytes: int


class Shipper:
    """One log."""

    def __init__(self, settings: ShipperSettings) -> None:
        self._settings, self._tail = settings, Tail(settings.log)
        self._is_ending = False
        self._pause_s, self._most_lines, self._next_reopen = _FIRST_PAUSE_S, variables.MOST_LINES, 0.0

    def end(self) -> None:
        """Let `run` return once all that is written is confirmed."""
        self._is_ending = True

    def run(self) -> None:
        """Ship what is written, until `end`."""
        while True:
            self._rotate()
            ends = self._is_ending
            piece = self._tail.next(most_bytes=variables.MOST_BYTES, most_lines=self._most_lines, ends=ends)
            _BEHIND.set(self._tail.bytes_behind())
            _OLDEST.set(age_s(piece) if piece else 0.0)
            if piece is None:
                if ends:
                    return
                time.sleep(variables.LOOK_EVERY_S)
            elif not self._send(piece.data):
                self._wait()
            elif piece.is_last:
                # It is not confirmed: if something was written after all, the line is sent again with its end.
                return
            else:
                self._tail.confirmed(piece)

    def _send(self, data: bytes) -> bool:
        """Whether the ledger has committed the lines."""
        try:
            headers = {variables.TOKEN_HEADER: self._settings.token.read_text().strip()}
            url = f"{self._settings.ledger_url}{variables.ROWS_PATH}"
            answer = json.loads(_post(url, data, headers))
            shipped, unreadable = answer["added"] + answer["known"], answer["unreadable"]
        except urllib.error.HTTPError as refusal:
            return self._failed(str(refusal.code))
        except (*_CUT_OFF, ValueError, KeyError, TypeError) as error:
            return self._failed(type(error).__name__)
        _SHIPPED.inc(shipped)
        _UNREADABLE.inc(unreadable)
        if self._pause_s > _FIRST_PAUSE_S:
            log.info("the ledger takes lines again")
        self._pause_s = _FIRST_PAUSE_S
        self._most_lines = min(variables.MOST_LINES, 2 * self._most_lines)
        return True

    def _failed(self, reason: str) -> bool:
        _FAILURES.labels(reason).inc()
        if self._pause_s == _FIRST_PAUSE_S:
            log.warning("the ledger does not take lines (%s); they are kept and sent again", reason)
        # A database that is too slow for many takes some.
        self._most_lines = max(_FEWEST_LINES, self._most_lines // 2)
        return False

    def _wait(self) -> None:
        """Longer each time, and not the same as others."""
        until = time.monotonic() + self._pause_s * random.uniform(0.5, 1)  # noqa: S311 - no secret
        while (left_s := until - time.monotonic()) > 0:
            if self._is_ending:
                left_s = min(left_s, _LONGEST_AT_END_S)
                until = min(until, time.monotonic() + left_s)
            time.sleep(min(left_s, variables.LOOK_EVERY_S))
            self._rotate()
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)

    def _rotate(self) -> None:
        """Rename a large log, and have Envoy make the next; asked again until it has, as it may be starting."""
        needs_reopen = self._tail.rotate(self._settings.rotate_bytes, self._settings.most_bytes)
        if not needs_reopen or time.monotonic() < self._next_reopen:
            return
        self._next_reopen = time.monotonic() + _REOPEN_EVERY_S
        try:
            _post(f"{self._settings.admin_url}/reopen_logs", b"", {})
            _ROTATED.inc()
        except _CUT_OFF as error:
            log.warning("Envoy does not open its log again: %s", type(error).__name__)


def _post(url: str, data: bytes, headers: dict[str, str]) -> bytes:
    request = urllib.request.Request(url, data, headers, method="POST")  # noqa: S310 - of the command line
    with _opener.open(request, timeout=_TIMEOUT_S) as answer:
        content: bytes = answer.read()
    return content


def age_s(piece: Piece) -> float:
    """Since its first line was written, at the end of its request; of one that is torn, since a later one was."""
    for text in piece.data.split(b"\n"):
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            line = json.loads(text)
            return max(0.0, time.time() - float(line["started"]) - float(line.get("duration_ms") or 0) / 1000)
    return max(0.0, time.time() - piece.written_s)


def main(arguments: Sequence[str]) -> int:
    """Ship until SIGTERM, and then what is left; exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m services.ledger ship",
        description="Sends each line of an Envoy's access log to the ledger. It may be killed at any moment: a line"
        " that the ledger did not confirm is sent again, and the ledger adds none twice.",
        epilog="On SIGTERM it sends what is left, and ends once that is confirmed; so it has to end after Envoy.",
    )
    file = Path(variables.LOG_FOLDER) / variables.LOG_FILE
    parser.add_argument("--log", type=Path, metavar="FILE", default=file, help="default: %(default)s")
    parser.add_argument("--ledger-url", metavar="URL", required=True, help="of the ledger, as http://HOST:PORT")
    parser.add_argument("--token-file", type=Path, metavar="FILE", required=True, help="the writer's token")
    parser.add_argument("--admin-url", metavar="URL", default=variables.ADMIN_URL, help="Envoy's; default: %(default)s")
    parser.add_argument(
        "--rotate-bytes",
        type=int,
        metavar="BYTES",
        default=variables.ROTATE_BYTES,
        help="how large the log gets before the next one is begun; default: %(default)s",
    )
    parser.add_argument(
        "--most-bytes",
        type=int,
        metavar="BYTES",
        default=variables.most_log_bytes(1),
        help="how much may wait; what Envoy logs beyond it is lost, and counted by Envoy as on a full disk;"
        " default: %(default)s",
    )
    parser.add_argument(
        "--metrics-port", type=int, metavar="PORT", default=variables.SHIPPER_PORT, help="default: %(default)s"
    )
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stdout)
    shipper = Shipper(
        ShipperSettings(
            log=given.log,
            ledger_url=given.ledger_url.rstrip("/"),
            token=given.token_file,
            admin_url=given.admin_url.rstrip("/"),
            rotate_bytes=given.rotate_bytes,
            most_bytes=given.most_bytes,
        )
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: shipper.end())
    try:
        start_http_server(given.metrics_port)
    except OSError as error:
        print(
            f"error: port {given.metrics_port}: {error.strerror}; fix: choose another --metrics-port", file=sys.stderr
        )
        return 1
    shipper.run()
    log.info("all lines are with the ledger")
    return 0
