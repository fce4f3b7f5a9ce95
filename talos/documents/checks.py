"""What a field of a document may hold. Each check looks at a value and reports why one does not fit, and what would."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from cryptography import x509


class Fault(NamedTuple):
    """What is wrong with a value, what is allowed, and where it helps how to fix it."""

    what: str
    allowed: str
    fix: str = ""


Check = Callable[[Any], Fault | None]

# Kubernetes' own forms of names.
_LABEL_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_DNS_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_PEM_CERTIFICATES = re.compile(
    r"(\s*-----BEGIN CERTIFICATE-----\s+[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----)+\s*", re.ASCII
)
_AMOUNT = r"\d+(\.\d+)? ?([kKMGTPE]i?)?B?"
# Talos 1.13, nethelpers: the kernel's own tables by their names, all others by their numbers.
_TABLES = ("default", "main", "local")
_LAST_TABLE = 252
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def expect(test: Callable[[Any], bool], allowed: str, *, fix: str = "", what: str = "does not fit") -> Check:
    """A check out of a test; a value that the test stumbles over does not fit either."""

    def check(value: Any) -> Fault | None:
        try:
            fits = test(value)
        except (TypeError, ValueError, AttributeError):
            fits = False
        return None if fits else Fault(what, allowed, fix)

    return check


def pattern(expression: str, allowed: str, *, fix: str = "") -> Check:
    """The whole text matches."""
    compiled = re.compile(expression, re.ASCII)
    return expect(lambda text: compiled.fullmatch(text) is not None, allowed, fix=fix)


def between(lowest: float, highest: float | None = None, unit: str = "") -> Check:
    """A number within bounds, both included."""
    words = f"{lowest} or more" if highest is None else f"{lowest} to {highest}"

    def test(number: Any) -> bool:
        return not isinstance(number, bool) and number >= lowest and (highest is None or number <= highest)

    return expect(test, " ".join(filter(None, (words, unit))))


def some(what: str) -> Check:
    """At least one, and none twice."""
    return expect(lambda values: 0 < len(values) == len(set(values)), f"at least one {what}, none twice")


def every(check: Check) -> Check:
    """Every element fits; the first that does not is the fault."""

    def check_all(values: Any) -> Fault | None:
        for position, value in enumerate(values):
            if fault := check(value):
                return fault._replace(what=f"element {position} {fault.what}")
        return None

    return check_all


def both(first: Check, second: Check) -> Check:
    return lambda value: first(value) or second(value)


def counts(names: Sequence[str]) -> Check:
    """Numbers from 0 on by some of these names."""
    return expect(
        lambda values: all(name in names and 0 <= values[name] < 2**32 for name in values),
        f"numbers from 0 on for {', '.join(names)}",
        fix="take out what is neither",
    )


def url(*schemes: str, port: bool = False, path: bool = True) -> Check:
    """An address with one of the schemes; `port` requires one, `path` allows one."""

    def test(text: str) -> bool:
        split = urlsplit(text)
        named = split.scheme in schemes and bool(split.hostname) and (split.port is not None or not port)
        return named and (path or split.path in ("", "/"))

    form = "://HOST" + (":PORT" if port else "")
    return expect(test, " or ".join(f"{scheme}{form}" for scheme in schemes))


def _is_port(port: Any) -> bool:
    if isinstance(port, str):
        first, _, last = port.partition("-")
        return first.isdecimal() and last.isdecimal() and 0 < int(first) <= int(last) < 65536
    return isinstance(port, int) and 0 < port < 65536


def _is_label(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    return _LABEL_NAME.fullmatch(name) is not None and (not slash or is_dns_name(prefix))


def _is_labels(labels: Mapping[str, str]) -> bool:
    return all(_is_label(key) and (not value or _LABEL_NAME.fullmatch(value)) for key, value in labels.items())


def _is_taints(taints: Mapping[str, str]) -> bool:
    return all(_is_label(key) and value.rpartition(":")[2] in _EFFECTS for key, value in taints.items())


def is_dns_name(text: str) -> bool:
    return len(text) <= 253 and _DNS_NAME.fullmatch(text) is not None and all(len(p) < 64 for p in text.split("."))


# Kubernetes lets a node label itself in these domains with few names only, and refuses the whole update otherwise.
_RESERVED = ("kubernetes.io", "k8s.io")
_ALLOWED_PREFIXES = ("kubelet.kubernetes.io/", "node.kubernetes.io/")
_ALLOWED_LABELS = frozenset(("topology.kubernetes.io/zone", "topology.kubernetes.io/region"))


def may_label_itself(label: str) -> bool:
    """Whether the API server lets a worker set this label on itself."""
    domain, _, name = label.rpartition("/")
    reserved = any(domain == suffix or domain.endswith(f".{suffix}") for suffix in _RESERVED)
    return not (reserved and name) or label.startswith(_ALLOWED_PREFIXES) or label in _ALLOWED_LABELS


@lru_cache(maxsize=4096)
def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    return ipaddress.ip_network(text, strict=False)


def overlap(cidr: str, other: str) -> bool:
    """Whether two networks in CIDR form share an address."""
    first, second = _network(cidr), _network(other)
    return first.version == second.version and first.overlaps(second)


@lru_cache(maxsize=4096)
def is_cidr(text: str) -> bool:
    try:
        ipaddress.ip_interface(text)
    except ValueError:
        return False
    return "/" in text


ip_address = expect(lambda text: bool(ipaddress.ip_address(text)), "an IP address such as 10.5.0.11")


def _is_table(value: Any) -> bool:
    return value in _TABLES or (str(value).isdecimal() and 1 <= int(value) <= _LAST_TABLE)


cidr = expect(is_cidr, "an address with its prefix length such as 10.5.0.0/24", fix="add the prefix length")
destination = expect(
    lambda text: is_cidr(text) and not ipaddress.ip_interface(text).ip.is_unspecified,
    "a subnet such as 10.6.0.0/16",
    fix="name a subnet, or leave destination out: without it the route is the default one",
)
routing_table = expect(
    _is_table, f"a routing table such as {', '.join(_TABLES)}, or its number from 1 to {_LAST_TABLE}"
)
cidr_or_not = expect(lambda text: is_cidr(text.removeprefix("!")), "a subnet such as 10.5.0.0/24, or !10.5.0.10/32")
link_name = pattern(
    r"[^\s/]{1,15}|[^\s/%]{1,13}%d", "1 to 15 characters without blanks and slashes", fix="use the kernel's name"
)
hostname = expect(is_dns_name, "a DNS name in small letters, at most 63 characters between dots")
host_and_port = pattern(r"\S+:[1-9]\d{0,4}", "HOST:PORT")
ports = both(some("port"), every(expect(_is_port, "a port from 1 to 65535, or a range such as 30000-32767")))
volume_name = pattern(r"[A-Za-z0-9-]{1,34}", "1 to 34 letters, digits and hyphens")
size = pattern(_AMOUNT, "a size such as 100GiB or 3TB")
size_or_share = pattern(
    rf"-?{_AMOUNT}|-?\d+(\.\d+)?%", "a size such as 3TB, a share such as 80%, or what to leave: -50GiB"
)
disk_size = pattern(rf"(<=|>=|<|>|==)? ?{_AMOUNT}", "a comparison such as <= 2TB")
absolute_path = expect(lambda text: text.startswith("/"), "an absolute path")
module_name = pattern(r"[A-Za-z0-9_-]+", "the name of a kernel module")
pci_address = pattern(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", "a PCI address such as 0000:17:00.0")
variables = expect(
    lambda values: all(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name, re.ASCII) for name in values),
    "names of letters, digits and underscores",
)
assignments = every(expect(lambda text: text.partition("=")[1] == "=" and text[0] != "=", "NAME=value"))
pem_certificates = expect(
    lambda text: _PEM_CERTIFICATES.fullmatch(text) is not None and bool(x509.load_pem_x509_certificates(text.encode())),
    "certificates in PEM form",
)
labels = expect(_is_labels, "Kubernetes labels: [prefix/]name, and values of at most 63 letters, digits, -, _ and .")
node_annotations = expect(lambda values: all(map(_is_label, values)), "keys of the form [prefix/]name")
taints = expect(_is_taints, f"`key: value:EFFECT`, EFFECT one of {', '.join(_EFFECTS)}")
texts = expect(
    lambda values: all(isinstance(value, str) for value in values.values()), "texts", fix="put values in quotes"
)
