"""The one list of rules. Stack transform, tests and policy pack use it unchanged.

Not here, because nothing of today's site could satisfy them: no tenant without a quota, no route without a cap on
max_tokens and context.
"""

from __future__ import annotations

from policy import boundaries, pods, serving
from policy.model import Rule

RULES: tuple[Rule, ...] = (
    Rule(name="image-pinned", says="Every image is a release tag or a digest.", check=pods.image_pinned),
    Rule(
        name="image-locked",
        says="Every image of a site with locked images is in the project's lock, and named by its digest.",
        check=pods.image_locked,
    ),
    Rule(name="gpu-limits", says="A container's GPU limit is its GPU request.", check=pods.gpu_limits),
    Rule(name="requests-set", says="Every container requests something.", check=pods.requests_set),
    Rule(
        name="probes-fit",
        says="A model server has three probes, and the startup probe outlasts the predicted load.",
        check=pods.probes_fit,
    ),
    Rule(
        name="grace-outlasts-prestop",
        says="A pod's grace period is longer than its preStop.",
        check=pods.grace_outlasts_prestop,
    ),
    Rule(
        name="no-host-access",
        says="No pod uses its host's files, network, processes or privileges, unless it is listed; a volume on nodes' "
        "own disks is for one claim.",
        check=pods.no_host_access,
    ),
    Rule(
        name="service-account-token",
        says="A pod without a service account of its own mounts no token.",
        check=pods.service_account_token,
    ),
    Rule(
        name="no-plaintext-secret",
        says="No secret is in plain text: not in a Secret, a variable or an argument.",
        check=pods.no_plaintext_secret,
    ),
    Rule(
        name="disruption-budget",
        says="A model with several replicas has a budget that lets some go, and never all of them.",
        check=serving.disruption_budget,
    ),
    Rule(
        name="spread",
        says="A model's replicas are spread over nodes, as far as there is room.",
        check=serving.spread,
    ),
    Rule(
        name="update-leaves-a-replica",
        says="An update of a model leaves a replica that serves.",
        check=serving.update_leaves_a_replica,
    ),
    Rule(
        name="shared-volume",
        says="A volume of several replicas can be mounted by several nodes.",
        check=serving.shared_volume,
    ),
    Rule(
        name="protect-stateful",
        says="What holds data is protected from deletion, or the site states that it may go.",
        check=serving.protect_stateful,
    ),
    Rule(
        name="gateway-authenticates",
        says="Every gateway of models asks for a key and denies by default.",
        check=serving.gateway_authenticates,
    ),
    Rule(
        name="security-at-the-gateway",
        says="Keys and permissions are checked at the Gateway, and no route has a policy of its own.",
        check=boundaries.security_at_the_gateway,
    ),
    Rule(name="route-timeouts", says="Every route has a request timeout of its own.", check=serving.route_timeouts),
    Rule(
        name="route-leads-somewhere",
        says="Every route leads to a pool or backend that the site declares.",
        check=serving.route_leads_somewhere,
    ),
    Rule(
        name="namespace-security",
        says="Every namespace enforces a level of pod security; privileged ones are listed.",
        check=boundaries.namespace_security,
    ),
    Rule(
        name="namespace-denies-ingress",
        says="Every namespace denies ingress by default.",
        check=boundaries.namespace_denies_ingress,
    ),
    Rule(
        name="no-wildcard-permissions",
        says="No role grants everything.",
        check=boundaries.no_wildcard_permissions,
    ),
    Rule(
        name="sovereign-registries",
        says="Images and charts of a sovereign site come from its own registries.",
        check=boundaries.sovereign_registries,
    ),
    Rule(
        name="sovereign-egress", says="Nothing of a sovereign site leads out of it.", check=boundaries.sovereign_egress
    ),
)


def names() -> list[str]:
    """Names of all rules, as waivers write them."""
    return [rule.name for rule in RULES]
