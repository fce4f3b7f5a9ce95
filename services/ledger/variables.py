"""Names that the ledger, its shippers, their pods and its callers share."""

from __future__ import annotations

FILES = ("--database-url-file", "--prices-file", "--writer-token-file", "--operator-token-file")
"""Options of `serve`, each of which names a file."""

SERVICE = "ledger"
"""The Service in the gateway's namespace."""
DEFAULT_PORT = 8080
TOKEN_HEADER = "x-ledger-token"  # noqa: S105 - a name
ROWS_PATH = "/v1/rows"
SIGNALS_PATH = "/v1/key-signals"
"""What of tenants' keys may be abuse, where they are watched."""

DATABASE_KEY = "url"
"""Of the Secret with the database's address, which the site names."""
TOKENS_SECRET, WRITER_KEY, OPERATOR_KEY = "ledger-secrets", "writer-token", "operator-token"

PRICES_CONFIG, PRICES_KEY = "ledger-prices", "prices.json"
"""The ConfigMap with the price book, and its file."""

LOG_FOLDER, LOG_FILE = "/var/log/usage", "requests.jsonl"
"""Where Envoy writes a line for each request, on a volume of its pod."""
FLUSH_S = 1.0
"""For so long Envoy may keep lines before it writes them; its own is ten seconds."""
LOOK_EVERY_S = 0.25
"""How often a shipper looks for lines."""
SHIPPER = "usage-shipper"
SHIPPER_PORT = 9003
"""Of its metrics."""
ADMIN_URL = "http://127.0.0.1:19000"
"""Envoy's administration, in the pod."""

MOST_BYTES, MOST_LINES = 1024 * 1024, 2000
"""Of one request with rows."""
KEEP_MONTHS = 13
"""Of rows; what they come to by the hour is kept."""
KEEP_TRACES_DAYS = 30
"""Of the prompt and trace ids of rows."""
ROTATE_BYTES = 64 * 1024 * 1024
"""How large Envoy's log gets before the next one is begun."""


def most_log_bytes(volume_gib: int) -> int:
    """How much may wait on a volume of this size, whose limit the kubelet ends a pod at: the file that is being sent is
    on it too."""
    return volume_gib * 2**30 * 9 // 10
