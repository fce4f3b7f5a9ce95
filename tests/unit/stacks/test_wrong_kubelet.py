"""Kubelet configurations that Talos or the kubelet would refuse, or that open a node: each is refused."""

from __future__ import annotations

from typing import Any

import pytest

from stacks.facts import kubelet_fields
from stacks.plan.site_plan import plan_values
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import M, Wrong, changed, refused_and_fixed

K = f"{M}.kubelet_config"
OPEN = {"authentication": {"anonymous": {"enabled": True}}}


def wrong(config: dict[str, Any], key: str, what: str, fixed: dict[str, Any] | None = None) -> Wrong:
    return Wrong({K: config}, f"{K}.{key}", what, None if fixed is None else {K: fixed})


WRONG: dict[str, Wrong] = {
    "unknown field": wrong({"nope": 1}, "nope", "is no field of the kubelet's configuration", {}),
    "misspelt field": wrong({"maxpods": 110}, "maxpods", "did you mean 'maxPods'?", {"maxPods": 110}),
    "number in quotes": wrong({"maxPods": "110"}, "maxPods", "a whole number without quotes", {"maxPods": 110}),
    "no pods": wrong({"maxPods": 0}, "maxPods", "allowed: 16 or more", {"maxPods": 16}),
    "too few pods": wrong({"maxPods": 5}, "maxPods", "allowed: 16 or more"),
    "pods on one processor of a node": wrong(
        {"topologyManagerPolicy": "single-numa-node"},
        "topologyManagerPolicy",
        "glm-5-1 takes more than 4 GPUs",
        {"topologyManagerPolicy": "restricted"},
    ),
    "own DNS server": wrong({"clusterDNS": ["10.80.0.99"]}, "clusterDNS", "decided by networks.services", {}),
    "own domain": wrong({"clusterDomain": "other.local"}, "clusterDomain", "use networks.dns_domain", {}),
    "own port": wrong({"port": 9999}, "port", "decided by Talos", {}),
    "own static pods": wrong({"staticPodPath": "/x"}, "staticPodPath", "decided by Talos"),
    "own kind": wrong({"kind": "Foo"}, "kind", "is written by Talos", {}),
    "own taints": wrong({"registerWithTaints": []}, "registerWithTaints", "the program writes it from them"),
    "no node": wrong({"registerNode": False}, "registerNode", "decided by nodes"),
    "reserved memory that is none": wrong(
        {"systemReserved": {"memory": "abc"}},
        "systemReserved.memory",
        "no Kubernetes quantity",
        {"systemReserved": {"memory": "1Gi"}},
    ),
    "reserved processors as a number": wrong(
        {"systemReserved": {"cpu": 2}},
        "systemReserved.cpu",
        "a quantity in quotes; got 2",
        {"systemReserved": {"cpu": "2"}},
    ),
    "fields as a list": Wrong({K: [1]}, K, "instead of a list"),
    "reserved resource that is none": wrong(
        {"kubeReserved": {"mem": "1Gi"}}, "kubeReserved.mem", "did you mean 'memory'?"
    ),
    "eviction at all memory": wrong(
        {"evictionHard": {"memory.available": "100%"}},
        "evictionHard.memory.available",
        "for no threshold at all",
        {"evictionHard": {"memory.available": "10%"}},
    ),
    "eviction signal that is none": wrong(
        {"evictionHard": {"memory.free": "1Gi"}}, "evictionHard.memory.free", "no eviction signal"
    ),
    "soft eviction without a time": wrong(
        {"evictionSoft": {"memory.available": "1Gi"}},
        "evictionSoft.memory.available",
        "evictionSoftGracePeriod",
        {"evictionSoft": {"memory.available": "1Gi"}, "evictionSoftGracePeriod": {"memory.available": "1m30s"}},
    ),
    "critical pods longer than all": wrong(
        {"shutdownGracePeriod": "30s", "shutdownGracePeriodCriticalPods": "1m"},
        "shutdownGracePeriodCriticalPods",
        "which is 30s",
        {"shutdownGracePeriod": "2m", "shutdownGracePeriodCriticalPods": "1m"},
    ),
    "all pods shorter than Talos's own time for critical ones": wrong(
        {"shutdownGracePeriod": "5s"}, "shutdownGracePeriod", "shutdownGracePeriodCriticalPods, which is 10s"
    ),
    "time without a unit": wrong({"syncFrequency": "60"}, "syncFrequency", "a time with its unit"),
    "policy that is none": wrong(
        {"cpuManagerPolicy": "Static"}, "cpuManagerPolicy", "allowed: none, static", {"cpuManagerPolicy": "static"}
    ),
    "image thresholds that cross": wrong(
        {"imageGCHighThresholdPercent": 70}, "imageGCHighThresholdPercent", "imageGCLowThresholdPercent, which is 80"
    ),
    "read-only port": wrong({"readOnlyPort": 10255}, "readOnlyPort", "answers everybody without a key", {}),
    "kubelet without authentication": wrong(OPEN, "authentication", "decided by Talos", {}),
    "kubelet without authorization": wrong({"authorization": {"mode": "AlwaysAllow"}}, "authorization", "Talos"),
    "gate that is none": wrong(
        {"featureGates": {"MemoryQos": True}}, "featureGates.MemoryQos", "write MemoryQoS", {"featureGates": {}}
    ),
    "gate that has one value": wrong(
        {"featureGates": {"NodeSwap": False}}, "featureGates.NodeSwap", "cannot be turned", {"featureGates": {}}
    ),
    "field of logging that is none": wrong(
        {"logging": {"verbose": 2}}, "logging.verbose", "did you mean 'verbosity'?", {"logging": {"verbosity": 2}}
    ),
    "field of logging in quotes": wrong({"logging": {"verbosity": "2"}}, "logging.verbosity", "without quotes"),
    "format of logging that is none": wrong({"logging": {"format": "xml"}}, "logging.format", "allowed: text, json"),
    "verbosity by file in JSON": wrong(
        {"logging": {"vmodule": [{"filePattern": "x", "verbosity": 3}]}},
        "logging.vmodule",
        "goes with format text alone",
        {"logging": {"format": "text", "vmodule": [{"filePattern": "x", "verbosity": 3}]}},
    ),
    "swap that is none": wrong(
        {"memorySwap": {"swapBehavior": "Unlimited"}}, "memorySwap.swapBehavior", "allowed: NoSwap, LimitedSwap"
    ),
    "a restart after too long": wrong(
        {"crashLoopBackOff": {"maxContainerRestartPeriod": "400s"}},
        "crashLoopBackOff.maxContainerRestartPeriod",
        "write 300s",
        {"crashLoopBackOff": {"maxContainerRestartPeriod": "300s"}},
    ),
    "traces of more than all": wrong(
        {"tracing": {"samplingRatePerMillion": 2000000}},
        "tracing.samplingRatePerMillion",
        "write 1000000",
        {"tracing": {"samplingRatePerMillion": 1000000}},
    ),
    **{
        f"traces to {endpoint}": wrong(
            {"tracing": {"endpoint": endpoint}},
            "tracing.endpoint",
            "write it like otel.site.example:4317",
            {"tracing": {"endpoint": right}},
        )
        for endpoint, right in (
            ("http://", "otel.site.example:4317"),
            ("https://otel.site.example:4317", "otel.site.example:4317"),
            ("otel.site.example:grpc", "dns:///otel.site.example:4317"),
        )
    },
    "user ids of a part": wrong(
        {"userNamespaces": {"idsPerPod": 70000}},
        "userNamespaces.idsPerPod",
        "write 65536",
        {"userNamespaces": {"idsPerPod": 65536}},
    ),
    "reserved memory by a text": wrong(
        {"reservedMemory": [{"numaNode": "0", "limits": {"memory": "1Gi"}}]},
        "reservedMemory.0.numaNode",
        "whole number",
    ),
    "reserved processors of a node's part": wrong(
        {"reservedMemory": [{"numaNode": 0, "limits": {"cpu": "1"}}]}, "reservedMemory.0.limits.cpu", "neither memory"
    ),
    "static memory without a reserve": wrong(
        {"memoryManagerPolicy": "Static"},
        "memoryManagerPolicy",
        "needs reservedMemory",
        {"memoryManagerPolicy": "None"},
    ),
    "a farewell of less than a second": wrong(
        {"shutdownGracePeriod": "500ms", "shutdownGracePeriodCriticalPods": "0s"},
        "shutdownGracePeriod",
        "less than a second",
        {"shutdownGracePeriod": "1s", "shutdownGracePeriodCriticalPods": "0s"},
    ),
    "two kinds of farewell": wrong(
        {"shutdownGracePeriodByPodPriority": [{"priority": 1, "shutdownGracePeriodSeconds": 5}]},
        "shutdownGracePeriodByPodPriority",
        "write shutdownGracePeriod: 0s",
        {
            "shutdownGracePeriodByPodPriority": [{"priority": 1, "shutdownGracePeriodSeconds": 5}],
            "shutdownGracePeriod": "0s",
            "shutdownGracePeriodCriticalPods": "0s",
        },
    ),
    "enforcement that is none": wrong({"enforceNodeAllocatable": ["all"]}, "enforceNodeAllocatable.0", "allowed: none"),
    "enforcement without a cgroup": wrong(
        {"enforceNodeAllocatable": ["pods", "system-reserved"]},
        "enforceNodeAllocatable.1",
        "needs systemReservedCgroup",
        {"enforceNodeAllocatable": ["pods", "system-reserved"], "systemReservedCgroup": "/system"},
    ),
    "no cgroups of pods": wrong({"cgroupsPerQOS": False}, "cgroupsPerQOS", "may hold none alone", {}),
    "processors that are none": wrong(
        {"reservedSystemCPUs": "a-b"}, "reservedSystemCPUs", "write it like 0-3", {"reservedSystemCPUs": "0-3"}
    ),
    "images that are old before they are young": wrong(
        {"imageMaximumGCAge": "1m"},
        "imageMaximumGCAge",
        "above imageMinimumGCAge, which is 2m",
        {"imageMaximumGCAge": "0s"},
    ),
    "images one after another and beside each other": wrong(
        {"serializeImagePulls": True, "maxParallelImagePulls": 2}, "maxParallelImagePulls", "serializeImagePulls"
    ),
    "no throttling": wrong({"memoryThrottlingFactor": 0}, "memoryThrottlingFactor", "write 0.9"),
    "logs watched all the time": wrong(
        {"containerLogMonitorInterval": "1s"}, "containerLogMonitorInterval", "write 3s", {}
    ),
    "memory in tiers without its gate": wrong(
        {"memoryReservationPolicy": "TieredReservation"},
        "memoryReservationPolicy",
        "needs the feature gate MemoryQoS",
        {"memoryReservationPolicy": "TieredReservation", "featureGates": {"MemoryQoS": True}},
    ),
    "setting of the whole node for pods": wrong(
        {"allowedUnsafeSysctls": ["vm.swappiness"]},
        "allowedUnsafeSysctls.0",
        "write it like net.core.somaxconn",
        {"allowedUnsafeSysctls": ["net.core.somaxconn", "kernel.msg*"]},
    ),
    "option of processors that is none": wrong(
        {"cpuManagerPolicyOptions": {"full-pcpu-only": "true"}},
        "cpuManagerPolicyOptions.full-pcpu-only",
        "did you mean 'full-pcpus-only'?",
    ),
    "logs without a size": wrong({"containerLogMaxSize": "ten"}, "containerLogMaxSize", "write it like 10Mi", {}),
    "more pods than a number holds": wrong({"maxPods": 99999999999}, "maxPods", "a whole number", {}),
    "a role's": Wrong(
        {f"{M}.roles.hgx.kubelet_config": {"nope": 1}}, f"{M}.roles.hgx.kubelet_config.nope", "is no field"
    ),
    "a node's": Wrong(
        {f"{M}.nodes.cp-1.kubelet_config": OPEN}, f"{M}.nodes.cp-1.kubelet_config.authentication", "Talos"
    ),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=list(WRONG))
def test_a_wrong_kubelet_is_refused_at_its_key_and_the_fix_mends_it(wrong: Wrong) -> None:
    refused_and_fixed(wrong)


def test_what_the_kubelet_takes_is_valid() -> None:
    config = {
        "maxPods": 250,
        "cpuManagerPolicy": "static",
        "topologyManagerPolicy": "restricted",
        "systemReserved": {"cpu": "2", "memory": "8Gi", "pid": "1000"},
        "evictionHard": {"memory.available": "5%", "nodefs.available": "0%"},
        "shutdownGracePeriod": "20m",
        "shutdownGracePeriodCriticalPods": "1m30s",
        "featureGates": {"MemoryQoS": True},
        "readOnlyPort": 0,
        "serverTLSBootstrap": True,
        "logging": {"verbosity": 2, "format": "json", "flushFrequency": "5s"},
        "staticPodURLHeader": {"X-Own": ["a"]},
        "reservedSystemCPUs": "0-3,8",
        "enforceNodeAllocatable": ["pods"],
        "crashLoopBackOff": {"maxContainerRestartPeriod": "60s"},
        "imageGCHighThresholdPercent": 90,
    }
    assert plan_values(changed(prod(), {K: config}), "site.yaml").site


def test_every_type_of_the_table_is_checked() -> None:
    table = kubelet_fields.load()
    assert len(table.kinds) + len(table.decisions) == len({*table.kinds, *table.decisions}) > 100
