"""Keys and prompts stay out of logs and traces, and no secret of the platform is a chart's default."""

from __future__ import annotations

import secrets
from pathlib import Path

import httpx
import pytest

from components.gateway.gateway_controllers import AI_NAMESPACE
from lab.cluster.parts import spec_of
from tests.lab.site.cluster_objects import kubectl
from tests.lab.site.replicas import ENVOYS, Cluster, until
from tests.lab.site.running_site import Site
from tests.lab.site.streams import chat
from tests.lab.site.test_answers import error_of

pytestmark = pytest.mark.row("004.11")


def logs_with(site: Site, text: str) -> list[Path]:
    """Log files of pods that hold this text."""
    files = (site.lab.logs / "pods").rglob("*")
    return [file for file in files if file.is_file() and text.encode() in file.read_bytes()]


def test_no_key_gets_into_a_log(site: Site) -> None:
    """However a client sends it: in a query with and without a good header, or in the header that is not read."""
    mark = f"mark-{secrets.token_hex(8)}"
    body = chat("qwen3-32b")
    with httpx.Client(
        base_url=site.front.endpoint, trust_env=False, timeout=60, headers={"user-agent": mark}
    ) as client:
        for name in ("api_key", "key", "access_token"):
            refused = client.post("/chat/completions", params={name: site.key}, json=body)
            assert refused.status_code == 401, refused.text
            assert error_of(refused)["code"] == "invalid_api_key"
        for headers in ({"Authorization": f"Bearer {site.key}"}, {"x-api-key": site.key}):
            for path in ("/chat/completions", "/nothing"):
                client.post(path, params={"api_key": site.key}, json=body, headers=headers)
        wrong = secrets.token_urlsafe(32)
        client.post("/chat/completions", json=body, headers={"Authorization": f"Bearer {site.key}", "x-api-key": wrong})
    until(lambda: logs_with(site, mark), what="the requests in Envoy's access log")
    assert not logs_with(site, site.key)
    assert not logs_with(site, wrong)


def test_the_access_log_names_client_and_model(site: Site) -> None:
    """What a key may not say, its client id does."""
    mark = f"mark-{secrets.token_hex(8)}"
    with site.http() as client:
        client.post("/chat/completions", json=chat("qwen3-32b"), headers={"user-agent": mark})
    (log,) = until(lambda: logs_with(site, mark), what="the request in Envoy's access log")
    (line,) = [line for line in log.read_text().splitlines() if mark in line]
    assert f'"client":"{site.front.client}"' in line
    assert '"model":"qwen3-32b"' in line
    assert '"path":"/v1/chat/completions"' in line


def test_traces_hold_no_prompts(cluster: Cluster) -> None:
    """As soon as the processor gets a collector, it would send them."""
    for envoy in cluster.envoys():
        spec = spec_of(cluster.core.read_namespaced_pod(envoy.name, ENVOYS))
        containers = [*spec.containers, *(spec.init_containers or [])]
        (processor,) = [container for container in containers if container.name == "ai-gateway-extproc"]
        hidden = {
            variable.name.removeprefix("OPENINFERENCE_HIDE_")
            for variable in processor.env or ()
            if variable.value == "true"
        }
        assert {"INPUTS", "OUTPUTS", "PROMPTS", "CHOICES"} <= hidden


def test_the_session_seed_is_our_own(site: Site) -> None:
    """The chart's default is in its documentation."""
    arguments = kubectl(
        site.lab,
        "get",
        "deployments",
        "-n",
        AI_NAMESPACE,
        "-o",
        "jsonpath={.items[*].spec.template.spec.containers[*].args}",
    )
    assert "mcpSessionEncryptionSeed" in arguments
    assert "default-insecure-seed" not in arguments
