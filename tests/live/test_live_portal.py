"""The portal as a stranger meets it: sent to the issuer, no script of others, no metrics, a certificate of its name."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest
from cryptography import x509

from components.specs.portal import PortalSpec
from components.tenants.portal import PORTAL
from stacks.program.platform import GATEWAY_NAMESPACE
from tests.live.conftest import Seen
from tests.live.running import RunningSite

_GATEWAY = f"/apis/gateway.networking.k8s.io/v1/namespaces/{GATEWAY_NAMESPACE}/gateways/{PORTAL}"
_CERTIFICATE_DAYS = 14
_PAGES = ("/", "/goodbye")
# Envoy, and the portal behind it, take each of them for the same path.
_METRICS = ("/metrics", "/metrics/", "//metrics", "/%6Detrics")
_CLOSED = {"default-src", "frame-ancestors", "base-uri"}
# Sources of which anyone may be one.
_OPEN = {"*", "http:", "https:", "'unsafe-inline'", "'unsafe-eval'"}


def _portal(site: RunningSite) -> PortalSpec:
    if site.plan.site.portal is None:
        pytest.skip("the site's file has no portal")
    return site.plan.site.portal


def _address(site: RunningSite) -> str:
    """Of its load balancer: whether its name leads there is for the record's owner to know."""
    addresses = site.read(_GATEWAY).get("status", {}).get("addresses", [])
    assert addresses, "the portal's Gateway has no address"
    return str(addresses[0]["value"])


def _trust(site: RunningSite, spec: PortalSpec) -> ssl.SSLContext:
    trust = ssl.create_default_context()
    if spec.ca or site.certificate:
        trust.load_verify_locations(cafile=site.certificate, cadata=spec.ca)
    return trust


class _Stranger(httpx.Client):
    """A browser that has never been there, at the load balancer's address by the portal's name."""

    def __init__(self, site: RunningSite, spec: PortalSpec) -> None:
        address, public = _address(site), urlsplit(spec.url)
        self._at = f"{public.scheme}://{f'[{address}]' if ':' in address else address}:{spec.port}"
        self._name = spec.hostname
        super().__init__(headers={"Host": public.netloc}, verify=_trust(site, spec), timeout=30, trust_env=False)

    def at(self, path: str) -> httpx.Response:
        return self.get(self._at + path, extensions={"sni_hostname": self._name})


@pytest.mark.row("004.11")
def test_a_stranger_is_sent_to_the_issuer(site: RunningSite, seen: Seen) -> None:
    spec = _portal(site)
    with _Stranger(site, spec) as stranger:
        page = stranger.at("/")
        assert page.has_redirect_location, f"the first page answers {page.status_code} without a log in"
        leads = urlsplit(page.headers["location"])
        login = stranger.at(f"{leads.path}?{leads.query}")
    assert login.has_redirect_location, f"the log in answers {login.status_code}: does the portal reach its issuer?"
    there, issuer = urlsplit(login.headers["location"]), urlsplit(spec.issuer)
    asked = dict(parse_qsl(there.query))
    seen(f"{leads.path}, then {there.scheme}://{there.netloc}{there.path} as {asked.get('client_id')}")
    assert (there.scheme, there.netloc) == (issuer.scheme, issuer.netloc), f"sent to {there.netloc}, not to the issuer"
    wanted = {"client_id": spec.client_id, "redirect_uri": f"{spec.url}/callback", "code_challenge_method": "S256"}
    wrong = [f"{name} is {asked.get(name)}" for name, value in wanted.items() if asked.get(name) != value]
    assert not wrong, "; ".join(wrong)


@pytest.mark.row("000.34")
def test_the_portal_s_pages_run_nothing_of_others(site: RunningSite, seen: Seen) -> None:
    spec = _portal(site)
    wrong = []
    with _Stranger(site, spec) as stranger:
        for path in _PAGES:
            headers = stranger.at(path).headers
            wrong += [f"{path}: {problem}" for problem in _loose(headers.get("content-security-policy", ""))]
            wanted = {"x-content-type-options", *(["strict-transport-security"] if spec.certificate_secret else [])}
            wrong += [f"{path}: no {name}" for name in sorted(wanted) if name not in headers]
            seen(f"{path}: {headers.get('content-security-policy', 'no policy')}")
    assert not wrong, "; ".join(wrong)


def _loose(policy: str) -> list[str]:
    """What a Content-Security-Policy opens."""
    directives: Mapping[str, list[str]] = {
        words[0]: words[1:] for part in policy.split(";") if (words := part.lower().split())
    }
    wrong = [f"{name} is not 'none'" for name in sorted(_CLOSED) if directives.get(name) != ["'none'"]]
    return wrong + [
        f"{name} has {source}" for name, sources in directives.items() for source in sources if source in _OPEN
    ]


@pytest.mark.row("004.11", "000.34")
def test_no_stranger_reads_the_portal_s_metrics(site: RunningSite, seen: Seen) -> None:
    opened = []
    with _Stranger(site, _portal(site)) as stranger:
        for path in _METRICS:
            answer = stranger.at(path)
            seen(f"{path}: {answer.status_code}")
            opened += [path] * ("# TYPE" in answer.text)
    assert not opened, f"metrics for everyone at {', '.join(opened)}"


@pytest.mark.row("000.03")
def test_the_portal_s_certificate_is_of_its_name(site: RunningSite, seen: Seen) -> None:
    spec = _portal(site)
    if not spec.certificate_secret:
        pytest.skip("the portal is http: keys are in the clear up to it")
    try:
        with (
            socket.create_connection((_address(site), spec.port), timeout=10) as raw,
            _trust(site, spec).wrap_socket(raw, server_hostname=spec.hostname) as secured,
        ):
            certificate = x509.load_der_x509_certificate(secured.getpeercert(binary_form=True) or b"")
    except ssl.SSLCertVerificationError as error:
        raise AssertionError(f"no browser takes it for {spec.hostname}: {error.verify_message}") from None
    ends = certificate.not_valid_after_utc
    seen(f"{spec.hostname}, valid until {ends:%Y-%m-%d}")
    assert ends - datetime.now(UTC) > timedelta(days=_CERTIFICATE_DAYS), f"the certificate ends on {ends:%Y-%m-%d}"
