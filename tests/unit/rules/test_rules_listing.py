"""Every rule finds what breaks it, says the fix, and finds nothing in a site that keeps it."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from floor.stateful import IDENTITY, PEPPER, Holder, Keeping
from policy.listing import RULES, names
from policy.model import HIDDEN, Resource, SiteFacts, violations
from tests.unit.rules.broken_sites import BROKEN, FACTS, SOVEREIGN, Broken, bodies, resources

pytestmark = pytest.mark.row("opening 15")


@pytest.mark.parametrize("facts", [FACTS, SOVEREIGN], ids=["a site", "a sovereign site"])
def test_a_site_that_keeps_the_rules_breaks_none(facts: SiteFacts) -> None:
    assert violations(resources(bodies()), facts, RULES) == []


def test_a_route_around_a_pool_leads_to_a_backend_that_the_site_declares() -> None:
    objects = copy.deepcopy(bodies())
    objects["route"]["spec"]["rules"][0]["backendRefs"] = [{"name": "chat"}]
    (broken,) = violations(resources(objects), FACTS, RULES)
    assert "leads to AIServiceBackend models/chat" in broken.problem
    objects["form"] = {**objects["pool"], "kind": "AIServiceBackend"}
    assert violations(resources(objects), FACTS, RULES) == []


@pytest.mark.parametrize(("rule", "case"), list(BROKEN.items()), ids=["-".join(rule) for rule in BROKEN])
def test_a_broken_rule_is_the_one_that_is_named(rule: tuple[str, str], case: Broken) -> None:
    """Each rule of 15: a violating site, and a message with the fix."""
    objects = copy.deepcopy(bodies())
    case.change(objects)
    broken = violations(resources(objects, protected=case.protected), case.facts, RULES)
    assert {violation.rule for violation in broken} == {rule[0]}
    assert case.says in broken[0].problem
    assert "\n  fix: " in str(broken[0])
    assert len(broken[0].fix) > 10


def test_every_rule_has_a_site_that_breaks_it() -> None:
    assert {rule for rule, _ in BROKEN} == set(names())


def test_names_are_said_once() -> None:
    assert len(names()) == len(set(names()))


def test_each_node_mounts_its_own_folder_whatever_the_mode() -> None:
    objects = bodies()
    spec = objects["deployment"]["spec"]["template"]["spec"]
    spec["volumes"].append({"name": "more", "persistentVolumeClaim": {"claimName": "chat-node"}})
    own = {"name": "chat-node", "namespace": "models", "annotations": {"inference-platform/disposable": "true"}}
    objects["node claim"] = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": own,
        "spec": {"accessModes": ["ReadWriteOnce"]},
    }
    assert violations(resources(objects), FACTS, RULES) == []
    del objects["folder of nodes"]
    (broken,) = violations(resources(objects), FACTS, RULES)
    assert "mounts it on several nodes, in mode ReadWriteOnce" in broken.problem


def test_one_replica_needs_no_budget() -> None:
    objects = bodies()
    objects["deployment"]["spec"]["replicas"] = 1
    del objects["budget"]
    assert violations(resources(objects), FACTS, RULES) == []


@pytest.mark.parametrize(
    ("facts", "protected", "broken"),
    [
        (replace(FACTS, machine_secrets="protected"), False, ["protect-stateful"]),
        (replace(FACTS, machine_secrets="protected"), True, []),
        (replace(FACTS, machine_secrets="disposable"), False, []),
        # The policy pack does not know the site.
        (FACTS, False, []),
    ],
)
def test_the_secrets_of_machines_go_by_the_sites_permission_alone(
    facts: SiteFacts, protected: bool, broken: list[str]
) -> None:
    _secret_goes(IDENTITY, facts, protected, broken)


@pytest.mark.parametrize(
    ("keeping", "protected", "broken"),
    [("protected", False, ["protect-stateful"]), ("protected", True, []), ("disposable", False, []), (None, False, [])],
)
def test_so_does_the_pepper_of_the_directory(keeping: Keeping | None, protected: bool, broken: list[str]) -> None:
    """Whatever the site sets for its machines."""
    for of_machines in ("protected", "disposable"):
        _secret_goes(PEPPER, replace(FACTS, pepper=keeping, machine_secrets=of_machines), protected, broken)


def _secret_goes(holder: Holder, facts: SiteFacts, protected: bool, broken: list[str]) -> None:
    there = [
        Resource(type="command:local:Command", name=name, body={}, protected=protected)
        for name in (holder.name, "machines-nodes-kubeconfig")
    ]
    broken_rules = violations(there, facts, RULES)
    assert [violation.rule for violation in broken_rules] == broken
    assert all(holder.name in violation.resource and holder.permission in violation.fix for violation in broken_rules)


@pytest.mark.parametrize(
    "image", ["a/b@sha256:" + "0" * 64, "a/b:v1.2.3", "a:5000/b:1.2-rc1", "a/b:v1.2@sha256:" + "a" * 64]
)
def test_exact_images_pass(image: str) -> None:
    """12: tags that are a release, or digests."""
    objects = bodies()
    objects["deployment"]["spec"]["template"]["spec"]["containers"][0]["image"] = image
    assert violations(resources(objects), FACTS, RULES) == []


def test_a_listed_workload_may_use_its_host() -> None:
    objects = bodies()
    objects["deployment"]["spec"]["template"]["spec"]["hostNetwork"] = True
    facts = SiteFacts(name="test", host_access=("Deployment models/chat",))
    assert violations(resources(objects), facts, RULES) == []


def test_a_chart_counts_as_a_source() -> None:
    chart = Resource(
        type="kubernetes:helm.sh/v3:Release", name="eg", body={"chart": "oci://docker.io/eg", "name": "eg"}
    )
    broken = violations([chart], SOVEREIGN, RULES)
    assert [violation.rule for violation in broken] == ["sovereign-registries"]
    foreign = {"chart": "eg", "repositoryOpts": {"repo": "https://charts.example.org"}}
    [violation] = violations([Resource(type=chart.type, name="eg", body=foreign)], SOVEREIGN, RULES)
    assert "'https://charts.example.org/eg' is not in a registry" in violation.problem
    assert "charts.mirror" in violation.fix
    for inside in (
        {"chart": "oci://registry.internal/eg"},
        {"chart": "eg", "repositoryOpts": {"repo": "https://registry.internal/charts/"}},
        {"chart": "./charts/eg-v1.tgz"},
        {"chart": "/srv/charts/eg-v1.tgz"},
    ):
        assert violations([Resource(type=chart.type, name="eg", body=inside)], SOVEREIGN, RULES) == []


@pytest.mark.parametrize("kind", ["Prometheus", "Alertmanager"])
def test_what_an_operator_makes_pods_of_is_held_to_the_rules_of_pods(kind: str) -> None:
    def broken(image: str, cpu: str | None = "1") -> list[str]:
        spec = {"image": image, "resources": {"requests": {"cpu": cpu}} if cpu else {}}
        body = {"apiVersion": "monitoring.coreos.com/v1", "kind": kind, "metadata": {"name": "a"}, "spec": spec}
        measuring = Resource(type=f"kubernetes:monitoring.coreos.com/v1:{kind}", name="a", body=body)
        return [violation.rule for violation in violations([measuring], SOVEREIGN, RULES)]

    assert broken("registry.internal/prometheus:v3.1.0") == []
    assert broken("quay.io/prometheus:v3.1.0") == ["sovereign-registries"]
    assert broken("registry.internal/prometheus:latest") == ["image-pinned"]
    assert broken("registry.internal/prometheus:v3.1.0", None) == ["requests-set"]


def test_the_order_of_resources_changes_nothing() -> None:
    objects = bodies()
    for case in BROKEN.values():
        case.change(objects) if case.facts is FACTS else None
    there = resources(objects, protected=False)
    assert violations(there, FACTS, RULES) == violations(there[::-1], FACTS, RULES[::-1])


def test_a_section_that_is_not_known_yet_is_no_crash() -> None:
    """A section may be an output of another resource; the rule says that it could not look."""
    objects = bodies()
    objects["deployment"]["spec"] = HIDDEN
    noted = violations(resources(objects), FACTS, RULES)
    assert {violation.level for violation in noted} == {"advice"}
    assert all("could not look" in violation.problem for violation in noted)


def test_a_resource_that_cannot_be_read_does_not_hide_the_others() -> None:
    objects = bodies()
    BROKEN["no-plaintext-secret", "variable"].change(objects)
    opaque = {**objects["secret"], "metadata": {"name": "opaque", "namespace": "models"}, "stringData": "not known yet"}
    noted = violations(resources({**objects, "opaque": opaque}), FACTS, RULES)
    assert [(violation.level, violation.resource) for violation in noted] == [
        ("error", "Deployment models/chat"),
        ("advice", "Secret models/opaque"),
    ]
    assert "could not look" in noted[1].problem


def test_an_object_without_a_part_that_rules_read_is_no_crash() -> None:
    bare = Resource(type="kubernetes:core/v1:Namespace", name="bare", body={"kind": "Namespace"})
    noted = violations([*resources(bodies()), bare], FACTS, RULES)
    assert {(violation.level, violation.resource) for violation in noted} == {
        ("advice", "kubernetes:core/v1:Namespace bare")
    }
