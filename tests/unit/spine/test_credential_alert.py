"""The whole program under the SDK's mocks: who is alerted before which credentials end."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.specs.monitoring import MonitoringSpec
from stacks.plan.site_plan import plan_file
from talos.secrets import pki
from tests.unit.spine.test_platform import declare
from tests.unit.talos import talos_examples as examples

pytestmark = pytest.mark.row("002.09")

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_prometheus_has_the_end_of_each_credential_of_the_programs_own_cluster(tmp_path: Path) -> None:
    """As plain text: a date is no secret. What the mocks print is no kubeconfig, which counts as ended."""
    recorder, _ = declare(plan_file(ROOT / "Pulumi.prod.yaml").site, tmp_path)
    (group,) = recorder.resources["monitoring-credential-ends"].inputs["spec"]["groups"]
    ends = {(rule["labels"]["kind"], rule["labels"]["credential"]): rule["expr"] for rule in group["rules"]}
    last = int((examples.NOW + pki.CA_LIFETIME).timestamp())
    assert ends == {
        **{("credential", name): "vector(0)" for name in ("kubeconfig", "talosconfig")},
        **{("authority", name): f"vector({last})" for name in ("etcd", "k8s", "k8saggregator", "os")},
    }
    (alert,) = [
        rule
        for group in recorder.resources["monitoring-rules"].inputs["spec"]["groups"]
        for rule in group["rules"]
        if rule.get("alert") == "CredentialEnds"
    ]
    for kind, _ in ends:
        assert f'{group["rules"][0]["record"]}{{kind="{kind}"}}' in alert["expr"]


@pytest.mark.slow
@pytest.mark.parametrize("others", ["cluster", "prometheus"])
def test_nothing_watches_the_credentials_of_a_cluster_of_others_or_without_a_prometheus(
    others: str, tmp_path: Path
) -> None:
    if others == "cluster":
        site = plan_file(ROOT / "tests" / "fixtures" / "sites" / "valid" / "one-gpu.yaml").site
        monitoring = MonitoringSpec(system="prometheus_operator", storage_class="fast")
    else:
        site = plan_file(ROOT / "Pulumi.prod.yaml").site
        monitoring = MonitoringSpec(system="external", scraper_namespace="watch", labels={"release": "kps"})
    site = site.model_copy(update={"monitoring": monitoring})
    recorder, _ = declare(site, tmp_path)
    assert "monitoring-rules" in recorder.resources
    assert "monitoring-credential-ends" not in recorder.resources
    assert "CredentialEnds" not in str(recorder.resources["monitoring-rules"].inputs)
