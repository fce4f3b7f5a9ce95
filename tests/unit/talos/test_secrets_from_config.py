"""The secrets bundle out of a control plane's machine config: and an error that quotes nothing for any other text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import yaml

from talos.documents.problems import ConfigError
from talos.secrets.from_config import bundle_of
from tests.unit.talos import talos_examples as examples


def config() -> str:
    return examples.control_plane_config().render()


def test_a_control_planes_config_holds_the_whole_bundle() -> None:
    assert bundle_of(config()) == examples.bundle()


def test_a_cluster_of_an_old_contract_keeps_its_encryption() -> None:
    documents = list(yaml.safe_load_all(config()))
    cluster = documents[0]["cluster"]
    cluster["aescbcEncryptionSecret"] = cluster.pop("secretboxEncryptionSecret")
    expected = replace(
        examples.bundle(),
        secretbox_encryption_secret=None,
        aescbc_encryption_secret=examples.bundle().secretbox_encryption_secret,
    )
    assert bundle_of(yaml.safe_dump_all(documents)) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (lambda: examples.hgx_config().render(), "machine config: it is a worker's"),
        (lambda: examples.bundle().export(), "machine config: it is none of a machine"),
        (lambda: "kind: HostnameConfig\n", "machine config: it has no document `version: v1alpha1`"),
        (lambda: "a: [", "machine config: not YAML"),
        (lambda: config().replace(examples.bundle().trustd_token, "[redacted]"), "trustdinfo.token"),
    ],
)
def test_anything_else_is_an_error_that_quotes_nothing(text: Callable[[], str], says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        bundle_of(text())
    assert says in str(refused.value)
    assert examples.bundle().bootstrap_token not in str(refused.value)
