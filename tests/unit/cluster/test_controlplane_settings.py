from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from lab.cluster import controlplane, dns, kubeproxy
from lab.errors import LabError
from lab.paths import Lab


@pytest.fixture
def home(tmp_path: Path) -> Lab:
    return Lab(home=tmp_path, cache=tmp_path / "cache", index=0)


def arguments(lab: Lab, component: str) -> dict[str, str]:
    patches = {patch["name"]: patch["extraArgs"] for patch in controlplane.settings(lab)[0]["componentsPatches"]}
    return {argument["key"]: argument["value"] for argument in patches[component]}


def test_kwok_has_stages_for_nodes_and_none_for_pods(home: Lab) -> None:
    kinds = {document["spec"]["resourceRef"]["kind"] for document in controlplane.settings(home)[1:]}
    # Without any stage of its own kwokctl would put in its defaults, which also run pods.
    assert kinds == {"Node"}


def test_every_program_is_named_so_nothing_is_downloaded(home: Lab) -> None:
    options = controlplane.settings(home)[0]["options"]
    for name in ("etcd", "kubeApiserver", "kubeControllerManager", "kubeScheduler", "kwokController", "kubectl"):
        assert options[f"{name}Binary"].startswith(str(home.bin))


def test_api_server_advertises_the_bridge_and_its_certificate_has_it(home: Lab) -> None:
    assert arguments(home, "kube-apiserver")["advertise-address"] == "198.18.0.1"
    assert {"198.18.0.1", "198.18.32.1", "kubernetes.default.svc"} <= set(controlplane.api_names(home))


def test_api_server_and_controller_manager_agree_on_the_service_range(home: Lab) -> None:
    for component in ("kube-apiserver", "kube-controller-manager"):
        assert arguments(home, component)["service-cluster-ip-range"] == "198.18.32.0/20"


def test_etcd_listens_on_loopback_alone(home: Lab) -> None:
    urls = [value for key, value in arguments(home, "etcd").items() if key.endswith("urls")]
    assert len(urls) == 4
    assert all(url.startswith("http://127.0.0.1:") for url in urls)


def test_recorded_commands_are_read_back(home: Lab) -> None:
    folder = controlplane.cluster_folder(home)
    folder.mkdir(parents=True)
    recorded = {
        "kind": "KwokctlConfiguration",
        "components": [
            {
                "name": "etcd",
                "binary": "/x/bin/etcd",
                "args": ["--a=b"],
                "workDir": str(folder),
                "envs": [{"name": "E", "value": "1"}],
            }
        ],
    }
    (folder / "kwok.yaml").write_text(yaml.safe_dump_all([{"kind": "Stage"}, recorded]))
    (etcd,) = controlplane.components(home)
    assert etcd.argv == ("/x/bin/etcd", "--a=b")
    assert etcd.environment == (("E", "1"),)
    assert etcd.pid_file == folder / "pids" / "etcd.pid"
    assert etcd.needs == controlplane.switch(home), "it must stop with the machine that runs it"


def test_no_components_before_creation(home: Lab) -> None:
    assert controlplane.components(home) == []


def test_missing_tools_are_all_named_at_once(home: Lab) -> None:
    home.bin.mkdir()
    (home.bin / "etcd").touch()
    (home.bin / "envoy").symlink_to(home.bin / "of-another-venv")
    with pytest.raises(LabError, match=r"envoy, .*kube-apiserver.*kwokctl") as refused:
        controlplane.require_tools(home)
    assert "etcd," not in refused.value.what
    assert "lab install" in refused.value.fix


def test_kubeconfig_is_for_its_owner_and_has_the_bridge_address(home: Lab) -> None:
    pki = controlplane.cluster_folder(home) / "pki"
    pki.mkdir(parents=True)
    (pki / "ca.crt").write_text("authority")
    controlplane.write_kubeconfig(home, home.kubeconfig, {"token": "t"})
    assert home.kubeconfig.stat().st_mode & 0o077 == 0
    assert json.loads(home.kubeconfig.read_text())["clusters"][0]["cluster"]["server"] == "https://198.18.0.1:6443"


def test_kube_proxy_leaves_conntrack_limits_alone_and_its_settings_are_written_once(home: Lab) -> None:
    written = kubeproxy.settings(home)
    assert written["conntrack"] == {
        "maxPerCore": 0,
        "min": 0,
        "tcpEstablishedTimeout": "0s",
        "tcpCloseWaitTimeout": "0s",
    }
    assert (written["hostnameOverride"], written["clusterCIDR"]) == ("cp-1", "198.18.0.0/19")
    kubeproxy.write_settings(home)
    first = kubeproxy.settings_file(home).stat().st_mtime_ns
    kubeproxy.write_settings(home)
    assert kubeproxy.settings_file(home).stat().st_mtime_ns == first


def test_dns_has_its_address_and_forwards_nothing(home: Lab) -> None:
    objects = {manifest["kind"]: manifest for manifest in dns.manifests(home.network)}
    assert objects["Service"]["spec"]["clusterIP"] == "198.18.32.10"
    corefile = objects["ConfigMap"]["data"]["Corefile"]
    assert "forward" not in corefile
    assert "NXDOMAIN" in corefile
    assert objects["Deployment"]["spec"]["template"]["spec"]["dnsPolicy"] == "Default"
