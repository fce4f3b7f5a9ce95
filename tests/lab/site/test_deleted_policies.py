"""Whatever of the gateway's objects is deleted at once, a client without a key gets 401 or no connection."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from components.gateway.gateway_protection import OVERRIDE
from floor.metadata import PROTECTED
from tests.lab.site.cluster_objects import FIELD_MANAGER, kubectl
from tests.lab.site.replicas import until
from tests.lab.site.running_site import Site
from tests.lab.site.streams import chat

pytestmark = pytest.mark.row("004.11")

FRONT = "inference-gateway"
KEYS, DOOR = "securitypolicy/tenants", "envoypatchpolicy/front-door"
OTHERS = (
    "envoypatchpolicy/listed-models",
    "envoypatchpolicy/openai-errors",
    "clienttrafficpolicy/inference",
    "backendtrafficpolicy/inference",
    "envoyextensionpolicy/tiers",
    "gatewayconfig/inference",
    "envoyproxy/inference",
)
# A pair without one of the two guards leaves both.
SETS = ((KEYS, DOOR), *((guard, other) for other in OTHERS for guard in (KEYS, DOOR)), (KEYS, DOOR, *OTHERS))
# Deleted policies opened the gateway within 2 s.
WATCHED_S = 6


@contextmanager
def deleted(site: Site, names: Sequence[str], folder: Path) -> Iterator[None]:
    """Without these objects; afterwards they are again as the program applied them."""
    matching = json.loads(kubectl(site.lab, "get", *names, "-n", FRONT, "-o", "json"))
    objects = matching.get("items", [matching])
    for number, item in enumerate(objects):
        meta = item["metadata"]
        kept = {name: meta[name] for name in ("name", "namespace", "labels", "annotations") if name in meta}
        document = {**{name: item[name] for name in ("apiVersion", "kind", "spec")}, "metadata": kept}
        (folder / f"{number}.json").write_text(json.dumps(document))
        if PROTECTED.items() <= meta.get("labels", {}).items():
            named = f"{item['kind']}/{meta['name']}"
            kubectl(site.lab, "annotate", named, "-n", FRONT, f"{OVERRIDE}=a drill")
    manager = objects[0]["metadata"]["annotations"][FIELD_MANAGER]
    kubectl(site.lab, "delete", "--wait=false", *names, "-n", FRONT)
    try:
        yield
    finally:
        applied = ("--server-side", "--force-conflicts", f"--field-manager={manager}")
        for number in range(len(objects)):
            kubectl(site.lab, "apply", *applied, "-f", str(folder / f"{number}.json"))
        until(lambda: _served(site), what="an answer with the objects back")


def _served(site: Site) -> bool:
    return _status(site, site.key) == 200


def _status(site: Site, key: str | None) -> int | None:
    """Of one request by a connection of its own; None where there is none."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        return httpx.post(
            f"{site.front.endpoint}/chat/completions",
            json=chat("qwen3-32b"),
            headers=headers,
            timeout=10,
            trust_env=False,
        ).status_code
    except httpx.TransportError:
        return None


# `make test` asks both guards alone and with everything else; the pairs wait for `make test-all`.
@pytest.mark.parametrize(
    "names",
    [
        pytest.param(names, marks=[] if names in (SETS[0], SETS[-1]) else pytest.mark.exhaustive, id=" ".join(names))
        for names in SETS
    ],
)
def test_no_deletion_opens_the_gateway(site: Site, tmp_path: Path, names: tuple[str, ...]) -> None:
    with deleted(site, names, tmp_path):
        deadline = time.monotonic() + WATCHED_S
        while time.monotonic() < deadline:
            assert _status(site, None) in {None, 401}
