"""Pages out of templates: escaped, with addresses of static files that change with their content."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

_TIMES = ("expires", "revoked", "since", "lifted")
_NEAR_S = 48 * 3600
_HERE = Path(__file__).parent
STATIC = _HERE / "static"


def day(value: int | None) -> str:
    """The date of Unix time, in words."""
    if value is None:
        return "never"
    moment = datetime.fromtimestamp(value, UTC)
    return f"{moment.day} {moment:%b %Y}"


def moment(value: int) -> str:
    """Unix time to the minute, of UTC."""
    return f"{datetime.fromtimestamp(value, UTC):%Y-%m-%d %H:%M}"


def end(value: int | None) -> str:
    """The date of an end, and the time where that is near."""
    if value is None:
        return "never"
    return moment(value) if 0 < value - time.time() < _NEAR_S else day(value)


def changed(value: Any, name: str) -> str:
    """A value of the audit: times as such, hashes by their beginning, a list by its parts."""
    if name in _TIMES:
        return moment(int(value))
    if isinstance(value, list):
        return ", ".join(map(str, value))
    text = str(value)
    return f"{text[:12]}…" if name == "sha256" else text


def number(value: int) -> str:
    """With commas."""
    return f"{value:,}"


def short(value: int) -> str:
    """Of few digits, for tables and tiles: 1.2 M."""
    for factor, unit in ((10**9, " bn"), (10**6, " M"), (10**3, " k")):
        if value >= factor:
            return f"{value / factor:.3g}{unit}"
    return str(value)


def money(value: Decimal | float) -> str:
    """With two digits, and up to six where there is less than a hundredth."""
    amount = Decimal(str(value))
    return f"{amount:,.2f}" if amount == 0 or amount >= Decimal("0.01") else f"{amount:.6f}".rstrip("0").rstrip(".")


def duration(seconds: int) -> str:
    """In minutes or hours, rounded up: 7 minutes."""
    minutes = -(-seconds // 60)
    if minutes < 120:
        return "1 minute" if minutes == 1 else f"{minutes} minutes"
    return f"{-(-minutes // 60)} hours"


def asker(actor: str) -> str:
    """The person in an actor of the directory: without what keeps two of one name apart."""
    return actor.removeprefix("portal:").partition(" ")[0]


def is_link(text: str) -> bool:
    """Whether a browser may be sent there."""
    return text.startswith("https://") and " " not in text


def _static(name: str) -> str:
    return f"/static/{name}?v={hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]}"


_TEMPLATES = Environment(
    loader=FileSystemLoader(_HERE / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters |= {
    "day": day,
    "moment": moment,
    "end": end,
    "changed": changed,
    "number": number,
    "short": short,
    "money": money,
    "duration": duration,
    "asker": asker,
}
_TEMPLATES.tests["link"] = is_link
STATIC_ADDRESSES = {name: _static(f"portal.{name}") for name in ("css", "js", "svg")}
"""Those of this version, whose content never changes."""
_TEMPLATES.globals["static"] = STATIC_ADDRESSES


def page(request: Request, name: str, context: Mapping[str, Any], status: int = 200) -> HTMLResponse:
    """The page of this name, for what `context` adds to what all pages know."""
    shared = {"path": request.url.path, "me": None, "csrf": request.session.get("csrf", ""), "tenants": {}}
    return HTMLResponse(_TEMPLATES.get_template(f"{name}.html.j2").render(shared | dict(context)), status)
