"""A model in an emulated registry, and the program that brings it out of there."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

from services.weights.bringing import Bringing
from services.weights.manifest import Entry, Manifest
from services.weights.order import Wanted, WeightsOrder
from services.weights.registry import Login, Registry
from services.weights.volume import Volume
from tests.certificates import Authority
from tests.unit.services.emulated_registry import PASSWORD, USER, Answer, Asked, EmulatedRegistry, digest
from tests.unit.services.weights_rig import FILES, LARGE, PATIENCE_S, REVISION, VirtualClock

MODEL = "Made-Up/Model-1.1"
REPOSITORY = "weights/prod/made-up/model-1.1"
LOCK = Manifest(MODEL, REVISION, {path: Entry(len(data), digest(data)[7:]) for path, data in FILES.items()})
LOGIN = Login(USER, PASSWORD)
PLACE = "Secret inference-models/weights-login, keys username and password"
BLOB = FILES[LARGE]


def pushed(**how: Any) -> EmulatedRegistry:
    registry = EmulatedRegistry(**how)
    registry.push(REPOSITORY, *FILES.values())
    return registry


def order_of(address: str, *, lock: str = LOCK.text(), parallel: int = 1, token_from: str = PLACE) -> WeightsOrder:
    return WeightsOrder(
        model="chat",
        source="oci",
        endpoint=f"{address}/weights/prod",
        bytes_per_s=1e12,
        parallel=parallel,
        keep=1,
        token_from=token_from,
        wanted=(Wanted(MODEL, REVISION, lock),),
    )


def program(
    root: Path,
    address: str,
    login: Login | None = None,
    *,
    trust: ssl.SSLContext | None = None,
    **how: Any,
) -> Bringing:
    order = order_of(address, **how)
    source = Registry(order.endpoint, login=login, token_from=order.token_from, stall_s=PATIENCE_S, trust=trust)
    root.mkdir(exist_ok=True)
    lines: list[str] = []
    return Bringing(order, Volume(root / "volume"), source, lines.append, VirtualClock())


def is_whole(bringing: Bringing) -> bool:
    folder = bringing.volume.folder(REVISION)
    return {path: (folder / path).read_bytes() for path in FILES} == FILES


def blobs(registry: EmulatedRegistry) -> list[Asked]:
    return [asked for asked in registry.asked if "/blobs/" in asked.path]


def tokens(registry: EmulatedRegistry) -> list[Asked]:
    return [asked for asked in registry.asked if asked.path.startswith("/token")]


def once(answer: Answer, name: str = digest(BLOB)) -> Any:
    """In the place of the first answer about that."""
    answers = [answer]
    return lambda asked: answers.pop() if answers and name in asked.path else None


def trusting(own: Authority) -> ssl.SSLContext:
    """What the program trusts where the site names this authority."""
    return ssl.create_default_context(cadata=own.pem)
