"""Documents with one mistake each: what is wrong, where we say it is, what we say, and whether Talos refuses it too."""

from __future__ import annotations

from typing import Any, NamedTuple

from talos.documents import block, firewall, network, registry, runtime
from talos.documents.document import Document
from tests.unit.talos import talos_examples as examples

_DISK = block.Provisioning(disk_selector="!system_disk", min_size="1TB")
_ANY: Any = "of another choice"


class Mistake(NamedTuple):
    document: Document
    where: str
    refusal: str
    by_talos: bool = True


def _volume(selector: str, **changes: Any) -> Document:
    provisioning = block.Provisioning(**({"disk_selector": selector, "min_size": "1TB"} | changes))
    return block.UserVolumeConfig(name="data", provisioning=provisioning)


def _encrypted(*keys: block.EncryptionKey) -> Document:
    return block.VolumeConfig(name="EPHEMERAL", encryption=block.Encryption(keys=keys))


def _bond(**changes: Any) -> Document:
    given = {"name": "bond0", "links": ("eth0", "eth1"), "bond_mode": "802.3ad"}
    return network.BondConfig(**(given | {"miimon_ms": 100, "updelay_ms": 200, "downdelay_ms": 200} | changes))


def _rule(**changes: Any) -> Document:
    given = {"name": "rule", "ports": (22,), "ingress": (firewall.Ingress(subnet="10.0.0.0/8"),)}
    return firewall.NetworkRuleConfig(**(given | changes))


def _image(**changes: Any) -> Document:
    return registry.ImageVerificationConfig(rules=(registry.ImageRule(image="*", **changes),))


SELECTOR = "provisioning.disk_selector"

MISTAKES: dict[str, Mistake] = {
    "two hostnames": Mistake(network.HostnameConfig(hostname="a", auto="stable"), "hostname", "does not go with auto"),
    "no hostname": Mistake(network.HostnameConfig(), "hostname", "does not go with auto"),
    "hostname with blanks": Mistake(network.HostnameConfig(hostname="h gx"), "hostname", "allowed: a DNS name", False),
    "address without prefix": Mistake(
        network.LinkConfig(name="eth0", addresses=(network.LinkAddress(address="10.5.0.1"),)),
        "addresses[0].address",
        "got '10.5.0.1'; allowed: an address with its prefix length",
    ),
    "gateway that is none": Mistake(
        network.LinkConfig(name="eth0", routes=(network.Route(gateway="10.5.0.256"),)),
        "routes[0].gateway",
        "allowed: an IP address",
    ),
    "route to nowhere": Mistake(
        network.LinkConfig(name="eth0", routes=(network.Route(metric=1),)), "routes[0].gateway", "is missing", False
    ),
    "MTU of 0": Mistake(network.LinkConfig(name="eth0", mtu=0), "mtu", "allowed: 68 to 65535 bytes", False),
    "long link name": Mistake(network.LinkConfig(name="a-very-long-link"), "name", "1 to 15 characters", False),
    "nameless link": Mistake(network.LinkConfig(name=""), "name", "is empty"),
    "bond without links": Mistake(_bond(links=()), "links", "at least one link"),
    "bond with a link twice": Mistake(_bond(links=("a", "a")), "links", "none twice", False),
    "bond mode": Mistake(_bond(bond_mode=_ANY), "bond_mode", "allowed: balance-rr, active-backup"),
    "unwatched links": Mistake(_bond(updelay_ms=None, downdelay_ms=None), "updelay_ms", "updelay_ms and downdelay_ms"),
    "LACP without LACP": Mistake(_bond(bond_mode="active-backup", lacp_rate="fast"), "lacp_rate", "802.3ad", False),
    "more links than there are": Mistake(_bond(min_links=3), "min_links", "got 3; allowed: 0 to 2", False),
    "VLAN 4095": Mistake(network.VLANConfig(name="v", vlan_id=4095, parent="e"), "vlan_id", "got 4095; allowed: 1 to"),
    "alias of an unknown field": Mistake(
        network.LinkAliasConfig(name="rail0", match="link.permanent_address == 'x'"), "match", "mean permanent_addr?"
    ),
    "VIP that is a name": Mistake(network.Layer2VIPConfig(address="vip", link="eth0"), "address", "an IP address"),
    "nameserver that is a name": Mistake(network.ResolverConfig(nameservers=("a",)), "nameservers", "an IP address"),
    "two clocks": Mistake(
        network.TimeSyncConfig(ntp_servers=("a",), ptp_devices=("/dev/ptp0",)), "ptp_devices", "beside ntp_servers"
    ),
    "misspelt disk field": Mistake(_volume("disk.seral == 'a'"), SELECTOR, "disk.seral, which does not exist; did you"),
    "unknown variable": Mistake(_volume("disks.serial == 'a'"), SELECTOR, "disks, which does not exist; did you mean"),
    "single equals": Mistake(_volume("disk.serial = 'a'"), SELECTOR, "compares with `==`"),
    "and in words": Mistake(_volume("disk.rotational and true"), SELECTOR, "CEL writes &&"),
    "open bracket": Mistake(_volume("(disk.size > 1u * TB"), SELECTOR, "open bracket"),
    "open quote": Mistake(_volume("disk.serial == 'a"), SELECTOR, "open quote"),
    "value, no condition": Mistake(_volume("disk.size"), SELECTOR, "not a condition"),
    "empty selector": Mistake(_volume(" "), SELECTOR, "is empty"),
    "no selector": Mistake(_volume("", disk_selector=None), SELECTOR, "is missing"),
    "no size": Mistake(_volume("!system_disk", min_size=None), "provisioning.min_size", "is missing"),
    "size in words": Mistake(_volume("!system_disk", min_size="much"), "provisioning.min_size", "a size such as"),
    "long volume name": Mistake(block.RawVolumeConfig(name="v" * 35, provisioning=_DISK), "name", "1 to 34 letters"),
    "directory on a disk": Mistake(
        block.UserVolumeConfig(name="d", volume_type="directory", provisioning=_DISK), "provisioning", "directory"
    ),
    "size of a whole disk": Mistake(
        block.UserVolumeConfig(name="d", volume_type="disk", provisioning=_DISK), "provisioning", "whole disk"
    ),
    "quota on ext4": Mistake(
        block.UserVolumeConfig(
            name="d", provisioning=_DISK, filesystem=block.Filesystem(type="ext4", project_quota_support=True)
        ),
        "filesystem.project_quota_support",
        "choose xfs",
    ),
    "place of STATE": Mistake(block.VolumeConfig(name="STATE", provisioning=_DISK), "provisioning", "leave it out"),
    "STATE locked to itself": Mistake(
        block.VolumeConfig(
            name="STATE", encryption=block.Encryption(keys=(block.NodeIDKey(slot=0, lock_to_state=True),))
        ),
        "encryption",
        "locks STATE to itself",
    ),
    "unknown system volume": Mistake(block.VolumeConfig(name=_ANY, provisioning=_DISK), "name", "STATE, EPHEMERAL"),
    "keys in one slot": Mistake(
        _encrypted(block.NodeIDKey(slot=1), block.TPMKey(slot=1)), "encryption.keys", "got slots [1, 1]"
    ),
    "no keys": Mistake(_encrypted(), "encryption.keys", "are none"),
    "register of no TPM": Mistake(_encrypted(block.TPMKey(slot=0, pcrs=(24,))), "encryption.keys[0].pcrs", "0 to 23"),
    "port 0": Mistake(_rule(ports=(0,)), "ports", "a port from 1 to 65535", False),
    "ports backwards": Mistake(_rule(ports=("20-10",)), "ports", "or a range"),
    "no ports": Mistake(_rule(ports=()), "ports", "at least one port"),
    "source without prefix": Mistake(
        _rule(ingress=(firewall.Ingress(subnet="10.0.0.0"),)), "ingress[0].subnet", "add the prefix length"
    ),
    "exception outside": Mistake(
        _rule(ingress=(firewall.Ingress(subnet="10.0.0.0/8", excluded="11.0.0.0/8"),)),
        "ingress[0].excluded",
        "lies outside of 10.0.0.0/8",
        False,
    ),
    "impatient watchdog": Mistake(runtime.WatchdogTimerConfig(timeout_s=1), "timeout_s", "10 or more seconds"),
    "kernel log over HTTP": Mistake(runtime.KmsgLogConfig(name="l", url="http://l:1"), "url", "tcp://HOST:PORT or udp"),
    "kernel log without port": Mistake(runtime.KmsgLogConfig(name="l", url="tcp://l"), "url", "tcp://HOST:PORT"),
    "events without port": Mistake(runtime.EventSinkConfig(endpoint="events"), "endpoint", "HOST:PORT"),
    "variable with a dash": Mistake(runtime.EnvironmentConfig(variables={"A-B": "1"}), "variables", "underscores"),
    "mirror by rsync": Mistake(
        registry.RegistryMirrorConfig(name="docker.io", endpoints=(registry.Endpoint(url="rsync://x"),)),
        "endpoints[0].url",
        "http://HOST or https://HOST",
    ),
    "two credentials": Mistake(
        registry.RegistryAuthConfig(name="r", username="u", password=examples.CANARY, auth=examples.CANARY),
        "username",
        "not of one form",
    ),
    "user without password": Mistake(
        registry.RegistryAuthConfig(name="r", username="u"), "username", "not of one form", False
    ),
    "CA that is none": Mistake(registry.RegistryTLSConfig(name="r", ca="none"), "ca", "certificates in PEM form"),
    "roots that are none": Mistake(
        registry.TrustedRootsConfig(name="r", certificates="none"), "certificates", "in PEM form", False
    ),
    "client key of another form": Mistake(
        registry.RegistryTLSConfig(
            name="r",
            client_identity=registry.ClientIdentity(certificate=examples.authority()[0], key=examples.CANARY),
        ),
        "client_identity.key",
        "a PKCS#8 key",
    ),
    "image rule with two answers": Mistake(_image(skip=True, deny=True), "rules[0].image", "got skip, deny"),
    "image rule without answer": Mistake(_image(), "rules[0].image", "got none"),
    "signed by nobody": Mistake(
        _image(keyless=registry.Keyless(issuer="https://i.example")), "rules[0].keyless.subject", "is missing"
    ),
}
