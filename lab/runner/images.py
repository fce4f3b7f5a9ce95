"""Which local program runs for which container image. The one place to add an image to the lab."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from floor.images import image_reference
from lab.paths import CHECKOUT, EARLIER

PYTHON_REPOSITORY = "docker.io/library/python"
DIRECTORY_REPOSITORY = "ghcr.io/inference-platform/directory"
PORTAL_REPOSITORY = "ghcr.io/inference-platform/portal"
LEDGER_REPOSITORY = "ghcr.io/inference-platform/ledger"
WATCHER_REPOSITORY = "ghcr.io/inference-platform/watcher"


@dataclass(frozen=True, kw_only=True)
class Program:
    """How a container of this image starts.

    `tool` is a name in the lab's bin folder (empty: the lab's Python), `path` where the image keeps it, `entrypoint`
    and `arguments` what runs when the spec names neither command nor args, `user` the image's own user.
    """

    tool: str
    path: str
    entrypoint: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    user: int = 0
    packages: tuple[str, ...] = ()
    """What an image that is made for one of the platform's programs has of this checkout, beside the packages that the
    lab's Python has."""
    serves: bool = False
    """Its entrypoint is vLLM's, which runs on this machine's CPU where the lab has it."""


def _tool(tool: str, path: str | None = None, *arguments: str, user: int = 65532) -> Program:
    place = path or f"/usr/local/bin/{tool}"
    return Program(tool=tool, path=place, entrypoint=(place,), arguments=arguments, user=user)


TABLE: Mapping[str, Program] = {
    "docker.io/envoyproxy/gateway": _tool("envoy-gateway", None, "server"),
    "docker.io/envoyproxy/envoy": _tool("envoy"),
    "docker.io/envoyproxy/ai-gateway-controller": _tool("ai-gateway-controller", "/app"),
    "docker.io/envoyproxy/ai-gateway-extproc": _tool("ai-gateway-extproc", "/app"),
    "docker.io/envoyproxy/ratelimit": _tool("ratelimit", "/bin/ratelimit"),
    # Redis 7.0 in the place of Valkey, which began as its copy; both keep the same protocol and files.
    "docker.io/valkey/valkey": _tool("redis-check-rdb", "/usr/local/bin/valkey-server", user=999),
    "ghcr.io/inference-platform/gatekeeper": _tool("gatekeeper"),
    "registry.k8s.io/gateway-api-inference-extension/epp": _tool("epp", "/epp"),
    "registry.k8s.io/coredns/coredns": _tool("coredns", "/coredns"),
    "registry.k8s.io/kubectl": _tool("kubectl", "/bin/kubectl"),
    "ghcr.io/llm-d/llm-d-inference-sim": _tool("llm-d-inference-sim", "/app/llm-d-inference-sim"),
    "ghcr.io/external-secrets/external-secrets": _tool("external-secrets", "/bin/external-secrets", user=65534),
    "ghcr.io/kedacore/keda": _tool("keda", "/keda"),
    "ghcr.io/kedacore/keda-metrics-apiserver": _tool("keda-adapter", "/keda-adapter"),
    "registry.k8s.io/lws/lws": _tool("lws-manager", "/manager"),
    "quay.io/prometheus-operator/prometheus-operator": _tool("prometheus-operator", "/bin/operator", user=65534),
    "quay.io/prometheus-operator/prometheus-config-reloader": _tool(
        "prometheus-config-reloader", "/bin/prometheus-config-reloader", user=65534
    ),
    "docker.io/victoriametrics/victoria-logs": _tool("victoria-logs", "/victoria-logs-prod", user=0),
    "docker.io/victoriametrics/vlagent": _tool("vlagent", "/vlagent-prod", user=0),
    "quay.io/prometheus/prometheus": _tool("prometheus", "/bin/prometheus", user=65534),
    "quay.io/prometheus/alertmanager": _tool("alertmanager", "/bin/alertmanager", user=65534),
    "registry.k8s.io/kube-state-metrics/kube-state-metrics": Program(
        tool="kube-state-metrics",
        path="/kube-state-metrics",
        entrypoint=("/kube-state-metrics", "--port=8080", "--telemetry-port=8081"),
        user=65534,
    ),
    # One program of the lab; it takes its part from the name by which the image calls it.
    **{
        f"quay.io/jetstack/cert-manager-{part}": _tool("cert-manager", f"/app/cmd/{part}/{part}", user=1000)
        for part in ("acmesolver", "cainjector", "controller", "webhook")
    },
    # The platform's own programs run in its Python, which is the lab's.
    "docker.io/vllm/vllm-openai": Program(
        tool="", path="/usr/local/bin/python3", entrypoint=("vllm", "serve"), serves=True
    ),
    PYTHON_REPOSITORY: Program(tool="", path="/usr/local/bin/python3", entrypoint=("python3",)),
    **{
        repository: Program(
            tool="",
            path="/usr/local/bin/python3",
            entrypoint=("python3", "-m", f"services.{repository.rpartition('/')[2]}"),
            user=65532,
            packages=("floor", "services"),
        )
        for repository in (DIRECTORY_REPOSITORY, LEDGER_REPOSITORY, PORTAL_REPOSITORY, WATCHER_REPOSITORY)
    },
}


def find(image: str) -> Program | None:
    """The program for an image reference, a mirror's prefix aside; None for an image the lab cannot run.

    Raises ValueError for a digest that is none.
    """
    name = image_reference(image).name
    if name in TABLE:
        return TABLE[name]
    for known, program in TABLE.items():
        path = known.partition("/")[2]
        # Any registry may have a path with one part, such as kubectl; a mirror must then name the registry too.
        if name.endswith(f"/{known}") or ("/" in path and name.endswith(f"/{path}")):
            return program
    return None


def unknown_image_message(image: str) -> str:
    """What the waiting container and the event report about an image that has no row."""
    name = image_reference(image).name
    return (
        f'image "{image}" has no local program in the lab: add a row for {name} to lab/runner/images.py, '
        f"or use one of {', '.join(sorted(TABLE))}"
    )


@dataclass(frozen=True, kw_only=True)
class HostFiles:
    """What of the host a program needs inside its container: (host path, container path), all read-only."""

    binds: tuple[tuple[Path, str], ...]
    links: tuple[tuple[str, str], ...] = ()

    def __add__(self, other: HostFiles) -> HostFiles:
        """Both, what they share once."""
        return HostFiles(
            binds=tuple(dict.fromkeys((*self.binds, *other.binds))),
            links=tuple(dict.fromkeys((*self.links, *other.links))),
        )


def host_files(program: Program, tools: Path, tag: str = "") -> HostFiles:
    """The program's binary, or the lab's interpreter with its packages.

    Of a program that the lab has in an earlier version too, the tag of its image chooses; it has all others once, and
    these run under any tag. Raises FileNotFoundError when the tool is not installed.
    """
    if program.tool:
        earlier = tools / EARLIER / f"{program.tool}-{tag}"
        binary = earlier if earlier.exists() else tools / program.tool
        return HostFiles(binds=((binary.resolve(strict=True), program.path),))
    prefixes = {Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()}
    binds = tuple((prefix, str(prefix)) for prefix in sorted(prefixes) if not prefix.is_relative_to("/usr"))
    # Not through a link to the environment, which is nothing that is bound.
    environment = Path(sys.prefix).resolve()
    interpreter = str(environment / "bin" / Path(sys.executable).name)
    links = [(interpreter, "/usr/local/bin/python3"), (interpreter, "/usr/local/bin/python")]
    if program.packages:
        # Python looks beside itself for the environment that it belongs to.
        binds += tuple((CHECKOUT / name, f"/{name}") for name in program.packages)
        links += [(str(environment / name), f"/usr/local/{name}") for name in ("pyvenv.cfg", "lib")]
    return HostFiles(binds=binds, links=tuple(links))
