"""Names under which a Job gives the program its source, and what opens it.

Pods, the program in them, rules over pods, and what fills Secrets have them from here.
"""

from __future__ import annotations

from collections.abc import Mapping

from services.weights.order import Source

HUB_ADDRESS = "HF_ENDPOINT"
BUCKET_ADDRESS, REGISTRY_ADDRESS = "WEIGHTS_BUCKET", "WEIGHTS_REGISTRY"
HUB_TOKEN = "HF_TOKEN"  # noqa: S105 - a name
KEY_ID, SECRET_KEY = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"
SESSION_TOKEN = "AWS_SESSION_TOKEN"  # noqa: S105 - a name
USERNAME, PASSWORD = "REGISTRY_USERNAME", "REGISTRY_PASSWORD"

_TOKEN = {HUB_TOKEN: "token"}
KEYS: Mapping[Source, Mapping[str, str]] = {
    "hub": _TOKEN,
    "mirror": _TOKEN,
    "bucket": {KEY_ID: "access_key_id", SECRET_KEY: "secret_access_key"},
    "oci": {USERNAME: "username", PASSWORD: "password"},
    # Its Job gets none; the order names the Secret as it always did, so that it is not another order.
    "volume": _TOKEN,
}
"""By source: the variables with what opens it, and the key of the Secret that each of them is."""

OPTIONAL_KEYS: Mapping[Source, Mapping[str, str]] = {"bucket": {SESSION_TOKEN: "session_token"}}
"""The same of keys that the Secret may have besides."""


def address_of(source: Source) -> str:
    """The variable with the address of a source, for rules and people; the program has the address in its order."""
    return {"bucket": BUCKET_ADDRESS, "oci": REGISTRY_ADDRESS}.get(source, HUB_ADDRESS)


def keys_of(source: Source) -> tuple[str, ...]:
    """Keys of the Secret that opens a source."""
    return tuple(KEYS[source].values())


def optional_keys_of(source: Source) -> tuple[str, ...]:
    """Keys that this Secret may have besides."""
    return tuple(OPTIONAL_KEYS.get(source, {}).values())
