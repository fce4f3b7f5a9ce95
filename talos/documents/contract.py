"""Version contracts: which shape of machine config a Talos version reads. One is supported; others are added here."""

from __future__ import annotations

import re
from dataclasses import dataclass

from talos.documents.problems import ConfigError


@dataclass(frozen=True)
class Contract:
    """The shape of one Talos minor version: its name, every document kind that its loader knows, and Kubernetes.

    `kubernetes` are the first and the last minor version of Kubernetes 1 that it runs.
    """

    name: str
    kinds: frozenset[str]
    kubernetes: tuple[int, int]


_V1_13_KINDS = """
v1alpha1 BlackholeRouteConfig BondConfig BridgeConfig DHCPv4Config DHCPv6Config DummyLinkConfig EnvironmentConfig
EthernetConfig EventSinkConfig ExistingVolumeConfig ExtensionServiceConfig ExternalVolumeConfig HCloudVIPConfig
HostnameConfig ImageVerificationConfig KmsgLogConfig KubeSpanConfig KubeSpanEndpointsConfig Layer2VIPConfig
LinkAliasConfig LinkConfig NetworkDefaultActionConfig NetworkRuleConfig OOMConfig PCIDriverRebindConfig
RawVolumeConfig RegistryAuthConfig RegistryMirrorConfig RegistryTLSConfig ResolverConfig RoutingRuleConfig
SideroLinkConfig StaticHostConfig SwapVolumeConfig TCPProbeConfig TimeSyncConfig TrustedRootsConfig UserVolumeConfig
VLANConfig VRFConfig VolumeConfig WatchdogTimerConfig WireguardConfig ZswapConfig
"""

V1_13 = Contract(name="v1.13", kinds=frozenset(_V1_13_KINDS.split()), kubernetes=(31, 36))

CONTRACTS = {V1_13.name: V1_13}


def contract_of(talos_version: str) -> Contract:
    """The contract of a Talos version such as `v1.13.9`; ConfigError for a version whose shape is not supported."""
    match = re.match(r"v(\d+\.\d+)(?:\.|$)", talos_version, re.ASCII)
    contract = CONTRACTS.get(f"v{match.group(1)}") if match else None
    if contract is None:
        raise ConfigError(
            f"Talos {talos_version} has no supported machine-config contract; supported: {', '.join(CONTRACTS)}",
            fix="choose a Talos version of a supported contract: later ones move settings into other documents",
        )
    return contract
