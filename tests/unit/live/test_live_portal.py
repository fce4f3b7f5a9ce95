"""Checks of the portal without a log in, on one that answers as it should and on ones that do not."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from services.portal.server import _Guard
from stacks.plan.site_plan import plan_file
from tests.certificates import Authority, authority
from tests.live import test_live_portal as portal
from tests.live.running import Object, RunningSite

pytestmark = pytest.mark.row("opening 5", "000.34", "004.11")

PROD = plan_file(Path(__file__).parents[3] / "Pulumi.prod.yaml")
assert PROD.site.portal
SPEC = PROD.site.portal
LOOPBACK = "127.0.0.1"
ISSUER, CLIENT = f"{SPEC.issuer}/auth", f"client_id={SPEC.client_id}"
BACK = f"redirect_uri={SPEC.url}/callback&code_challenge_method=S256"
METRICS = "# TYPE portal_requests_total counter\n"
CSP = "Content-Security-Policy"
# Those that the portal itself writes.
_of_portal: Any = SimpleNamespace(issuer=SPEC.issuer, is_https=True)
GUARDED = _Guard(_of_portal, _of_portal)._headers
Answer = tuple[int, dict[str, str], str]
WELL: dict[str, Answer] = {
    "/": (303, {**GUARDED, "Location": "/login?next=%2F"}, ""),
    "/login?next=%2F": (302, {**GUARDED, "Location": f"{ISSUER}?{CLIENT}&{BACK}"}, ""),
    "/goodbye": (200, GUARDED, "Goodbye"),
    **dict.fromkeys(portal._METRICS, (302, {"Location": f"{SPEC.url}/"}, "")),
}


def unseen(_: str) -> None:
    """No evidence."""


@dataclass(frozen=True, kw_only=True)
class Reached(RunningSite):
    """A site whose portal is at the address of a test."""

    addresses: list[Object] = field(default_factory=lambda: [{"value": LOOPBACK}])

    def read(self, path: str, **_: str) -> Object:
        assert path.endswith("/inference-gateway/gateways/portal")
        return {"status": {"addresses": self.addresses}}


def of_site(certificate: Path | None = None, **portal: Any) -> Reached:
    """portal: what its section has otherwise than the reference site's."""
    section = SPEC.model_copy(update=portal) if portal.get("hostname", "") is not None else None
    plan = replace(PROD, site=PROD.site.model_copy(update={"portal": section}))
    return Reached(name="prod", plan=plan, endpoint="", keys={}, kubeconfig={}, certificate=certificate)


@pytest.fixture(scope="module")
def own() -> Authority:
    return authority()


@contextmanager
def answering(
    own: Authority, folder: Path, others: dict[str, Answer], *, name: str = SPEC.hostname, days: int = 90
) -> Iterator[Reached]:
    """The site with a portal that answers so. others: what differs; name, days: of its certificate."""
    answers = WELL | others

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.headers["Host"].partition(":")[0] == SPEC.hostname
            # Of `self.path`, two slashes at its beginning are one.
            path = self.requestline.split()[1]
            status, headers, body = answers.get(path, (404, GUARDED, "")) if known else (404, {}, "")
            self.send_response(status)
            for header, value in (headers | {"Content-Length": str(len(body))}).items():
                self.send_header(header, value.replace(SPEC.url, f"{SPEC.url}:{server.server_port}"))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None: ...

    settings = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    settings.load_cert_chain(*own.identity(folder, name, days=days))
    trusted = folder / "ca.pem"
    trusted.write_text(own.pem)
    with ThreadingHTTPServer((LOOPBACK, 0), Handler) as server:
        server.socket = settings.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield of_site(trusted, port=server.server_port)
        finally:
            server.shutdown()
            thread.join()


def refused_by(check: Any, own: Authority, folder: Path, others: dict[str, Answer], reason: str) -> None:
    with answering(own, folder, others) as site, pytest.raises(AssertionError, match=reason):
        check(site, unseen)


def test_a_portal_that_is_well_passes_each_check(own: Authority, tmp_path: Path) -> None:
    evidence: list[str] = []
    with answering(own, tmp_path, {}) as site:
        portal.test_a_stranger_is_sent_to_the_issuer(site, evidence.append)
        portal.test_the_portal_s_pages_run_nothing_of_others(site, evidence.append)
        portal.test_no_stranger_reads_the_portal_s_metrics(site, evidence.append)
        portal.test_the_portal_s_certificate_is_of_its_name(site, evidence.append)
    assert evidence[0] == f"/login, then {ISSUER} as {SPEC.client_id}"


@pytest.mark.parametrize(
    ("others", "reason"),
    [
        ({"/": (200, GUARDED, "models")}, "the first page answers 200 without a log in"),
        ({"/login?next=%2F": (503, GUARDED, "")}, "the log in answers 503: does the portal reach its issuer"),
        (
            {"/login?next=%2F": (302, {"Location": f"https://login.other.example/auth?{CLIENT}&{BACK}"}, "")},
            "sent to login.other.example",
        ),
        (
            {"/login?next=%2F": (302, {"Location": f"{ISSUER}?client_id=other&{BACK}"}, "")},
            "client_id is other",
        ),
        ({"/login?next=%2F": (302, {"Location": f"{ISSUER}?{CLIENT}"}, "")}, "redirect_uri is None"),
    ],
    ids=["open", "issuer away", "another issuer", "another client", "nowhere back to"],
)
def test_a_stranger_who_gets_in_or_elsewhere_is_found(
    others: dict[str, Answer], reason: str, own: Authority, tmp_path: Path
) -> None:
    refused_by(portal.test_a_stranger_is_sent_to_the_issuer, own, tmp_path, others, reason)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({CSP: ""}, "/goodbye: default-src is not 'none'"),
        ({CSP: GUARDED[CSP] + "; script-src-elem 'unsafe-inline'"}, "script-src-elem has 'unsafe-inline'"),
        ({CSP: GUARDED[CSP].replace("img-src 'self'", "img-src *")}, r"img-src has \*"),
        ({CSP: GUARDED[CSP].replace("frame-ancestors 'none'", "")}, "frame-ancestors is not 'none'"),
        ({"Strict-Transport-Security": None}, "/goodbye: no strict-transport-security"),
    ],
    ids=["none", "inline", "anyone", "frames", "plain"],
)
def test_a_page_that_may_run_what_others_send_is_found(
    change: dict[str, str | None], reason: str, own: Authority, tmp_path: Path
) -> None:
    headers = {name: value for name, value in (GUARDED | change).items() if value}
    refused_by(
        portal.test_the_portal_s_pages_run_nothing_of_others,
        own,
        tmp_path,
        {"/goodbye": (200, headers, "")},
        reason,
    )


@pytest.mark.parametrize("path", portal._METRICS)
def test_metrics_that_everyone_reads_are_found(path: str, own: Authority, tmp_path: Path) -> None:
    open_to_all = {path: (200, GUARDED, METRICS)}
    reason = rf"metrics for everyone at {path}\n"
    refused_by(portal.test_no_stranger_reads_the_portal_s_metrics, own, tmp_path, open_to_all, reason)


@pytest.mark.parametrize(
    ("certificate", "reason"),
    [
        ({"name": "llm.site.example"}, f"no browser takes it for {SPEC.hostname}: .*[Hh]ostname mismatch"),
        ({"days": 13}, "the certificate ends on"),
    ],
    ids=["another name", "soon"],
)
def test_a_certificate_of_another_name_or_that_ends_is_found(
    certificate: dict[str, Any], reason: str, own: Authority, tmp_path: Path
) -> None:
    with answering(own, tmp_path, {}, **certificate) as site, pytest.raises(AssertionError, match=reason):
        portal.test_the_portal_s_certificate_is_of_its_name(site, unseen)


def test_what_a_site_has_not_is_skipped_and_no_address_is_found() -> None:
    with pytest.raises(pytest.skip.Exception, match="the site's file has no portal"):
        portal.test_a_stranger_is_sent_to_the_issuer(of_site(hostname=None), unseen)
    with pytest.raises(pytest.skip.Exception, match="the portal is http"):
        portal.test_the_portal_s_certificate_is_of_its_name(of_site(certificate_secret=None), unseen)
    with pytest.raises(AssertionError, match="the portal's Gateway has no address"):
        portal.test_no_stranger_reads_the_portal_s_metrics(replace(of_site(), addresses=[]), unseen)
