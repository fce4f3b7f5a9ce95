"""A cluster's secrets bundle out of what each of its control planes has: its machine config.

A field of the bundle is where Talos v1.13.9 takes it from (pkg/machinery/config/generate/secrets/bundle.go,
NewBundleFromConfig).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from talos.documents.problems import ConfigError
from talos.secrets import bundle as secrets

_FIX = "give the config of a control plane of this cluster, whole and unredacted, as `machine-config` prints it"
_CERTS = {"etcd": "cluster.etcd.ca", "k8s": "cluster.ca", "k8saggregator": "cluster.aggregatorCA", "os": "machine.ca"}


def bundle_of(text: str) -> secrets.SecretsBundle:
    """The bundle that made a control plane's config. ConfigError, which quotes nothing, for any other text."""
    config = _v1alpha1(text)
    kind = _at(config, "machine.type")
    if kind not in {"controlplane", "init"}:
        sort = "a worker's" if kind == "worker" else "none of a machine"
        raise ConfigError(f"machine config: it is {sort}; only a control plane has all secrets", fix=_FIX)
    content = {
        "cluster": {"id": _at(config, "cluster.id"), "secret": _at(config, "cluster.secret")},
        "secrets": {
            "bootstraptoken": _at(config, "cluster.token"),
            "secretboxencryptionsecret": _at(config, "cluster.secretboxEncryptionSecret"),
            "aescbcencryptionsecret": _at(config, "cluster.aescbcEncryptionSecret"),
        },
        "trustdinfo": {"token": _at(config, "machine.token")},
        "certs": {
            **{name: {half: _at(config, f"{path}.{half}") for half in ("crt", "key")} for name, path in _CERTS.items()},
            "k8sserviceaccount": {"key": _at(config, "cluster.serviceAccount.key")},
        },
    }
    return secrets.load(yaml.safe_dump(content))


def _v1alpha1(text: str) -> Mapping[str, Any]:
    """The document without a kind; the others hold no secret of the bundle."""
    try:
        documents = [document for document in yaml.safe_load_all(text) if isinstance(document, Mapping)]
    except yaml.YAMLError:
        raise ConfigError("machine config: not YAML", fix=_FIX) from None
    base = next((document for document in documents if "kind" not in document), None)
    if base is None:
        raise ConfigError("machine config: it has no document `version: v1alpha1`", fix=_FIX)
    return base


def _at(section: Any, path: str) -> Any:
    for name in path.split("."):
        section = section.get(name) if isinstance(section, Mapping) else None
    return section
