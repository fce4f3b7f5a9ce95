"""Check: names, namespaces and refusals; and the settings of the provider itself."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.plugins.kubernetes import config
from lab.plugins.kubernetes.checking import CheckContext, Naming, check, unique_name
from lab.plugins.kubernetes.errors import ProviderError
from lab.plugins.kubernetes.kinds import built_in_scope
from lab.plugins.kubernetes.properties import UNKNOWN

CONTEXT = CheckContext(server_side_apply=True, default_namespace="apps", managed_by="pulumi", scope=built_in_scope)


def urn(token: str, name: str = "web") -> str:
    return f"urn:pulumi:dev::project::{token}::{name}"


def run(news: dict[str, Any], olds: dict[str, Any] | None = None, **naming: Any) -> dict[str, Any]:
    token = f"kubernetes:core/v1:{news.get('kind')}"
    return check(urn(token), olds or {}, news, Naming(**naming), CONTEXT)


def config_map(**metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


def test_an_unnamed_object_gets_a_name_and_an_annotation() -> None:
    checked = run({"apiVersion": "v1", "kind": "ConfigMap"}, seed=b"seed")
    name = checked["metadata"]["name"]
    assert name == unique_name("web-", b"seed") and len(name) == len("web-") + 8
    assert checked["metadata"]["annotations"] == {"pulumi.com/autonamed": "true"}
    assert checked["metadata"]["namespace"] == "apps"


def test_a_generated_name_is_kept() -> None:
    old = config_map(name="web-1", annotations={"pulumi.com/autonamed": "true"})
    assert run(config_map(), old)["metadata"]["name"] == "web-1"


def test_a_given_name_is_not_kept_when_it_is_dropped() -> None:
    assert "name" not in run(config_map(), config_map(name="given"))["metadata"]


def test_the_engine_proposes_or_forbids_names() -> None:
    assert run(config_map(), proposed="exactly")["metadata"]["name"] == "exactly"
    with pytest.raises(ProviderError, match=r"metadata\.name is missing"):
        run(config_map(), disabled=True)


def test_an_unknown_name_is_a_name() -> None:
    assert run(config_map(name=UNKNOWN))["metadata"] == {"name": UNKNOWN, "namespace": "apps"}


def test_cluster_scoped_kinds_get_no_namespace() -> None:
    checked = run({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}})
    assert "namespace" not in checked["metadata"]


def test_lists_are_refused() -> None:
    with pytest.raises(ProviderError, match="ConfigMapList cannot be a resource"):
        run({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {}})


def test_patches_need_a_name_and_server_side_apply() -> None:
    token = urn("kubernetes:core/v1:ConfigMapPatch")
    with pytest.raises(ProviderError, match=r"Patch without metadata\.name"):
        check(token, {}, config_map(), Naming(), CONTEXT)
    with pytest.raises(ProviderError, match="enableServerSideApply off"):
        check(token, {}, config_map(name="a"), Naming(), replace(CONTEXT, server_side_apply=False))


def test_generated_names_of_the_server_do_not_go_with_server_side_apply() -> None:
    with pytest.raises(ProviderError, match="generateName"):
        run(config_map(generateName="x-"))


def test_the_managed_by_label_is_set_by_client_side_apply_alone() -> None:
    assert "labels" not in run(config_map(name="a"))["metadata"]
    client_side = replace(CONTEXT, server_side_apply=False)
    checked = check(urn("kubernetes:core/v1:ConfigMap"), {}, config_map(name="a"), Naming(), client_side)
    assert checked["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "pulumi"}
    labelled = config_map(name="a", labels={"app.kubernetes.io/managed-by": "pulumi"})
    assert run(config_map(name="a"), labelled)["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "pulumi"}


KUBECONFIG: dict[str, Any] = {
    "current-context": "one",
    "contexts": [
        {"name": "one", "context": {"cluster": "a", "user": "u", "namespace": "team"}},
        {"name": "two", "context": {"cluster": "b", "user": "u"}},
    ],
    "clusters": [
        {"name": "a", "cluster": {"server": "https://a"}},
        {"name": "b", "cluster": {"server": "https://b", "certificate-authority": "ca.crt"}},
    ],
    "users": [{"name": "u", "user": {"token": "t"}}],
}


def settings(**values: Any) -> dict[str, Any]:
    return {"kubeconfig": json.dumps(KUBECONFIG), **values}


def test_settings_are_read_with_their_documented_defaults() -> None:
    plain = config.ProviderConfig.from_variables({}, {})
    assert plain.server_side_apply and not plain.upsert and not plain.mutable_config_maps
    environment = {"PULUMI_K8S_ENABLE_SERVER_SIDE_APPLY": "false", "PULUMI_K8S_DELETE_UNREACHABLE": "true"}
    read = config.ProviderConfig.from_variables({"kubernetes:config:deleteUnreachable": "false"}, environment)
    assert not read.server_side_apply
    assert not read.delete_unreachable, "a setting wins over the environment"


def test_another_cluster_replaces_the_provider_and_another_token_does_not() -> None:
    moved = config.compare(settings(), settings(context="two"))
    assert moved == config.ConfigChange(["context"], ["context"])
    token = json.loads(json.dumps(KUBECONFIG))
    token["users"][0]["user"]["token"] = "other"
    assert config.compare(settings(), {"kubeconfig": json.dumps(token)}) == config.ConfigChange(["kubeconfig"], [])
    assert config.compare(settings(), settings(namespace="x")) == config.ConfigChange(["namespace"], [])
    assert config.compare(settings(), settings()) == config.ConfigChange([], [])


def test_an_unknown_kubeconfig_may_be_another_cluster() -> None:
    assert config.compare(settings(), {"kubeconfig": UNKNOWN}).replaced == ["kubeconfig"]


def test_a_cluster_identifier_decides_alone() -> None:
    assert (
        config.compare(settings(clusterIdentifier="x"), settings(clusterIdentifier="x", context="two")).replaced == []
    )
    assert config.compare(settings(clusterIdentifier="x"), settings(clusterIdentifier="y")).replaced == [
        "clusterIdentifier"
    ]
    assert config.compare(settings(), settings(clusterIdentifier="y")).replaced == []


def test_a_kubeconfig_is_content_or_path(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(KUBECONFIG))
    assert config.read_kubeconfig(json.dumps(KUBECONFIG))["current-context"] == "one"
    read = config.read_kubeconfig(str(path))
    assert read["clusters"][1]["cluster"]["certificate-authority"] == str(tmp_path / "ca.crt")
    with pytest.raises(ValueError, match="neither a readable file"):
        config.read_kubeconfig("/no/such/file")


def test_context_cluster_and_namespace_are_taken_from_the_settings() -> None:
    content = json.dumps(KUBECONFIG)
    first = config.ProviderConfig(kubeconfig=content)
    assert config.default_namespace(first, config.load_kubeconfig(first)) == "team"
    second = config.ProviderConfig(kubeconfig=content, context="two", cluster="a", namespace="mine")
    loaded = config.load_kubeconfig(second)
    assert loaded["contexts"][1]["context"]["cluster"] == "a"
    assert config.default_namespace(second, loaded) == "mine"
    with pytest.raises(ValueError, match='no context "three", only: one, two'):
        config.load_kubeconfig(config.ProviderConfig(kubeconfig=content, context="three"))


def test_kubeconfig_files_of_the_environment_are_merged(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(json.dumps(KUBECONFIG))
    (tmp_path / "b").write_text(json.dumps({"current-context": "two", "clusters": [{"name": "c", "cluster": {}}]}))
    settings = config.ProviderConfig(environment={"KUBECONFIG": f"{tmp_path / 'a'}:{tmp_path / 'b'}:{tmp_path / 'no'}"})
    loaded = config.load_kubeconfig(settings)
    assert loaded["current-context"] == "one"
    assert [item["name"] for item in loaded["clusters"]] == ["a", "b", "c"]


def test_writing_files_in_the_place_of_objects_is_refused() -> None:
    assert config.not_covered({"renderYamlToDirectory": "out", "alwaysRender": "true", "context": "x"}) == [
        "renderYamlToDirectory",
        "alwaysRender",
    ]
    assert config.not_covered({"alwaysRender": "false", "kubeconfig": "k"}) == []
