"""The inputs of a command: addresses as options; secrets by file, stdin or environment, never as an option's value."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from talos.api.talosconfig import Talosconfig, parse_talosconfig
from talos.api.transport import MACHINE_API_PORT
from talos.cli.failures import InputError
from talos.secrets import bundle as secrets
from talos.secrets import talosconfig as issuing
from talos.secrets import variables

TALOSCONFIG_PATH_VARIABLE = "TALOSCONFIG"
# Credentials made out of the secrets bundle live for one command; clocks of new machines may be behind.
_COMMAND_LIFETIME = timedelta(hours=4)
_CLOCKS_APART = timedelta(hours=1)

INPUTS = f"""\
secrets come by file, stdin (`-`) or environment, never as the value of an option:
  talosconfig     --talosconfig FILE, else text in ${variables.TALOSCONFIG}, else the file ${TALOSCONFIG_PATH_VARIABLE}
  secrets bundle  text in ${variables.SECRETS}: takes the talosconfig's place, with credentials for this command alone
  kubeconfig      text in ${variables.KUBECONFIG}
  machine config  --config FILE, else text in ${variables.CONFIG} (up to 128 KiB), else stdin"""


@dataclass(frozen=True)
class Address:
    """Where a machine API listens."""

    host: str
    port: int = MACHINE_API_PORT

    @classmethod
    def parse(cls, text: str) -> Address:
        """HOST, HOST:PORT, or [IPV6]:PORT; InputError for a port that is none."""
        host, colon, port = text.rpartition(":")
        if not colon or (":" in host and not host.endswith("]")) or text.endswith("]"):
            host, port = text, str(MACHINE_API_PORT)
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise InputError(f"address: got {text!r}, allowed HOST or HOST:PORT", fix="write it like 10.0.0.11:50000")
        return cls(host, int(port))


def text_of(path: str, what: str) -> str:
    """A file's text, or stdin's for `-`; InputError that does not quote it."""
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise InputError(f"{what}: {path} cannot be read: {reason}", fix="give a readable text file") from None


def machine_config(file: str | None) -> bytes:
    """The machine config's bytes, from wherever it was given; InputError if it is empty."""
    if file:
        text = text_of(file, "machine config")
    else:
        text = os.environ.get(variables.CONFIG) or text_of("-", "machine config")
    if not text.strip():
        raise InputError("machine config: it is empty", fix=f"give it by --config, ${variables.CONFIG} or stdin")
    return text.encode()


def talosconfig(file: str | None, context: str | None) -> Talosconfig | None:
    """The credentials, or None where none were given; TalosconfigError or ConfigError if they cannot be used."""
    if not file and (text := os.environ.get(variables.SECRETS)):
        return _of_this_command(text)
    if file:
        text = text_of(file, "talosconfig")
    elif text := os.environ.get(variables.TALOSCONFIG, ""):
        pass
    elif path := os.environ.get(TALOSCONFIG_PATH_VARIABLE):
        text = text_of(path, "talosconfig")
    else:
        return None
    return parse_talosconfig(text, context=context)


# A command that asks several machines asks all of them by the same credentials; making them takes a tenth of a second.
@functools.lru_cache(maxsize=1)
def _of_this_command(bundle: str) -> Talosconfig:
    issued = issuing.issue(
        secrets.load(bundle),
        context="command",
        endpoints=(),
        lifetime=_COMMAND_LIFETIME,
        now=lambda: secrets.utc_now() - _CLOCKS_APART,
    )
    return parse_talosconfig(issued.render())


def secrets_bundle() -> secrets.SecretsBundle | None:
    """The cluster's secrets out of the environment, or None; ConfigError if they cannot be used."""
    text = os.environ.get(variables.SECRETS)
    return secrets.load(text) if text else None


def print_result(result: dict[str, Any] | list[dict[str, Any]]) -> None:
    """The command's result, as JSON on stdout."""
    print(json.dumps(result, indent=2), flush=True)


@contextlib.contextmanager
def private_file(path: str) -> Iterator[Any]:
    """A binary file for the owner alone, which takes its name when it is whole; InputError where it cannot be."""
    target = Path(path)
    if not target.name or target.is_dir():
        raise InputError(f"{path or 'an empty path'} cannot be written: it is no file", fix="give the path of a file")
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise InputError(
            f"{path} cannot be written: {error.strerror}", fix="give a path in a writable folder"
        ) from None
    part = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def write_secret(path: str | None, text: str) -> None:
    """A secret that was asked for: into a file for the owner alone, or to stdout."""
    if path is None:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    with private_file(path) as file:
        file.write(text.encode())


def one_stdin(paths: Iterable[str | None]) -> None:
    """InputError if more than one input is to come from stdin."""
    if sum(path == "-" for path in paths) > 1:
        raise InputError("stdin can give one thing only", fix="give the others by file or environment")
