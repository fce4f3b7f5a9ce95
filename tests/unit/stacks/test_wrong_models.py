"""Models, gateways and tenants that would fail in the API server or under load: each is refused."""

from __future__ import annotations

import pytest

from floor.spec import MOST_REPLICAS, MOST_SECONDS, MOST_STREAMS
from stacks.site.checks import crosschecks
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import M, Wrong, changed, refused_and_fixed

OVERRIDES = "models.qwen3-32b.overrides"
REASON = "somebody measured it"
# What any kind of GPU can serve.
ONE_SMALL_MODEL = {
    "models.glm-5-1": None,
    "models.qwen3-32b.load": None,
    "models.qwen3-32b.slo": None,
    "tenants.search.models": ["qwen3-32b"],
}
WRONG: dict[str, Wrong] = {
    # Gateway and firewall
    "firewall keeps the gateway's port shut": Wrong(
        {"gateway.port": 8443},
        f"{M}.firewall.load_balancer_ports",
        "does not open gateway.port, 8443",
        {f"{M}.firewall.load_balancer_ports": [443, 8443]},
    ),
    "firewall range beside the port": Wrong(
        {f"{M}.firewall.load_balancer_ports": ["30000-32767"]},
        f"{M}.firewall.load_balancer_ports",
        "got [30000-32767]",
        {f"{M}.firewall.load_balancer_ports": ["30000-32767", 443]},
    ),
    "firewall range from its end to its start": Wrong(
        {f"{M}.firewall.load_balancer_ports": ["500-80"]},
        f"{M}.firewall.load_balancer_ports",
        "write [443]",
        {f"{M}.firewall.load_balancer_ports": [443]},
    ),
    "firewall opens the kubelet to clients": Wrong(
        {f"{M}.firewall.load_balancer_ports": [443, 10250]},
        f"{M}.firewall.load_balancer_ports",
        "opens 10250, the port of the kubelet",
        {f"{M}.firewall.load_balancer_ports": [443]},
    ),
    "firewall opens the machines' API in place of the gateway": Wrong(
        {f"{M}.firewall.load_balancer_ports": [50000]},
        f"{M}.firewall.load_balancer_ports",
        "write [443]",
        {f"{M}.firewall.load_balancer_ports": [443]},
    ),
    "firewall opens every port": Wrong(
        {f"{M}.firewall.load_balancer_ports": ["1-65535"]},
        f"{M}.firewall.load_balancer_ports",
        "write [1-10249, 10251-49999, 50001-65535]",
        {f"{M}.firewall.load_balancer_ports": ["1-10249", "10251-49999", "50001-65535"]},
    ),
    "gateway at the port of the machines' API": Wrong(
        {"gateway.port": 50000, f"{M}.firewall.load_balancer_ports": [50000]},
        "gateway.port",
        "the port of Talos's API, for which admins is the key",
        {"gateway.port": 443, f"{M}.firewall.load_balancer_ports": [443]},
    ),
    "firewall opens etcd where control planes take pods": Wrong(
        {f"{M}.nodes.cp-1.schedulable": True, f"{M}.firewall.load_balancer_ports": ["443-3000"]},
        f"{M}.firewall.load_balancer_ports",
        "opens 2379, the port of etcd, which control planes alone need and 2380",
        {f"{M}.firewall.load_balancer_ports": ["443-2378", "2381-3000"]},
    ),
    "gateway at the port of the Kubernetes API where control planes take pods": Wrong(
        {
            f"{M}.nodes.cp-1.schedulable": True,
            "gateway.port": 6443,
            f"{M}.firewall.load_balancer_ports": [6443],
        },
        "gateway.port",
        "the port of the Kubernetes API, for which admins is the key",
        {"gateway.port": 443, f"{M}.firewall.load_balancer_ports": [443]},
    ),
    "firewall parts etcd": Wrong(
        {f"{M}.firewall.control_planes": ["10.5.0.12/31"]},
        f"{M}.firewall.control_planes",
        "does not hold cp-1 (10.5.0.11)",
    ),
    "Envoy's own port": Wrong(
        {"gateway.port": 19001, f"{M}.firewall.load_balancer_ports": [19001, 443]},
        "gateway.port",
        "taken in each Envoy pod",
        {"gateway.port": 443},
    ),
    # Models and gateway
    "family of another GPU": Wrong(
        {"models.qwen3-32b.server.gpu_family": "blackwell"},
        "models.qwen3-32b.server.gpu_family",
        "allowed: hopper",
        {"models.qwen3-32b.server.gpu_family": "hopper"},
    ),
    "GPU of another maker": Wrong(
        {"cluster.gpu": "mi300x"}, "cluster.gpu", "is made by AMD", {"cluster.gpu": "h200-sxm"}
    ),
    "cards in machines whose role is a board with NVSwitches": Wrong(
        {**ONE_SMALL_MODEL, "cluster.gpu": "l40s", "models.qwen3-32b.server.gpu_family": "ada-lovelace"},
        "cluster.gpu",
        "is on no HGX board, which role hgx of hgx-1 and 3 more means",
        {"cluster.gpu": "h200-sxm", "models.qwen3-32b.server.gpu_family": "hopper"},
    ),
    "trays of Grace in machines whose role is a board with NVSwitches": Wrong(
        {**ONE_SMALL_MODEL, "cluster.gpu": "gb200", "models.qwen3-32b.server.gpu_family": "blackwell"},
        "cluster.gpu",
        "allowed: a100-80gb, b200, h100-sxm, h200-sxm",
        {"cluster.gpu": "b200"},
    ),
    "simulator in production": Wrong(
        {"models.qwen3-32b.server.engine": "simulator"},
        "models.qwen3-32b.server.engine",
        "random words",
        {"purpose": "trial"},
    ),
    "simulator where no purpose is written": Wrong(
        {"purpose": None, "models.qwen3-32b.server.engine": "simulator"},
        "models.qwen3-32b.server.engine",
        "random words",
        {"purpose": "trial"},
    ),
    "request cut before its stream": Wrong(
        {"models.glm-5-1.request_timeout_s": 599},
        "models.glm-5-1.request_timeout_s",
        "shorter than a stream may be, 600 s",
        {"models.glm-5-1.request_timeout_s": 600},
    ),
    "stream cut before its first token": Wrong(
        {"gateway.stream_idle_timeout_s": 60, "models.glm-5-1.slo.ttft_p95_ms": 90_000},
        "gateway.stream_idle_timeout_s",
        "cut before the first token that models.glm-5-1.slo.ttft_p95_ms allows",
        {"gateway.stream_idle_timeout_s": 90},
    ),
    "picker without weights": Wrong(
        {f"models.glm-5-1.pool.{key}_weight": 0 for key in ("prefix", "queue", "kv")},
        "models.glm-5-1.pool",
        "every weight as 0",
    ),
    "picker without CPU": Wrong({"models.glm-5-1.pool.cpu": "0"}, "models.glm-5-1.pool.cpu", "CPU above 0"),
    "picker with thousandths of a byte": Wrong(
        {"models.glm-5-1.pool.memory": "8000m"},
        "models.glm-5-1.pool.memory",
        "quantity of memory",
        {"models.glm-5-1.pool.memory": "8Gi"},
    ),
    "requests longer than the context": Wrong(
        {"models.qwen3-32b.server.typical_request_tokens": 10**6},
        "models.qwen3-32b.server.typical_request_tokens",
        "more than the context of qwen3-32b-fp8",
        {"models.qwen3-32b.server.typical_request_tokens": 40_960},
    ),
    "tenant without a model": Wrong({"tenants.search.models": []}, "tenants.search.models", "empty"),
    "price without end": Wrong({"prices.gpu_hour": float("1e400")}, "prices.gpu_hour", "not a number"),
    "price that is no number": Wrong({"prices.gpu_hour": float("nan")}, "prices.gpu_hour", "not a number"),
    "load without end": Wrong(
        {"models.glm-5-1.load.requests_per_s": float("inf")}, "models.glm-5-1.load.requests_per_s", "not a number"
    ),
    "replacement below zero": Wrong(
        {f"{M}.nodes.hgx-1.replacement": -1}, f"{M}.nodes.hgx-1.replacement", "out of range"
    ),
    "keys of two tenants that become one resource": Wrong(
        {
            "tenants.a": {"models": ["qwen3-32b"], "keys": {"b-c": {}}},
            "tenants.a-b": {"models": ["qwen3-32b"], "keys": {"c": {}}},
        },
        "tenants.a-b.keys.c",
        "and tenants.a.keys.b-c would both be the resource a-b-c",
        {"tenants.a-b.keys": {"d": {}}},
    ),
    "price beyond reason": Wrong(
        {"prices.gpu_hour": 1e300}, "prices.gpu_hour", "out of range", {"prices.gpu_hour": 3.5}
    ),
    "port that is none": Wrong({"gateway.port": 0}, "gateway.port", "out of range", {"gateway.port": 443}),
    "Envoy's own port, which the firewall keeps shut": Wrong(
        {"gateway.port": 19000}, "gateway.port", "taken in each Envoy pod", {"gateway.port": 443}
    ),
    **{
        f"{key} that is no name": Wrong({key: value}, key, "not a name of lower-case letters", {key: right})
        for key, value, right in (
            ("storage.storage_class", "longhorn..fast", "longhorn.fast"),
            ("gateway.certificate_secret", "inference.-tls", "inference.tls"),
        )
    },
    "streams longer than a node may take to drain": Wrong(
        {
            "models.glm-5-1.server.longest_stream_s": MOST_SECONDS,
            "models.glm-5-1.request_timeout_s": MOST_SECONDS,
            f"{M}.drain_timeout_s": MOST_SECONDS,
        },
        "models.glm-5-1.server.longest_stream_s",
        "write 99939 or less",
        {"models.glm-5-1.server.longest_stream_s": 99_939},
    ),
    "streams of the gateway longer than a node may take to drain": Wrong(
        {"gateway.longest_stream_s": 99_940},
        "gateway.longest_stream_s",
        "write 99939 or less",
        {"gateway.longest_stream_s": 99_939, f"{M}.drain_timeout_s": MOST_SECONDS},
    ),
    "model with a name that is none": Wrong(
        {"models.Qwen3-32B": prod()["models"]["qwen3-32b"], "models.qwen3-32b": None},
        "models.Qwen3-32B",
        "rename it, for example to qwen3-32b",
        {"models.qwen3-32b": prod()["models"]["qwen3-32b"], "models.Qwen3-32B": None},
    ),
    "tier with a name that is none": Wrong(
        {"tiers.Batch": {"priority": -10}, "tiers.batch": None},
        "tiers.Batch",
        "rename it, for example to batch",
        {"tiers.batch": {"priority": -10}, "tiers.Batch": None},
    ),
    "tenant of all models": Wrong(
        {"tenants.search.models": ["*"]},
        "tenants.search.models",
        "fix: take it out of this list, and name each model",
        {"tenants.search.models": ["glm-5-1", "qwen3-32b"]},
    ),
    "tenant of an empty tier": Wrong(
        {"tenants.search.tier": ""}, "tenants.search.tier", "fix: take the key out", {"tenants.search.tier": None}
    ),
    **{
        f"cluster by {value.partition(':')[0]}": Wrong(
            {"cluster": {"kubeconfig": value}, "addresses": {}},
            "cluster.kubeconfig",
            "not the path of a file",
            {"cluster": {"kubeconfig": "kubeconfig.berlin"}},
        )
        for value in ("https://10.5.0.10:6443", "apiVersion: v1\nkind: Config")
    },
    # Figures that a site sets by hand
    "context of one token": Wrong(
        {f"{OVERRIDES}.max_model_len": {"value": 1, "reason": REASON}},
        f"{OVERRIDES}.max_model_len",
        "would refuse the declared load",
        {f"{OVERRIDES}.max_model_len.value": 7000},
    ),
    "context below the declared prompts": Wrong(
        {f"{OVERRIDES}.max_model_len": {"value": 5000, "reason": REASON}},
        f"{OVERRIDES}.max_model_len",
        "write at least 7,000",
        {"models.qwen3-32b.load.prompt_tokens": {"p50": 1000, "p95": 4000}},
    ),
    "start budget beyond int32": Wrong(
        {f"{OVERRIDES}.start_budget_s": {"value": 10**11, "reason": REASON}},
        f"{OVERRIDES}.start_budget_s",
        "Kubernetes takes no such time",
        {f"{OVERRIDES}.start_budget_s.value": 10**9},
    ),
    "download that never ends": Wrong(
        {"storage.weights.download_bytes_per_s": 1},
        "storage.weights.download_bytes_per_s",
        "out of range",
        {"storage.weights.download_bytes_per_s": 100_000},
    ),
    "answers shorter than the declared ones": Wrong(
        {f"{OVERRIDES}.gateway_max_tokens": {"value": 1, "reason": REASON}},
        f"{OVERRIDES}.gateway_max_tokens",
        "answers that the declared load has would be cut",
        {f"{OVERRIDES}.gateway_max_tokens.value": 1000},
    ),
    "reason of blanks": Wrong(
        {f"{OVERRIDES}.max_num_seqs": {"value": 64, "reason": " " * 10}},
        f"{OVERRIDES}.max_num_seqs.reason",
        "too short",
        {f"{OVERRIDES}.max_num_seqs.reason": REASON},
    ),
    "override that causes the misfit": Wrong(
        {f"{OVERRIDES}.max_num_seqs": {"value": 1, "reason": REASON}},
        "models.qwen3-32b.server.gpus",
        "fix: leave max_num_seqs to the proof",
        {f"{OVERRIDES}.max_num_seqs": None},
    ),
    "more requests than tokens of a step": Wrong(
        {
            "models.qwen3-32b.load": None,
            "models.qwen3-32b.slo": None,
            "models.qwen3-32b.server.long_prefill_token_threshold": None,
            f"{OVERRIDES}.max_num_seqs": {"value": 46, "reason": REASON},
            f"{OVERRIDES}.max_num_batched_tokens": {"value": 32, "reason": REASON},
        },
        "models.qwen3-32b.server.gpus",
        "fix: lower max_num_seqs to 32",
        {f"{OVERRIDES}.max_num_seqs.value": 32},
    ),
    "target beyond every timeout": Wrong(
        {"models.qwen3-32b.slo.ttft_p95_ms": 1e9},
        "models.qwen3-32b.slo.ttft_p95_ms",
        "at most 99999000",
        {"models.qwen3-32b.slo.ttft_p95_ms": 2000},
    ),
    "timeout of a long promise": Wrong(
        {"models.qwen3-32b.slo.ttft_p95_ms": 9e7, "gateway.stream_idle_timeout_s": 90_000},
        "models.qwen3-32b.request_timeout_s",
        "write 90000 or more",
        {"models.qwen3-32b.request_timeout_s": 90_000},
    ),
    # What no node has room for
    **{
        f"picker of {value} {key}": Wrong(
            {f"models.glm-5-1.pool.{key}": value},
            f"models.glm-5-1.pool.{key}",
            f"write it like {right}",
            {f"models.glm-5-1.pool.{key}": right.strip('"').partition('"')[0]},
        )
        for key, value, right in (
            ("cpu", "1000", "500m"),
            ("cpu", "64001m", "500m"),
            ("cpu", 0, '"500m", in quotes'),
            ("cpu", 1000, '"500m", in quotes'),
            ("memory", "100000Pi", "8Gi"),
            ("memory", "2Ti", "8Gi"),
            ("memory", 8, '"8Gi", in quotes'),
        )
    },
    "Envoy of a TiB": Wrong(
        {"gateway.memory_mib": 2**20}, "gateway.memory_mib", "out of range", {"gateway.memory_mib": 4096}
    ),
    "more Envoys than nodes take pods": Wrong(
        {"gateway.replicas": 500}, "gateway.replicas", "at most 220", {"gateway.replicas": 2}
    ),
    # Bounds of the CRDs
    "replicas beyond int32": Wrong({"gateway.replicas": MOST_REPLICAS + 1}, "gateway.replicas", "out of range"),
    "model replicas beyond int32": Wrong(
        {"models.qwen3-32b.server.replicas": MOST_REPLICAS + 1}, "models.qwen3-32b.server.replicas", "out of range"
    ),
    "idle time of six digits": Wrong(
        {"gateway.stream_idle_timeout_s": MOST_SECONDS + 1},
        "gateway.stream_idle_timeout_s",
        "out of range",
        {"gateway.stream_idle_timeout_s": MOST_SECONDS},
    ),
    "request time of six digits": Wrong(
        {"models.qwen3-32b.request_timeout_s": MOST_SECONDS + 1},
        "models.qwen3-32b.request_timeout_s",
        "out of range",
        {"models.qwen3-32b.request_timeout_s": MOST_SECONDS},
    ),
    "streams beyond uint32": Wrong(
        {"gateway.max_parallel_streams": MOST_STREAMS + 1}, "gateway.max_parallel_streams", "out of range"
    ),
    "keys beyond one rule": Wrong(
        {"tenants.search.keys": {f"k-{n}": {} for n in range(257)}}, "tenants.search.keys", "too many"
    ),
    "models cut off": Wrong({"models": None, "tenants": {}}, "models", "missing", {"models": {}}),
    "tenants cut off": Wrong({"tenants": None}, "tenants", "missing", {"tenants": {}}),
    "every prompt token in the cache": Wrong(
        {"models.glm-5-1.load.prefix_hit": 1},
        "models.glm-5-1.load.prefix_hit",
        "counts every prompt as computed before",
        {"models.glm-5-1.load.prefix_hit": 0.95},
    ),
    "cached prompts of an encoder": Wrong(
        {
            "models.glm-5-1.catalogue": "bge-m3",
            "models.glm-5-1.server.typical_request_tokens": None,
            "models.glm-5-1.server.long_prefill_token_threshold": None,
            "models.glm-5-1.server.gpus": None,
            "models.glm-5-1.slo": {"ttft_p95_ms": 900},
            "models.glm-5-1.load": {"requests_per_s": 2, "prompt_tokens": {"p50": 300, "p95": 900}, "prefix_hit": 0.5},
        },
        "models.glm-5-1.load.prefix_hit",
        "bge-m3 keeps none",
        {"models.glm-5-1.load": {"requests_per_s": 2, "prompt_tokens": {"p50": 300, "p95": 900}}},
    ),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=list(WRONG))
def test_a_wrong_site_is_refused_at_its_key_and_the_fix_mends_it(wrong: Wrong) -> None:
    refused_and_fixed(wrong)


def test_volumes_of_longhorn_without_its_disks_are_warned_of() -> None:
    assert crosschecks.warnings(prod()) == []
    (warning,) = crosschecks.warnings(changed(prod(), {f"{M}.hgx.storage": None}))
    assert (warning.key, warning.fix[:36]) == ("storage.storage_class", "add cluster.machines.hgx.storage wit")
    other = {f"{M}.hgx.storage": None, "storage.storage_class": "nfs", "monitoring.storage_class": "nfs"}
    assert crosschecks.warnings(changed(prod(), other)) == []


def test_a_tier_that_requests_to_rank_do_not_have_is_warned_of() -> None:
    ranker = {"models.rank": {"catalogue": "bge-reranker-v2-m3"}, "tenants.archive.models": ["qwen3-32b", "rank"]}
    (warning,) = crosschecks.warnings(changed(prod(), ranker))
    assert warning.key == "tenants.archive.tier"
    assert "no effect on requests to rank" in warning.what
    fixed = {"tenants.archive.models": ["qwen3-32b"], "tenants.search.models": ["qwen3-32b", "glm-5-1", "rank"]}
    assert crosschecks.warnings(changed(prod(), {**ranker, **fixed})) == []
