"""The checked-in site as `make lab` brings it up: HTTPS by cert-manager, with a CA that the lab made as operator."""

from __future__ import annotations

import base64
import os
import ssl
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest
from cryptography import x509

from lab import session
from lab.cluster import gateway_ca
from lab.paths import CHECKOUT
from stacks.program.platform import GATEWAY_NAMESPACE
from tests.lab.site.measured import Prometheus
from tests.lab.site.replicas import Cluster, until
from tests.lab.site.running_site import Site

pytestmark = pytest.mark.row("C.01", "000.03")

_CLIENT = """
import sys, openai
answers = openai.OpenAI(base_url=sys.argv[1], api_key=sys.argv[2], max_retries=0)
print(answers.models.list().data[0].id)
"""
_DAY_S = 24 * 3600


def lab_program(site: Site, *words: str) -> str:
    """What a command of the lab prints."""
    done = subprocess.run(
        [sys.executable, "-m", "lab", *words],
        cwd=CHECKOUT,
        env=site.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_gateway_answers_on_its_own_address_with_a_certificate_of_the_labs_ca(site: Site) -> None:
    address = str(site.lab.network.load_balancers[10])
    assert site.front.endpoint == f"https://{address}/v1"
    with site.http() as http:
        assert http.get("/models").is_success
    text = ssl.get_server_certificate((address, 443), ca_certs=str(site.lab.gateway_ca), timeout=60)
    shown = x509.load_pem_x509_certificate(text.encode())
    assert shown.issuer == x509.load_pem_x509_certificate(site.lab.gateway_ca.read_bytes()).subject
    names = shown.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(entry) for entry in names.get_values_for_type(x509.IPAddress)] == [address]


def test_a_client_that_does_not_know_the_ca_is_not_served_and_port_80_is_shut(site: Site) -> None:
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(f"{site.front.endpoint}/models", trust_env=False, timeout=60)
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://{httpx.URL(site.front.endpoint).host}/v1/models", trust_env=False, timeout=5)


def test_the_printed_curl_line_is_answered(site: Site) -> None:
    printed = lab_program(site, "deploy", "--ask-only")
    (line,) = [block for block in printed.split("\n\n") if block.startswith("curl ")]
    assert f"--cacert {site.lab.gateway_ca} https://" in line
    done = subprocess.run(
        ["bash", "-c", f"{line} --noproxy '*' --silent --show-error --fail"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith("data: [DONE]")


def test_openais_client_trusts_the_ca_by_its_usual_variable(site: Site) -> None:
    asked = [sys.executable, "-c", _CLIENT, site.front.endpoint, site.key]
    environment = {**os.environ, "NO_PROXY": "*"}
    trusting = {**environment, "SSL_CERT_FILE": str(site.lab.gateway_ca)}
    served = subprocess.run(asked, env=trusting, capture_output=True, text=True, check=False, timeout=120)
    assert served.stdout.strip() in site.front.models, served.stderr
    refused = subprocess.run(asked, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert "CERTIFICATE_VERIFY_FAILED" in refused.stderr


def test_the_ca_is_written_again_when_its_secret_is_gone_or_another(site: Site, cluster: Cluster) -> None:
    """By an account that may read no other Secret. A namespace that is made again is the same case."""
    place = (gateway_ca.NAME, GATEWAY_NAMESPACE)
    wanted = gateway_ca.secret(site.lab)["data"]
    assert cluster.core.read_namespaced_secret(*place).data == wanted
    cluster.core.delete_namespaced_secret(*place)
    until(lambda: _held(cluster) == wanted, what="the CA in its Secret again")
    cluster.core.patch_namespaced_secret(*place, {"data": {"tls.crt": base64.b64encode(b"other").decode()}})
    until(lambda: _held(cluster) == wanted, what="the lab's own CA again")


def test_the_key_of_the_ca_is_with_its_owner_alone(site: Site) -> None:
    """Neither in the stack's state nor in what the lab's programs wrote."""
    assert site.lab.gateway_ca_key.stat().st_mode & 0o077 == 0
    lines = site.lab.gateway_ca_key.read_text().splitlines()[1:-1]
    encoded = base64.b64encode(site.lab.gateway_ca_key.read_bytes()).decode()
    state = session.run_pulumi(site.lab, "stack", "export", "--show-secrets", "--stack", session.STACK).stdout
    assert f'"{gateway_ca.NAME}"' in state
    written = {Path("state"): state} | {
        file: file.read_text(errors="replace") for file in site.lab.logs.rglob("*") if file.is_file()
    }
    assert any("lab-ca" in text for text in written.values())
    assert [name for name, text in written.items() if encoded in text or any(line in text for line in lines)] == []


@pytest.mark.row("002.09")
def test_prometheus_knows_when_the_certificate_ends(cluster: Cluster) -> None:
    """By cert-manager for its renewal, and by the proxies as they serve it."""
    prometheus = Prometheus(cluster)
    of_gateway = f'{{name="inference", namespace="{GATEWAY_NAMESPACE}"}}'
    ends = f"certmanager_certificate_expiration_timestamp_seconds{of_gateway} - time()"
    (left,) = prometheus.first(ends)
    assert 80 * _DAY_S < float(left["value"][1]) <= 90 * _DAY_S
    proxies = "envoy_server_days_until_first_cert_expiring < 91"
    assert prometheus.first(proxies)


def _held(cluster: Cluster) -> Mapping[str, bytes | str] | None:
    by_name = f"metadata.name={gateway_ca.NAME}"
    secrets = cluster.core.list_namespaced_secret(GATEWAY_NAMESPACE, field_selector=by_name).items
    return next((secret.data for secret in secrets), None)
