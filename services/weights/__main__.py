"""`python -m services.weights bring|check|prune|hold`: see its --help. Started by the platform's pods alone."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import ssl
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from services.weights import completion, order, variables
from services.weights.bringing import Bringing
from services.weights.bucket import Bucket, BucketKeys
from services.weights.failure import Exit, WeightsError
from services.weights.hub import Hub
from services.weights.registry import Login, Registry
from services.weights.volume import Volume

# Kubernetes takes what a container writes there as the reason of its end, and `pulumi up` shows it.
_REASON = Path("/dev/termination-log")
_SEE_JOB = (
    "see the Job {name} (kubectl logs job/{name}); pulumi up runs it again where it failed, and this server starts by "
    "itself once it is done"
)
_SEE_NODE = (
    "see the pod of the DaemonSet {name} on this server's node (kubectl get pods -o wide; kubectl logs POD -c bring); "
    "it tries again by itself, and this server starts by itself once it is done"
)


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Exit status of one command; a failure is written as text, never as a traceback."""
    parser = argparse.ArgumentParser(prog="weights", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (("bring", "every wanted revision becomes whole"), ("prune", "remove earlier revisions")):
        command = commands.add_parser(name, help=text)
        command.add_argument("--volume", type=Path, required=True)
        command.add_argument("--order", type=Path, required=True, metavar="FOLDER")
        command.add_argument("--digest", default="", help="of the order that the caller means")
        command.add_argument(
            "--ca", type=Path, metavar="FILE", help="authorities in PEM, trusted like the machine's own"
        )
        command.add_argument("--stall-s", type=float, default=60.0, help="a transfer without a byte is begun again")
        if name == "bring":
            command.add_argument(
                "--remove-earlier", action="store_true", help="first remove what the order does not keep"
            )
    check = commands.add_parser("check", help="whether a folder is a whole revision, by its marker and its sizes")
    check.add_argument("--folder", type=Path, required=True)
    check.add_argument("--repository", default="")
    check.add_argument("--revision", default="")
    check.add_argument(
        "--each", action="append", default=[], metavar="REPOSITORY@REVISION", help="in the folder, by its revision"
    )
    brings = check.add_mutually_exclusive_group(required=True)
    brings.add_argument("--job", default="", help="who brings the files, for the message")
    brings.add_argument("--daemon-set", default="", help="who brings the files to each node, for the message")
    check.add_argument("--used", type=Path, metavar="FOLDER", help="keep here that this revision is in use")
    check.add_argument("--order", type=Path, required=True, metavar="FOLDER")
    commands.add_parser("hold", help="wait until stopped: the pod stays, and a new node gets one that brings first")
    given = parser.parse_args(arguments)
    try:
        if given.command == "hold":
            _stop_event().wait()
        elif given.command == "check":
            _check(given)
        else:
            _write(given, environment)
    except WeightsError as failure:
        return _end(failure)
    return int(Exit.OK)


def _check(given: argparse.Namespace) -> None:
    meant = {entry.revision: entry for entry in order.read(given.order).wanted}
    fix = _SEE_NODE.format(name=given.daemon_set) if given.daemon_set else _SEE_JOB.format(name=given.job)
    pairs = [text.rpartition("@")[::2] for text in given.each]
    folders = {(name, revision): given.folder / revision for name, revision in pairs}
    for (name, revision), folder in (folders or {(given.repository, given.revision): given.folder}).items():
        locked = meant[revision].manifest() if revision in meant else None
        completion.check(folder, name, revision, locked.digest if locked else "", fix)
        if given.used:
            # A server starts on a full disk too.
            with contextlib.suppress(OSError):
                (given.used / revision).touch()
        _say(f"{name} at {revision}: whole")


def _write(given: argparse.Namespace, environment: Mapping[str, str]) -> None:
    there = order.read(given.order)
    if given.digest and there.digest != given.digest:
        # A node may still have the ConfigMap of before; the Job's next pod finds the new one.
        raise WeightsError(
            Exit.ORDER, "the order is not this Job's", got=there.digest, allowed=given.digest, fix="the Job tries again"
        )
    hub = None if there.source == "volume" else _source(given, there, environment)
    bringing = Bringing(there, Volume(given.volume), hub, _say, stop=_stop_event())
    if given.command == "bring":
        bringing.run(remove_earlier=given.remove_earlier)
    else:
        bringing.prune()


def _stop_event() -> threading.Event:
    """Set when the pod is to end."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop


def _source(given: argparse.Namespace, there: order.WeightsOrder, environment: Mapping[str, str]) -> Hub:
    how: dict[str, Any] = {
        "token_from": there.token_from,
        "stall_s": given.stall_s,
        "trust": _trust(given.ca, there.ca_from) if given.ca else None,
        "trust_from": there.ca_from,
    }
    if there.source == "bucket":
        key_id = _secret(environment, variables.KEY_ID, there.token_from)
        secret = _secret(environment, variables.SECRET_KEY, there.token_from)
        session = _secret(environment, variables.SESSION_TOKEN, there.token_from)
        keys = BucketKeys(key_id, secret, session) if key_id and secret else None
        return Bucket(there.endpoint, region=there.region, keys=keys, **how)
    if there.source == "oci":
        username = _secret(environment, variables.USERNAME, there.token_from)
        password = _secret(environment, variables.PASSWORD, there.token_from)
        login = Login(username, password) if username and password else None
        return Registry(there.endpoint, login=login, **how)
    token = _secret(environment, variables.HUB_TOKEN, there.token_from)
    return Hub(environment.get(variables.HUB_ADDRESS) or there.endpoint, token=token, **how)


def _secret(environment: Mapping[str, str], name: str, place: str) -> str:
    """The value without what editors leave at its ends. Raises WeightsError for one that a header cannot have.

    Sent in a header, http.client would quote it in a traceback.
    """
    value = environment.get(name, "").strip()
    if value.isascii() and value.isprintable():
        return value
    raise WeightsError(
        Exit.TOKEN,
        f"{place or 'the environment'} has more than {name} where that should be",
        got="several lines, or characters that are no ASCII",
        fix="put the value alone into it, then call pulumi up again",
    )


def _trust(file: Path, place: str) -> ssl.SSLContext:
    """The machine's authorities and those of the file. Raises WeightsError where it has none."""
    context = ssl.create_default_context()
    try:
        context.load_verify_locations(cafile=file)
    except (OSError, ssl.SSLError) as error:
        reason = "it is not there" if isinstance(error, FileNotFoundError) else f"no certificate in PEM ({error})"
        raise WeightsError(
            Exit.UNREACHABLE,
            f"no authority can be read from {place}",
            got=reason,
            allowed="one certificate in PEM or more",
            fix="create it with the authorities of the server's certificate, then call pulumi up again",
        ) from None
    return context


def _say(text: str) -> None:
    print(f"[weights] {text}", flush=True)


def _end(failure: WeightsError) -> int:
    print(f"error: {failure}", file=sys.stderr, flush=True)
    if _REASON.exists():
        _REASON.write_text(f"{failure}\n", encoding="utf-8")
    return int(failure.status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
