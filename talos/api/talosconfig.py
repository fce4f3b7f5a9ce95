"""Reading a talosconfig: which machines to call, and with which credentials."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass

import yaml

from floor.problems import ProblemError
from talos.api.tls import MutualTls


class TalosconfigError(ProblemError):
    """A talosconfig that cannot be used; states what is wrong and never quotes a value."""

    def __init__(self, what: str) -> None:
        fix = "give a talosconfig as Talos writes it: context, contexts.NAME.{endpoints, ca, crt, key}"
        super().__init__(f"talosconfig: {what}", fix=fix)


@dataclass(frozen=True)
class Talosconfig:
    """One context of a talosconfig."""

    name: str
    endpoints: tuple[str, ...]
    nodes: tuple[str, ...]
    identity: MutualTls


def parse_talosconfig(text: str, *, context: str | None = None) -> Talosconfig:
    """The named context, or the one that the file calls current; TalosconfigError if it is not complete."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError:
        raise TalosconfigError("no readable YAML") from None
    contexts = document.get("contexts") if isinstance(document, dict) else None
    if not isinstance(contexts, dict):
        raise TalosconfigError("it has no contexts")
    name = context or str(document.get("context") or "")
    chosen = contexts.get(name)
    if not isinstance(chosen, dict):
        raise TalosconfigError(f"no context {name!r}; it has {', '.join(map(str, contexts)) or 'none'}")
    return Talosconfig(
        name=name,
        endpoints=_texts(chosen, "endpoints"),
        nodes=_texts(chosen, "nodes"),
        identity=MutualTls(ca=_pem(chosen, "ca"), certificate=_pem(chosen, "crt"), key=_pem(chosen, "key")),
    )


def _texts(context: dict[str, object], name: str) -> tuple[str, ...]:
    listed = context.get(name) or []
    if not isinstance(listed, list):
        raise TalosconfigError(f"{name} is no list")
    return tuple(map(str, listed))


def _pem(context: dict[str, object], name: str) -> bytes:
    try:
        pem = base64.b64decode(str(context.get(name, "")), validate=True)
    except (binascii.Error, ValueError):
        pem = b""
    if not pem.startswith(b"-----BEGIN "):
        raise TalosconfigError(f"{name} is no base64 of PEM")
    return pem
