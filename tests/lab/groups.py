"""Which lab tests run together: those of one group share a worker, in their order, and so a lab.

Tests of the running platform are cut in groups, each with a platform of its own: what changes the site and puts it
back, on a platform that an earlier program has made; what sends requests, and what decides about callers; what needs
the checked-in site with all its parts; what a platform does not survive; where faults are injected; whose engines are
real; whose parts begin at earlier versions; whose replicas span nodes; whose volume grows; and whose edits are recorded
beside a canary. Of all others each module is a group.
"""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).parent

SITE_GROUPS = {
    "site-changes": (
        # First, since it begins with an earlier program.
        "test_older_program",
        "test_pulumi_day_two",
        "test_drift",
        "test_closed_door",
        "test_deleted_policies",
        "test_tenants",
        "test_weights",
        "test_weights_on_nodes",
        "test_ranking",
        "test_backend_deletions",
        "test_node_added",
        "test_picker_handover",
        "test_killed_parts",
        "test_rolling_update",
        "test_request_log",
        "test_log_store",
        "test_traces",
        "test_upgrade_path",
        "test_certificates",
        "test_acme",
        "test_live_checks",
        "test_lost_state",
        # Last, since it replaces keys.
        "test_pulumi_secrets",
    ),
    "site-serves": (
        "test_host_untouched",
        "test_answers",
        "test_identity",
        "test_aliases",
        "test_network_policies",
        "test_openai_client",
        "test_guide_for_tenants",
        "test_protocol_errors",
        "test_http2_frames",
        "test_kept_secrets",
        "test_request_sizes",
        "test_reference_site",
        "test_sitectl_on_the_engine",
        "test_pulumi_mistakes",
        "test_parallel_streams",
        "test_model_limits",
        "test_full_engine",
        "test_twin",
        "test_exposed_metrics",
        "test_picker",
        "test_slow_clients",
        "test_long_streams",
        # What these decide about callers is put back.
        "test_tiers",
        "test_tier_queues",
        "test_limits",
        "test_gatekeeper",
        "test_canary",
        "test_fifty_rollouts",
        "test_dedicated_site",
        "test_adapters",
        "test_usage_ledger",
        "test_portal",
    ),
    # Its weights' claim grows, and no claim shrinks.
    "site-adapters": ("test_many_adapters",),
    "site-measured": (
        # First, while no test has touched it or spent any of the error budget.
        "test_no_drift",
        "test_dashboards",
        "test_alerts_in_force",
        "test_live_monitoring",
        "test_lab_certificate",
        "test_documented_commands",
        "test_calibrated",
        "test_autoscaling",
        "test_scaled_to_zero",
        # Its alert goes on for a while.
        "test_stalled_replica",
        # Last, since it stops to measure.
        "test_monitoring",
    ),
    "site-ends": ("test_faults_up", "test_talos_roll"),
    "site-failures": ("test_failure_modes",),
    "site-vllm": ("test_real_vllm", "test_real_vllm_rolls"),
    "site-walk": ("test_version_walk",),
    "site-spans": ("test_replicas_over_nodes",),
    "site-canaries": ("test_recorded_canaries",),
}
# Groups whose site is the checked-in one with all its parts; the others' is plain (plain_site.py), and up sooner.
MEASURED = ("site-measured", "site-failures", "site-walk")
# Groups whose replicas are real engines, of one model.
REAL_ENGINES = ("site-vllm",)
# The modules of a package that has one lab for all of them.
_ONE_LAB = ("runner",)
# What takes longest begins first, so that no worker is left alone with it at the end.
_LONG = (*SITE_GROUPS, "prod/test_prod_walk", "cluster/test_cluster_survival", "cluster_program/test_cluster_members")
_SITE_ORDER = {module: (group, place) for group, all_ in SITE_GROUPS.items() for place, module in enumerate(all_)}


def group_of(path: Path) -> str:
    """Name of the group of a test module. Raises KeyError for a module of site/ that is in no group."""
    module = path.relative_to(_HERE).with_suffix("")
    folder = module.parts[0]
    if folder == "site":
        return _SITE_ORDER[module.name][0]
    return folder if folder in _ONE_LAB else str(module)


def rank_of(path: Path) -> tuple[int, str, int]:
    """Sorts modules: long groups first, and those of a platform in the order in which they are listed above."""
    group = group_of(path)
    rank = _LONG.index(group) if group in _LONG else len(_LONG)
    return rank, group, _SITE_ORDER[path.stem][1] if group in SITE_GROUPS else 0
