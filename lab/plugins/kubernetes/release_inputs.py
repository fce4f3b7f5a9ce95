"""Inputs of a Release: completed with a name and defaults, its values merged, its chart looked up."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from lab.plugins.kubernetes.checking import Naming, unique_name
from lab.plugins.kubernetes.errors import ProviderError
from lab.plugins.kubernetes.helm import Helm, opened
from lab.plugins.kubernetes.objects import is_crd, urn_name
from lab.plugins.kubernetes.properties import UNKNOWN, Secret, Tree, has_secret, has_unknown, plain
from lab.plugins.kubernetes.session import ProviderSession

DEFAULT_TIMEOUT_S: Final = 300

# The state of the official provider names every input, unset ones with their zero value.
_SWITCHES: Final = (
    "allowNullValues",
    "atomic",
    "cleanupOnFail",
    "createNamespace",
    "dependencyUpdate",
    "devel",
    "disableCRDHooks",
    "disableOpenapiValidation",
    "disableWebhooks",
    "forceUpdate",
    "lint",
    "recreatePods",
    "renderSubchartNotes",
    "replace",
    "resetValues",
    "reuseValues",
    "skipAwait",
    "skipCrds",
    "takeOwnership",
    "verify",
    "waitForJobs",
)
_TEXTS: Final = ("chart", "description", "keyring", "name", "namespace", "postrender", "version")
ZEROS: Final[Tree] = {**dict.fromkeys(_SWITCHES, False), **dict.fromkeys(_TEXTS, ""), "timeout": 0, "values": {}}
_REPOSITORY_ZEROS: Final[Tree] = dict.fromkeys(("repo", "caFile", "certFile", "keyFile", "password", "username"), "")
_OPTIONAL: Final = ("maxHistory", "repositoryOpts")
_NOT_COVERED: Final = ("postrender", "verify")


@dataclass(frozen=True)
class Checked:
    """Completed inputs, and what is wrong with the chart (empty if nothing is)."""

    inputs: Tree
    problem: str = ""


def check(session: ProviderSession, urn: str, olds: Tree, news: Tree, naming: Naming) -> Checked:
    """The inputs that Diff, Create and Update will get: named, completed as official, with one map of values.

    Raises ProviderError for what the stand-in cannot do.
    """
    given = {key: value for key, value in news.items() if value is not None}
    for key in _NOT_COVERED:
        if plain(given.get(key)):
            raise ProviderError(f"the lab stand-in does not cover the {key} input of helm.sh/v3 Release")
    if has_secret(given.get("description")):
        raise ProviderError("the description of a Release goes to helm as an argument, which is no place for a secret")
    inputs = {**ZEROS, **{key: given[key] for key in (*ZEROS, *_OPTIONAL) if key in given}}
    inputs["values"] = _all_values(given)
    if isinstance(given.get("repositoryOpts"), dict):
        inputs["repositoryOpts"] = {**_REPOSITORY_ZEROS, **given["repositoryOpts"]}
    inputs["namespace"] = inputs["namespace"] or session.default_namespace
    inputs["name"] = inputs["name"] or olds.get("name") or _new_name(urn, naming)
    if "timeout" not in given and inputs["skipAwait"] is False:
        inputs["timeout"] = DEFAULT_TIMEOUT_S
    if has_unknown(inputs):
        return Checked(inputs)
    known = plain(inputs)
    with opened(session) as helm:
        try:
            path = helm.chart(known)
            metadata = helm.metadata(path)
            if metadata.get("type", "application") != "application":
                raise ProviderError(f'chart "{known["chart"]}" is a {metadata["type"]} chart, which is never installed')
            if not known["skipCrds"]:
                _declare_crds(session, helm, path)
        except ProviderError as error:
            return Checked(inputs, str(error))
    # The program may give a range; what is compared is the version that would be installed.
    return Checked({**inputs, "version": str(metadata.get("version") or "")})


def _new_name(urn: str, naming: Naming) -> str:
    if naming.disabled:
        raise ProviderError("name is missing, and the stack's autonaming makes none up (mode: disabled)")
    return naming.proposed or unique_name(f"{urn_name(urn)}-", naming.seed)


def _declare_crds(session: ProviderSession, helm: Helm, chart: Path) -> None:
    for obj in parse_documents(helm.run("show", "crds", str(chart), cluster=False), f"the CRDs of chart {chart}"):
        if is_crd(obj):
            session.declare(obj)


def _all_values(given: Tree) -> Any:
    """The values of valueYamlFiles, one over the other, and those of the program over them."""
    values, files = given.get("values") or {}, given.get("valueYamlFiles")
    if not files:
        return values
    if has_unknown(files) or values is UNKNOWN:
        return UNKNOWN
    merged: Tree = {}
    for asset in plain(files):
        merged = merge(merged, _read_asset(asset))
    if has_secret(files) or isinstance(values, Secret):
        return Secret(merge(merged, plain(values)))
    return merge(merged, values)


def _read_asset(asset: Tree) -> Tree:
    if asset.get("text") is not None:
        text, source = str(asset["text"]), "a values file given as text"
    elif asset.get("path"):
        source = str(asset["path"])
        try:
            text = Path(source).read_text()
        except OSError as error:
            raise ProviderError(f"cannot read values file {source}: {error.strerror or error}") from error
    else:
        raise ProviderError("the lab stand-in accepts value files from files and strings only")
    merged: Tree = {}
    for document in parse_documents(text, source):
        merged = merge(merged, document)
    return merged


class _Loader(yaml.CSafeLoader):
    """YAML as Kubernetes reads it: dates stay text."""


_Loader.yaml_implicit_resolvers = {
    key: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for key, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def parse_documents(text: str, source: str) -> list[Tree]:
    """Objects of a YAML text with any number of documents. Raises ProviderError if it is no YAML or no objects."""
    try:
        documents = list(yaml.load_all(text, _Loader))
    except yaml.YAMLError as error:
        raise ProviderError(f"{source} is not YAML: {error}") from error
    for document in documents:
        if document is not None and not isinstance(document, dict):
            raise ProviderError(f"{source} holds a {type(document).__name__} where an object must be")
    return [document for document in documents if document]


def merge(below: Tree, above: Tree) -> Tree:
    """Two values maps as helm merges them: maps key by key, of anything else the upper one."""
    result = dict(below)
    for key, value in above.items():
        under = result.get(key)
        result[key] = merge(under, value) if isinstance(under, dict) and isinstance(value, dict) else value
    return result
