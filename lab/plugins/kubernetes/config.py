"""The provider's own settings: read from the engine's configuration, checked, and compared between two runs."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from lab.plugins.kubernetes.properties import UNKNOWN, Tree

_PREFIX: Final = "kubernetes:config:"
_NOT_COVERED: Final = ("renderYamlToDirectory", "alwaysRender")

# Settings with an environment variable behind them, as the SDK documents.
_ENVIRONMENT: Final = {
    "deleteUnreachable": "PULUMI_K8S_DELETE_UNREACHABLE",
    "skipUpdateUnreachable": "PULUMI_K8S_SKIP_UPDATE_UNREACHABLE",
    "enableServerSideApply": "PULUMI_K8S_ENABLE_SERVER_SIDE_APPLY",
    "enablePatchForce": "PULUMI_K8S_ENABLE_PATCH_FORCE",
    "upsertExistingObjects": "PULUMI_K8S_UPSERT_EXISTING_OBJECTS",
    "enableConfigMapMutable": "PULUMI_K8S_ENABLE_CONFIGMAP_MUTABLE",
    "enableSecretMutable": "PULUMI_K8S_ENABLE_SECRET_MUTABLE",
    "suppressDeprecationWarnings": "PULUMI_K8S_SUPPRESS_DEPRECATION_WARNINGS",
    "suppressHelmHookWarnings": "PULUMI_K8S_SUPPRESS_HELM_HOOK_WARNINGS",
}

_HELM_ENVIRONMENT: Final = {
    "driver": "PULUMI_K8S_HELM_DRIVER",
    "pluginsPath": "PULUMI_K8S_HELM_PLUGINS_PATH",
    "registryConfigPath": "PULUMI_K8S_HELM_REGISTRY_CONFIG_PATH",
    "repositoryConfigPath": "PULUMI_K8S_HELM_REPOSITORY_CONFIG_PATH",
    "repositoryCache": "PULUMI_K8S_HELM_REPOSITORY_CACHE",
}


@dataclass(frozen=True, kw_only=True)
class ProviderConfig:
    """What one configured provider does; field names follow the provider's documented settings."""

    kubeconfig: str = ""
    context: str = ""
    cluster: str = ""
    namespace: str = ""
    server_side_apply: bool = True
    patch_force: bool = False
    upsert: bool = False
    mutable_config_maps: bool = False
    mutable_secrets: bool = False
    delete_unreachable: bool = False
    skip_update_unreachable: bool = False
    suppress_deprecation_warnings: bool = False
    suppress_helm_hook_warnings: bool = False
    reject_unknown_resources: bool = False
    request_timeout_s: float | None = None
    helm_release_settings: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_variables(cls, variables: Mapping[str, str], environment: Mapping[str, str]) -> ProviderConfig:
        """Read the engine's `kubernetes:config:*` variables, environment variables behind them.

        Raises ValueError if kubeClientSettings or helmReleaseSettings is not JSON.
        """

        def text(key: str) -> str:
            return variables.get(_PREFIX + key, "")

        def flag(key: str, *, default: bool = False) -> bool:
            value = variables.get(_PREFIX + key)
            if value is None:
                value = environment.get(_ENVIRONMENT.get(key, ""))
            return default if value is None else value == "true"

        def group(key: str) -> Tree:
            try:
                content = json.loads(text(key) or "{}")
            except ValueError as error:
                raise ValueError(f"{key} is not JSON: {error}") from error
            return content if isinstance(content, dict) else {}

        client_settings = group("kubeClientSettings")
        timeout = client_settings.get("timeout") or environment.get("PULUMI_K8S_CLIENT_TIMEOUT") or None
        return cls(
            kubeconfig=text("kubeconfig"),
            context=text("context"),
            cluster=text("cluster"),
            namespace=text("namespace"),
            server_side_apply=flag("enableServerSideApply", default=True),
            patch_force=flag("enablePatchForce"),
            upsert=flag("upsertExistingObjects"),
            mutable_config_maps=flag("enableConfigMapMutable"),
            mutable_secrets=flag("enableSecretMutable"),
            delete_unreachable=flag("deleteUnreachable"),
            skip_update_unreachable=flag("skipUpdateUnreachable"),
            suppress_deprecation_warnings=flag("suppressDeprecationWarnings"),
            suppress_helm_hook_warnings=flag("suppressHelmHookWarnings"),
            reject_unknown_resources=flag("rejectUnknownResources"),
            request_timeout_s=float(timeout) if timeout else None,
            helm_release_settings={
                **{key: environment[name] for key, name in _HELM_ENVIRONMENT.items() if environment.get(name)},
                **group("helmReleaseSettings"),
            },
            environment=dict(environment),
        )


def not_covered(settings: Tree) -> list[str]:
    """Settings that would make the provider write files in the place of objects, which this one does not."""
    return [key for key in _NOT_COVERED if settings.get(key) not in (None, "", False, "false")]


@dataclass(frozen=True)
class ConfigChange:
    """Settings that differ, and those of them that mean another cluster."""

    changed: list[str]
    replaced: list[str]


def compare(olds: Tree, news: Tree) -> ConfigChange:
    """Separate changed settings from those that make every object of the provider belong to another cluster.

    Raises ValueError if a kubeconfig cannot be read.
    """
    keys = sorted(olds.keys() | news.keys())
    changed = [key for key in keys if olds.get(key) != news.get(key)]
    if not changed:
        return ConfigChange([], [])
    pinned = news.get("clusterIdentifier")
    replaced: list[str] = []
    if pinned and olds.get("clusterIdentifier") and olds["clusterIdentifier"] != pinned:
        replaced.append("clusterIdentifier")
    unknown = next((key for key in ("kubeconfig", "context", "cluster") if news.get(key) is UNKNOWN), None)
    if unknown:
        # It may be another cluster: assuming so is the safe answer.
        changed = [unknown]
        replaced.append(unknown)
    else:
        before, after = _active_cluster(olds), _active_cluster(news)
        if before is not None and after is not None and before != after:
            replaced += [key for key in ("kubeconfig", "context", "cluster") if key in changed]
    if pinned and olds.get("clusterIdentifier") == pinned:
        # The user states that it is the same cluster, whatever the kubeconfig looks like.
        replaced = []
    return ConfigChange(changed, replaced)


def _active_cluster(settings: Tree) -> Any:
    kubeconfig = settings.get("kubeconfig")
    if not kubeconfig:
        return None
    content = kubeconfig if isinstance(kubeconfig, dict) else read_kubeconfig(str(kubeconfig))
    clusters = {item.get("name"): item.get("cluster") for item in content.get("clusters") or []}
    contexts = {item.get("name"): item.get("context") or {} for item in content.get("contexts") or []}
    context = contexts.get(settings.get("context") or content.get("current-context"))
    if context is None:
        return None
    return clusters.get(settings.get("cluster") or context.get("cluster"))


def read_kubeconfig(path_or_content: str) -> Tree:
    """A kubeconfig given as its content (YAML or JSON) or as a path; file references in it become absolute.

    Raises ValueError if it is neither.
    """
    base = Path.cwd()
    content = path_or_content
    # A content is longer than any path, and asking for it as a file name would be an error of its own.
    if "\n" not in content and len(content) < 4096 and (path := Path(content).expanduser()).is_file():
        base = path.resolve().parent
        content = path.read_text()
    try:
        parsed = yaml.safe_load(content)
    except yaml.YAMLError as error:
        raise ValueError(f"cannot parse kubeconfig: {error}") from error
    if not isinstance(parsed, dict):
        raise ValueError("kubeconfig is neither a readable file nor the content of one")
    for entries, key, names in (
        ("clusters", "cluster", ("certificate-authority",)),
        ("users", "user", ("client-certificate", "client-key", "tokenFile")),
    ):
        for entry in parsed.get(entries) or []:
            for name in names:
                if isinstance(entry.get(key), dict) and entry[key].get(name):
                    entry[key][name] = str(base / entry[key][name])
    return parsed


def load_kubeconfig(config: ProviderConfig) -> Tree:
    """The kubeconfig that the settings mean: the given one, else the files of KUBECONFIG, else the default file.

    The chosen context and cluster are written into it. Raises ValueError if there is none or it lacks the context.
    """
    if config.kubeconfig:
        content = read_kubeconfig(config.kubeconfig)
    else:
        paths = config.environment.get("KUBECONFIG") or str(Path("~/.kube/config").expanduser())
        if not any(Path(path).is_file() for path in paths.split(os.pathsep)):
            raise ValueError(f"no kubeconfig found: looked at {paths}")
        content = _merged([read_kubeconfig(path) for path in paths.split(os.pathsep) if Path(path).is_file()])
    name = config.context or content.get("current-context")
    context = next((item for item in content.get("contexts") or [] if item.get("name") == name), None)
    if context is None:
        known = ", ".join(sorted(str(item.get("name")) for item in content.get("contexts") or [])) or "none"
        raise ValueError(f'the kubeconfig has no context "{name}", only: {known}')
    content["current-context"] = name
    if config.cluster:
        context["context"] = {**context["context"], "cluster": config.cluster}
    return content


def _merged(contents: list[Tree]) -> Tree:
    """Several kubeconfigs as one: of two entries with the same name, and of two current contexts, the first counts."""
    result: Tree = {"apiVersion": "v1", "kind": "Config", "clusters": [], "contexts": [], "users": []}
    for content in contents:
        for key in ("clusters", "contexts", "users"):
            names = {entry.get("name") for entry in result[key]}
            result[key] += [entry for entry in content.get(key) or [] if entry.get("name") not in names]
        result["current-context"] = result.get("current-context") or content.get("current-context")
    return result


def default_namespace(config: ProviderConfig, kubeconfig: Tree) -> str:
    """Namespace of objects that name none: the provider's, else the context's, else `default`."""
    if config.namespace:
        return config.namespace
    for item in kubeconfig.get("contexts") or []:
        if item.get("name") == kubeconfig.get("current-context"):
            return (item.get("context") or {}).get("namespace") or "default"
    return "default"
