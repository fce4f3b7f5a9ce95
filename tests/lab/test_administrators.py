"""People of a site's issuer at an API server that runs by the site's machine config: what they may, and the record."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import ssl
import subprocess
import threading
import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import oidc_provider_mock
import pytest
import werkzeug.serving

from components.machines.administrators import role_objects
from lab.free_ports import free_ports
from lab.machines.kubernetes_pki import control_plane_pki
from lab.paths import Lab
from stacks.plan.site_plan import plan_values
from talos.secrets import pki
from tests.certificates import Authority, authority
from tests.lab.waiting import eventually
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import changed
from tests.unit.talos import talos_examples

pytestmark = pytest.mark.row("000.05")

HOST, SECTION = "127.0.0.1", "cluster.machines"
PEOPLE = {"vic": ["seers"], "olga": ["hands"], "ada": ["heads"], "mallory": ["system:masters"]}
WORD = "correct-horse-battery"
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}}
ACCOUNT = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "default"}}


def pod(name: str) -> dict[str, Any]:
    spec = {"nodeName": "node-1", "containers": [{"name": "main", "image": "none"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def tls(own: Authority, folder: Path) -> ssl.SSLContext:
    """Of a server of the site, whose CA is the site's."""
    folder.mkdir()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*own.identity(folder, HOST))
    return context


@dataclass
class Rig:
    """etcd and API server; `sent` is what the collector of the record got."""

    bin: Path
    folder: Path
    ports: list[int]
    site: Authority
    sent: list[dict[str, Any]] = field(default_factory=list)

    @property
    def issuer(self) -> str:
        return f"https://{HOST}:{self.ports[0]}"

    def file(self, name: str, text: str) -> str:
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_text(text)
        return str(path)

    def kubectl(self, who: str, *words: str, given: object = None) -> subprocess.CompletedProcess[str]:
        """As a person of the issuer, or as the administrator with the certificate of the stack's kubeconfig."""
        server = [f"--server=https://{HOST}:{self.ports[1]}", f"--certificate-authority={self.folder / 'ca.crt'}"]
        own = (
            [f"--client-certificate={self.folder / 'admin.crt'}", f"--client-key={self.folder / 'admin.key'}"]
            if who == "admin"
            else [f"--token={self.token(who)}"]
        )
        home = {"HOME": str(self.folder / "home"), "PATH": os.environ["PATH"]}
        text = json.dumps(given) if given is not None else None
        words = (*server, *own, *words)
        return subprocess.run(
            [self.bin / "kubectl", *words], input=text, env=home, capture_output=True, text=True, check=False
        )

    def token(self, who: str) -> str:
        """What a browser gets out of a login."""
        client = {"client_id": "kubernetes", "redirect_uri": "http://localhost:8000"}
        with httpx.Client(verify=ssl.create_default_context(cadata=self.site.pem), base_url=self.issuer) as browser:
            asked = {**client, "response_type": "code", "scope": "openid email"}
            landed = browser.post("/oauth2/authorize", params=asked, data={"sub": who}).headers["location"]
            code = parse_qs(urlsplit(landed).query)["code"][0]
            form = {**client, "client_secret": "none", "grant_type": "authorization_code", "code": code}
            token: str = browser.post("/oauth2/token", data=form).json()["id_token"]
        return token

    @property
    def record(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "audit.log").read_text().splitlines()]


@contextlib.contextmanager
def running(words: list[str], log: Path, **environment: str) -> Iterator[None]:
    with log.open("w") as output:
        process = subprocess.Popen(
            words, stdout=output, stderr=subprocess.STDOUT, env={"PATH": os.environ["PATH"], **environment}
        )
        try:
            yield
        finally:
            process.kill()
            process.wait()


@contextlib.contextmanager
def serving(server: Any) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def issuing(rig: Rig) -> Iterator[None]:
    users = [
        oidc_provider_mock.User(
            sub=name, claims={"email": f"{name}@site.example", "email_verified": True, "groups": groups}
        )
        for name, groups in PEOPLE.items()
    ]
    with warnings.catch_warnings(action="ignore"):
        app = oidc_provider_mock.app(user_claims=users)
    context = tls(rig.site, rig.folder / "issuer")
    with serving(werkzeug.serving.make_server(HOST, rig.ports[0], app, threaded=True, ssl_context=context)):
        yield


@contextlib.contextmanager
def collecting(rig: Rig) -> Iterator[None]:
    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            rig.sent.extend(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["items"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer((HOST, rig.ports[2]), Collector)
    server.socket = tls(rig.site, rig.folder / "collector").wrap_socket(server.socket, server_side=True)
    with serving(server):
        yield


def api_server(rig: Rig) -> list[str]:
    """The command, with what the site's config adds; files of the machine are in the rig's folder."""
    own = {
        "administrators": {"issuer": rig.issuer, "viewers": ["seers"], "operators": ["hands"], "admins": ["heads"]},
        "audit": {"webhook": f"https://{HOST}:{rig.ports[2]}/audit"},
    }
    site = changed(prod(), {f"{SECTION}.{key}": value for key, value in own.items()})
    plan = plan_values(site, "Pulumi.prod.yaml")
    assert plan.machines
    bundle = talos_examples.bundle()
    config = plan.machines.documents(bundle, defaultdict(lambda: "none"), None)["cp-1"][0]
    settings, (written,) = config["cluster"]["apiServer"], config["machine"]["files"]
    here = {mount["mountPath"]: mount["hostPath"] for mount in settings["extraVolumes"]}
    arguments = dict(settings["extraArgs"])
    folder, _, name = arguments["audit-webhook-config-file"].rpartition("/")
    assert f"{here[folder]}/{name}" == written["path"], "the file is where the pod looks for it"
    arguments["audit-webhook-config-file"] = rig.file("webhook.json", written["content"])
    for pem, text in control_plane_pki(bundle.kubernetes, [HOST]).items():
        rig.file(pem, text)
    key = rig.file("accounts.key", pki.private_key_pem(pki.load_private_key(bundle.service_account_key, "key")))
    arguments |= {
        # As Talos v1.13.9 has them (control_plane_static_pod.go:340-376).
        "anonymous-auth": "false",
        "audit-policy-file": rig.file("policy.yaml", json.dumps(settings["auditPolicy"])),
        "audit-log-path": str(rig.folder / "audit.log"),
        "authorization-mode": "Node,RBAC",
        "client-ca-file": str(rig.folder / "ca.crt"),
        "enable-admission-plugins": "NodeRestriction",
        "etcd-servers": f"http://{HOST}:{rig.ports[3]}",
        "secure-port": str(rig.ports[1]),
        "service-account-issuer": "https://kubernetes.site.example",
        "service-account-key-file": key,
        "service-account-signing-key-file": key,
        "service-cluster-ip-range": "10.96.0.0/12",
        "tls-cert-file": str(rig.folder / "admin.crt"),
        "tls-private-key-file": str(rig.folder / "admin.key"),
        # A worker's network namespace has no route by which the server would find one.
        "advertise-address": "192.0.2.1",
    }
    for place, body in enumerate(role_objects(plan.site.cluster.machines.administrators.groups).values()):  # type: ignore[union-attr]
        rig.file(f"role-{place}.json", json.dumps(body))
    return [str(rig.bin / "kube-apiserver"), *(f"--{flag}={value}" for flag, value in arguments.items())]


@pytest.fixture(scope="module")
def rig(module_lab_of_tools: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """The cluster, while neither issuer nor collector answer: the administrator makes what a site's `up` makes."""
    folder = tmp_path_factory.mktemp("administrators")
    here = Rig(module_lab_of_tools.bin, folder, free_ports(5), authority())
    client, peer = (f"http://{HOST}:{port}" for port in here.ports[3:])
    etcd = [str(here.bin / "etcd"), f"--data-dir={folder / 'etcd'}", "--unsafe-no-fsync"]
    etcd += [f"--listen-client-urls={client}", f"--advertise-client-urls={client}"]
    etcd += [f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}"]
    # The roots of the host, which the config mounts.
    roots = here.file("roots.pem", here.site.pem)
    with (
        running(etcd, folder / "etcd.log"),
        running(api_server(here), folder / "api-server.log", SSL_CERT_FILE=roots),
    ):
        eventually(lambda: here.kubectl("admin", "get", "--raw", "/readyz").returncode == 0)
        # A server that is ready may still have to make it.
        eventually(lambda: here.kubectl("admin", "get", "namespace", "default").returncode == 0)
        for body in (NODE, ACCOUNT, pod("first"), pod("second")):
            done = here.kubectl("admin", "create", "-f", "-", given=body)
            assert done.returncode == 0, done.stderr
        for path in sorted(folder.glob("role-*.json")):
            assert here.kubectl("admin", "create", "-f", str(path)).returncode == 0
        yield here


@pytest.fixture(scope="module")
def people(rig: Rig) -> Iterator[Rig]:
    """The same with issuer and collector."""
    with issuing(rig), collecting(rig):
        eventually(lambda: rig.kubectl("ada", "get", "nodes").returncode == 0)
        yield rig


def test_an_issuer_that_is_away_locks_no_administrator_out(rig: Rig) -> None:
    assert rig.kubectl("admin", "get", "secrets").returncode == 0
    assert not rig.sent


VIEW = ["get", "nodes,pods,configmaps", "--all-namespaces"]
SECRETS = ["get", "secrets", "--all-namespaces"]
RESTART = ["delete", "pod", "first", "--grace-period=0", "--force"]
LOGS = ["auth", "can-i", "get", "pods", "--subresource=log"]
CORDON = ["cordon", "node-1"]
GRANT = ["create", "clusterrolebinding", "mine", "--clusterrole=cluster-admin", "--user=oidc:olga@site.example"]
# A template may mount any Secret.
DEPLOY = ["create", "deployment", "mine", "--image=none"]


@pytest.mark.parametrize(
    ("who", "may", "may_not"),
    [
        ("mallory", [], [VIEW, SECRETS, CORDON, GRANT]),
        ("vic", [VIEW], [SECRETS, LOGS, RESTART, CORDON, DEPLOY, GRANT]),
        ("olga", [VIEW, LOGS, CORDON, RESTART], [SECRETS, DEPLOY, GRANT]),
        ("ada", [VIEW, SECRETS, LOGS, DEPLOY, GRANT], []),
    ],
)
def test_people_may_what_their_groups_may(
    people: Rig, who: str, may: list[list[str]], may_not: list[list[str]]
) -> None:
    for words in may_not:
        # Its status is 0 where a node could not be cordoned.
        done = people.kubectl(who, *words)
        assert "forbidden" in done.stderr.lower() or done.stdout.startswith("no"), done
    for words in may:
        done = people.kubectl(who, *words)
        assert done.returncode == 0 and "forbidden" not in done.stderr, done.stderr


def test_an_operator_drains_a_node(people: Rig) -> None:
    done = people.kubectl("olga", "drain", "node-1", "--force", "--grace-period=0", "--timeout=60s")
    assert done.returncode == 0, done.stderr
    assert people.kubectl("admin", "get", "pods", "-o", "name").stdout == ""
    assert people.kubectl("admin", "get", "node", "node-1", "-o", "jsonpath={.spec.unschedulable}").stdout == "true"


def test_the_record_names_who_changed_what_and_holds_no_secret(people: Rig) -> None:
    made = people.kubectl("ada", "create", "secret", "generic", "mine", f"--from-literal=word={WORD}")
    assert made.returncode == 0, made.stderr
    assert people.kubectl("ada", "label", "node", "node-1", "rack=seven").returncode == 0

    def acts(kept: str, verb: str, resource: str) -> list[dict[str, Any]]:
        mine = [e for e in getattr(people, kept) if e["user"].get("username") == "oidc:ada@site.example"]
        mine = [event for event in mine if event["verb"] == verb]
        return [event for event in mine if event.get("objectRef", {}).get("resource") == resource]

    for kept in ("record", "sent"):
        changed_node = eventually(partial(acts, kept, "patch", "nodes"))[-1]
        assert "oidc:heads" in changed_node["user"]["groups"]
        assert changed_node["requestObject"]["metadata"]["labels"] == {"rack": "seven"}
        assert acts(kept, "create", "secrets")[-1]["objectRef"]["name"] == "mine"
    body = people.kubectl("admin", "get", "secret", "mine", "-o", "jsonpath={.data.word}").stdout
    assert body
    for text in (json.dumps(people.record), json.dumps(people.sent)):
        assert body not in text
        assert WORD not in text
