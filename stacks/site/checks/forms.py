"""Texts whose form the API server, Talos or the image factory would refuse only in `up`."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from floor.problems import Problem, shown
from floor.secret_texts import HIDDEN, REVOKE
from stacks.site.reading.levels import LEVELS
from stacks.site.reading.raw import address, matching
from talos.documents import udev
from talos.documents.checks import is_dns_name

_OBJECT = re.compile(r"(?=.{1,253}(/|$))[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_CLASS = re.compile(rf"({_OBJECT.pattern}/)?{_LABEL.pattern}")
_CPU = re.compile(r"[0-9]+(\.[0-9]+)?m?")
_MEMORY = re.compile(r"[0-9]+(\.[0-9]+)?([kMGTPE]|[KMGTPE]i)?")
# No address, and not the file itself.
_PATH = re.compile(r"\s*(?!\S+://)\S.*")
_EXTENSION = re.compile(r"[a-z0-9][a-z0-9-]*/[a-z0-9][a-z0-9.-]*")
_KERNEL_ARGUMENT = re.compile(r"-?[A-Za-z0-9_][^\s\"]*(\"[^\"]*\")?")
_SECRET_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
# By the device plugin, and by Kubernetes for names of resources.
_RDMA_RESOURCE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_]{0,61}[A-Za-z0-9])?")
# By the kernel: 15 characters.
_INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}")
_REGISTRY = re.compile(r"\*|[A-Za-z0-9.-]+(:[0-9]{1,5})?")
# Memory below which an endpoint picker does not start: the lab's takes 45 MiB without a request.
_LEAST_MEMORY = 64 * 1024**2
# What no picker needs: its maintainers measured 0.5 to 1 core per request/s of 100,000 tokens, and one CPU of a node
# without GPUs has some 64 cores. Beyond, no node would have room for it.
_MOST_CORES = 64
_MOST_MEMORY = 512 * 1024**3
_UNITS = {"": 1, **{prefix: 1000**power for power, prefix in enumerate("kMGTPE", 1)}}
_UNITS |= {f"{prefix}i": 1024**power for power, prefix in enumerate("KMGTPE", 1)}
# What is in the folders of Linux 6.18.
_KERNEL: Mapping[str, tuple[str, re.Pattern[str], str]] = {
    "sysctls": (
        "/proc/sys",
        re.compile(r"(abi|crypto|debug|dev|fs|kernel|net|sunrpc|user|vm)([./][A-Za-z0-9_:*-]+)+"),
        "vm.swappiness",
    ),
    "sysfs": (
        "/sys",
        re.compile(r"(block|bus|class|dev|devices|firmware|fs|kernel|module|power)([./][A-Za-z0-9_:,-]+)+"),
        "kernel.mm.transparent_hugepage.enabled",
    ),
}
# Keys that the cluster, a role and a node may hold.
_LEVELS = tuple(f"cluster.machines.{level}" for level in LEVELS)
_ENCRYPTED = (
    *(f"{level}{kind}" for level in _LEVELS for kind in ("system_volumes", "volumes", "raw_volumes")),
    "cluster.machines.hgx.storage.disks",
)


class _Form(NamedTuple):
    fits: Callable[[str], object]
    called: str
    example: str
    hidden: bool = False
    """Whether a value of another form may be the secret itself."""


def is_host(text: str) -> bool:
    named = is_dns_name(text) and not text.replace(".", "").isdecimal()
    return named or (address(text) is not None and "/" not in text)


def cores_of(text: str) -> float | None:
    """Cores of a Kubernetes quantity; None for what is none."""
    return float(text.rstrip("m")) / (1000 if text.endswith("m") else 1) if _CPU.fullmatch(text) else None


def memory_of(text: str) -> float | None:
    """Bytes of a Kubernetes quantity; None for what is none."""
    number = re.match(r"[0-9.]+", text) if _MEMORY.fullmatch(text) else None
    return float(number[0]) * _UNITS[text[number.end() :]] if number else None


def _is_cpu(text: str) -> bool:
    return 0 < (cores_of(text) or 0) <= _MOST_CORES


def _is_memory(text: str) -> bool:
    return _LEAST_MEMORY <= (memory_of(text) or 0) <= _MOST_MEMORY


def _is_server(text: str, *, named: bool) -> bool:
    """Whether the text is HOST, HOST:PORT, or an IPv6 address, in brackets before a port."""
    bracketed = re.fullmatch(r"\[([0-9a-f:]+)\](?::([0-9]{1,5}))?", text)
    host, port = bracketed.groups() if bracketed else (text, None)
    if not bracketed and text.count(":") == 1:
        host, _, port = text.partition(":")
    return (_is_address(host) or (named and "%" not in host and is_host(host))) and (port is None or _is_port(port))


def _is_address(text: str) -> bool:
    """Whether the text is an address that is the same on every machine: without a link, as in fe80::1%eth0."""
    return address(text) is not None and "/" not in text and "%" not in text


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdecimal() and 0 < int(text) < 65536


def _is_web(text: str, *, scheme: str = "https?") -> bool:
    """Whether the text is the address of something at a host."""
    if not text.isprintable() or not re.fullmatch(rf"{scheme}://[^/\s@?#]+(/[^\s@?#]*)?", text):
        return False
    try:
        parts = urlsplit(text)
        return parts.port != 0 and is_host(parts.hostname or "")
    except ValueError:
        return False


_is_https = partial(_is_web, scheme="https")


def _is_fingerprint(text: str) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) == 32
    except ValueError:
        return False


_NAME = _Form(_OBJECT.fullmatch, "a name of lower-case letters, digits, dashes and dots", "longhorn")
_HOST = _Form(is_host, "a host name or an address", "10.5.0.4")
_EXTENSION_NAME = _Form(_EXTENSION.fullmatch, "the name of an extension, owner/name", "siderolabs/intel-ucode")
_UDEV_RULE = _Form(
    udev.is_rule,
    "a rule that udevd reads, so it would leave it out",
    'SUBSYSTEM=="net", ATTR{address}=="00:1a:2b:3c:4d:5e", NAME="rail0"',
)
_SECRET = _Form(
    _SECRET_KEY.fullmatch,
    "a key of the stack's configuration, which `pulumi config set --secret KEY` makes",
    "registry-password",
    hidden=True,
)
_DNS_SERVER = _Form(
    lambda text: _is_server(text, named=True), "a host name or an address, with a port unless that is 53", "10.5.0.2"
)
_DNS_KEY = _Form(
    lambda text: is_dns_name(text.removesuffix(".")), "the name of a key, as DNS names are", "inference-acme"
)
_FORMS: Mapping[str, _Form] = {
    "storage.storage_class": _NAME,
    "monitoring.storage_class": _NAME,
    "monitoring.alerts_secret": _NAME._replace(example="alertmanager"),
    "monitoring.runbooks_url": _Form(
        re.compile(r"https://[^/\s@?#]+(/[^\s@?#]*)?").fullmatch,
        "the https address of a folder",
        "https://pages.site.example/runbooks",
    ),
    "logs.storage_class": _NAME,
    "logs.token_secret": _NAME._replace(example="log-token", hidden=True),
    "logs.address": _Form(_is_https, "the https address of a store", "https://logs.site.example"),
    "monitoring.grafana.admin_secret": _NAME._replace(example="grafana-admin", hidden=True),
    "monitoring.grafana.login.client_secret": _NAME._replace(example="grafana-login", hidden=True),
    **{
        f"monitoring.grafana.login.{key}": _Form(_is_https, "an https address of the issuer", f"https://{example}")
        for key, example in (
            ("authorization_url", "login.site.example/realms/platform/protocol/openid-connect/auth"),
            ("token_url", "login.site.example/realms/platform/protocol/openid-connect/token"),
        )
    },
    "monitoring.grafana.proxy.namespace": _NAME._replace(example="ingress"),
    "monitoring.grafana.proxy.url": _Form(
        lambda text: _is_web(text) and not urlsplit(text).path.strip("/"),
        "the address of a host, without a path",
        "https://grafana.site.example",
    ),
    "gateway.certificate_secret": _NAME._replace(example="inference-tls"),
    "certificates.names.<name>": _Form(
        lambda text: is_host(text.removeprefix("*.")) and not (text.startswith("*.") and address(text[2:])),
        "a host name, *.DOMAIN, or an address",
        "llm.site.example",
    ),
    "portal.hostname": _Form(is_dns_name, "a host name", "portal.site.example"),
    "portal.address": _HOST._replace(called="an address", example="10.5.0.7"),
    "portal.certificate_secret": _NAME._replace(example="portal-tls"),
    "portal.client_secret": _NAME._replace(example="portal-login", hidden=True),
    "portal.issuer": _Form(_is_web, "the address of an issuer", "https://login.site.example/realms/platform"),
    "portal.groups_claim": _Form(
        re.compile(r"[\w:/-]+(\.[\w:/-]+)*", re.ASCII).fullmatch, "the name of a claim", "realm_access.roles"
    ),
    "portal.endpoint": _Form(_is_web, "the address of the API, with /v1", "https://llm.site.example/v1"),
    "certificates.ca_secret": _NAME._replace(example="site-ca"),
    "certificates.acme.server": _Form(
        _is_https,
        "the https address of an ACME directory",
        "https://acme.site.example/directory",
    ),
    "certificates.acme.email": _Form(
        re.compile(r"[^\s@,;<>]+@[^\s@,;<>]+\.[^\s@,;<>]+").fullmatch, "an e-mail address", "platform@site.example"
    ),
    "certificates.acme.resolvers.<name>": _Form(
        lambda text: _is_server(text, named=False), "an address, with a port unless that is 53", "10.5.0.2"
    ),
    "certificates.acme.rfc2136.nameserver": _DNS_SERVER,
    "certificates.acme.rfc2136.tsig_key": _DNS_KEY,
    "dns.rfc2136.nameserver": _DNS_SERVER,
    "dns.rfc2136.tsig_key": _DNS_KEY,
    "dns.rfc2136.tsig_secret": _NAME._replace(example="dns-tsig", hidden=True),
    "dns.rfc2136.zones.<name>": _Form(lambda text: is_dns_name(text.removesuffix(".")), "a zone", "site.example"),
    "dns.names.<name>": _Form(is_dns_name, "a host name", "llm.site.example"),
    "certificates.acme.rfc2136.tsig_secret": _NAME._replace(example="acme-tsig", hidden=True),
    "certificates.cluster_issuer": _NAME._replace(example="site-acme"),
    "secrets.store.existing": _NAME._replace(example="site-vault"),
    "secrets.store.vault.server": _Form(_is_https, "the https address of a server", "https://vault.site.example:8200"),
    "secrets.store.kubernetes.server": _Form(_is_https, "the https address of an API server", "https://10.5.0.9:6443"),
    "secrets.store.kubernetes.namespace": _NAME._replace(example="platform-keys"),
    "secrets.store.kubernetes.token_secret": _NAME._replace(example="other-cluster", hidden=True),
    "addresses.bgp.peers.<name>.address": _Form(_is_address, "an address", "10.5.0.1"),
    "addresses.bgp.peers.<name>.password_secret": _NAME._replace(example="tor-password", hidden=True),
    "gateway.load_balancer_class": _Form(_CLASS.fullmatch, "a class, [domain/]name", "example.org/metal"),
    "cluster.kubeconfig": _Form(_PATH.fullmatch, "the path of a file", "kubeconfig.berlin"),
    # With an empty one, a cluster that exists would get another identity.
    "cluster.machines.secrets_import": _Form(_PATH.fullmatch, "the path of a file", "secrets.yaml"),
    "models.<name>.server.gpu_family": _Form(
        _LABEL.fullmatch, "a label of letters, digits, dashes, dots and underscores", "hopper"
    ),
    "models.<name>.server.revision": _Form(
        re.compile(r"[0-9a-f]{40}").fullmatch,
        "a commit of the model's repository at the hub, 40 digits of 0-9 and a-f",
        "0123456789abcdef0123456789abcdef01234567",
    ),
    "models.<name>.pool.cpu": _Form(_is_cpu, "a Kubernetes quantity of CPU above 0 and up to 64 cores", "500m"),
    "models.<name>.pool.memory": _Form(_is_memory, "a Kubernetes quantity of memory from 64Mi to 512Gi", "8Gi"),
    "cluster.rdma_devices.resource": _Form(
        _RDMA_RESOURCE.fullmatch, "a name of 1 to 63 letters, digits and inner underscores, without rdma/", "hca_shared"
    ),
    "cluster.rdma_devices.interfaces.<name>": _Form(
        _INTERFACE.fullmatch, "the name of a network interface, at most 15 characters", "enp26s0f0np0"
    ),
    "cluster.machines.time_servers.<name>": _Form(
        lambda text: is_host(text) or re.fullmatch(r"/dev/ptp[0-9]+", text), "a host name or an address", "10.5.0.4"
    ),
    "cluster.machines.api_server_sans.<name>": _HOST._replace(example="k8s.site.example"),
    "cluster.machines.administrators.issuer": _Form(
        _is_https,
        "the https address of an issuer: an API server with another one does not start",
        "https://login.site.example/realms/platform",
    ),
    "cluster.machines.audit.webhook": _Form(
        _is_https, "the https address of a collector", "https://logs.site.example/audit"
    ),
    "cluster.machines.discovery": _Form(
        lambda text: text in ("off", "public") or re.fullmatch(r"https?://[^/\s]+/?", text),
        "off, public or the address of a service",
        "https://discovery.site.example/",
    ),
    "cluster.machines.nodes.<name>.fingerprint": _Form(
        _is_fingerprint, "the SHA-256 of a key in base64, 44 characters", "what the machine's console shows"
    ),
    **{f"cluster.machines.registries.auth.<name>.{key}_secret": _SECRET for key in ("password", "identity_token")},
    **{f"{place}.<name>.encryption.<name>.passphrase_secret": _SECRET for place in _ENCRYPTED},
    **{f"{level}cert_sans.<name>": _HOST._replace(example="hgx-1.site.example") for level in _LEVELS},
    **{f"{level}extensions.<name>": _EXTENSION_NAME for level in _LEVELS},
    **{f"{level}udev_rules.<name>": _UDEV_RULE for level in _LEVELS},
    **{
        f"{level}kernel_args.<name>": _Form(
            _KERNEL_ARGUMENT.fullmatch, "one kernel argument without blanks", "console=ttyS1"
        )
        for level in _LEVELS
    },
}


def example(pattern: str, text: str) -> str:
    """A value of the key's form where the text has another one, else nothing."""
    form = _FORMS.get(pattern)
    return "" if form is None or form.fits(text) else form.example


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Texts of another form."""
    for pattern, form in _FORMS.items():
        for path, value in matching(values, pattern):
            if isinstance(value, str) and not form.fits(value):
                got, fix = shown(value), f"write it like {form.example}"
                if form.hidden:
                    got, fix = HIDDEN, f"{fix}; {REVOKE}"
                yield Problem(path=path, what=f"not {form.called}", got=got, fix=fix)
    for kind in ("mirrors", "auth", "tls"):
        for path, _ in matching(values, f"cluster.machines.registries.{kind}.<name>"):
            if not _REGISTRY.fullmatch(path[-1]):
                host = path[-1].partition("://")[2].partition("/")[0] or path[-1].partition("/")[0]
                yield Problem(path=path, what="not the host of a registry", got=shown(path[-1]), fix=f"write {host}")
    yield from _own_labels(values)
    yield from _kernel_settings(values)


def _kernel_settings(values: Mapping[str, Any]) -> Iterator[Problem]:
    for kind, (folder, form, example) in _KERNEL.items():
        for level in _LEVELS:
            for path, value in matching(values, f"{level}{kind}.<name>"):
                if not form.fullmatch(path[-1]):
                    yield Problem(
                        path=path,
                        what=f"names nothing below {folder}",
                        got=shown(path[-1]),
                        fix=f"take the name of a file below {folder}, such as {example}",
                    )
                elif isinstance(value, str) and not value.strip():
                    yield Problem(path=path, what="has no value", fix="give it one, or take the key out")


def _own_labels(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Labels that NVIDIA's GPU feature discovery sets by what it finds; it takes others' away."""
    for level in _LEVELS:
        for path, _ in matching(values, f"{level}labels.<name>"):
            if path[-1].startswith("nvidia.com/"):
                yield Problem(
                    path=path,
                    what="is set by NVIDIA's GPU feature discovery, by what it finds in the node",
                    fix="take it out, or use a label of a domain of your own",
                )
