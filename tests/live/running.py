"""A running site as its checks see it: what it should be, and read-only ways to look at what it is."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx
import yaml
from kubernetes import client, config

from floor.namespaces import MONITORING
from stacks.plan.cluster import PlannedNode
from stacks.plan.site_plan import SitePlan, plan_file
from talos.api.client import MachineClient, connect
from talos.api.talosconfig import parse_talosconfig

ROOT = Path(__file__).parents[2]
_STACK_FILE_OPTION = "PULUMI_OPTION_CONFIG_FILE"
# A first token may wait for a whole prefill.
_ANSWER_S = 300.0
Object = dict[str, Any]
# Services that the operator makes, with their ports.
_PROMETHEUS, _ALERTMANAGER = "prometheus-operated:9090", "alertmanager-operated:9093"


class NoSiteError(Exception):
    """The site cannot be looked at; states why and the fix."""


@dataclass(frozen=True, kw_only=True)
class RunningSite:
    """One site: its plan, and what its stack gives out. Reads alone; requests to models are the only traffic."""

    name: str
    plan: SitePlan
    endpoint: str
    keys: Mapping[str, str] = field(repr=False)
    """Client id, which is TENANT.PURPOSE -> API key."""
    kubeconfig: Object = field(repr=False)
    talosconfig: str = field(repr=False, default="")
    """Empty where the program did not make the cluster."""
    certificate: Path | None = None
    """CA of the endpoint, where it is none that this machine trusts."""
    prometheus_url: str | None = None
    """Where Prometheus answers, such as the end of a port forward; None: asked through the API server."""
    alertmanager_url: str | None = None
    """The same of Alertmanager."""

    @property
    def secrets(self) -> list[str]:
        """Texts that no evidence may have."""
        return [*self.keys.values(), self.talosconfig, json.dumps(self.kubeconfig)]

    @cached_property
    def _api(self) -> client.ApiClient:
        api: client.ApiClient = config.new_client_from_config_dict(self.kubeconfig)
        return api

    def read(self, path: str, **parameters: str) -> Object:
        """What the API server has at a path. Raises ApiException of kubernetes.client for another answer than 200."""
        method, url, headers, *_ = self._api.param_serialize(
            "GET", path, query_params=list(parameters.items()), auth_settings=["BearerToken"]
        )
        answer = self._api.call_api(method, url, {**headers, "Accept": "application/json"}, _request_timeout=30)
        content = answer.read()  # type: ignore[no-untyped-call]
        if answer.status != HTTPStatus.OK:
            raise client.ApiException(status=answer.status, reason=f"{path}: {answer.reason}")
        read: Object = json.loads(content)
        return read

    def items(self, path: str, **parameters: str) -> list[Object]:
        """The objects of a list."""
        return list(self.read(path, **parameters)["items"])

    def pods(self, namespace: str | None, labels: Mapping[str, str]) -> list[Object]:
        """Pods with these labels that are not ending; None: of all namespaces."""
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        where = f"namespaces/{namespace}/" if namespace else ""
        pods = self.items(f"/api/v1/{where}pods", labelSelector=selector)
        return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]

    def prometheus(self, path: str, **parameters: str) -> Object:
        """The data of an answer of Prometheus' API."""
        answer = self._measuring(_PROMETHEUS, self.prometheus_url, f"api/v1/{path}", parameters)
        data: Object = answer["data"]
        return data

    def alertmanager_alerts(self) -> list[Object]:
        """Alerts that Alertmanager has."""
        alerts: list[Object] = self._measuring(_ALERTMANAGER, self.alertmanager_url, "api/v2/alerts", {})
        return alerts

    def _measuring(self, service: str, url: str | None, path: str, parameters: Mapping[str, str]) -> Any:
        """AssertionError where it does not answer: that is a finding, and no reason to end the run."""
        name, _, port = service.partition(":")
        try:
            if url is not None:
                answer = httpx.get(f"{url.rstrip('/')}/{path}", params=parameters, timeout=30, trust_env=False)
                return answer.raise_for_status().json()
            return self.read(f"/api/v1/namespaces/{MONITORING}/services/{service}/proxy/{path}", **parameters)
        except (client.ApiException, httpx.HTTPError) as error:
            option = name.partition("-")[0]
            reason = error.reason if isinstance(error, client.ApiException) else str(error)
            raise AssertionError(
                f"{name} does not answer: {reason}; where pods let no API server in, run `kubectl -n {MONITORING} "
                f"port-forward service/{name} {port}` and give --{option} http://localhost:{port}"
            ) from None

    def key_for(self, model: str) -> str:
        """A key that may call the model. Raises NoSiteError."""
        for tenant, spec in self.plan.site.tenants.items():
            if model in spec.models:
                for client_id, key in self.keys.items():
                    if client_id.partition(".")[0] == tenant:
                        return key
        raise NoSiteError(f"no tenant of {self.name} may call {model}")

    def http(self, key: str | None) -> httpx.Client:
        """A client of the gateway; None: without a key."""
        return httpx.Client(
            base_url=self.endpoint.rstrip("/") + "/",
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx.Timeout(_ANSWER_S, connect=10),
            verify=str(self.certificate) if self.certificate else True,
            trust_env=False,
        )

    @contextmanager
    def machine(self, node: PlannedNode) -> Iterator[MachineClient]:
        """The machine's own API, by the stack's talosconfig."""
        identity = parse_talosconfig(self.talosconfig).identity
        with connect(node.spec.address, identity, node=node.name, call_timeout_s=20) as machine:
            yield machine


def running_site(
    name: str,
    *,
    stack_file: Path | None = None,
    endpoint: str | None = None,
    certificate: Path | None = None,
    prometheus: str | None = None,
    alertmanager: str | None = None,
) -> RunningSite:
    """The site of a stack; `endpoint` instead of the stack's, and addresses of what measures it.

    Raises NoSiteError where the stack has no outputs or no cluster, SiteError for its file.
    """
    given = os.environ.get(_STACK_FILE_OPTION)
    plan = plan_file(stack_file or (Path(given) if given else ROOT / f"Pulumi.{name}.yaml"))
    outputs = _outputs(name)
    if missing := [key for key in ("endpoint", "keys") if key not in outputs]:
        raise NoSiteError(f"the stack {name} has no output {', '.join(missing)}: run `pulumi up` first")
    own = outputs.get("kubeconfig")
    kubeconfig = yaml.safe_load(own or (ROOT / str(plan.site.cluster.kubeconfig)).read_text())
    return RunningSite(
        name=name,
        plan=plan,
        endpoint=endpoint or outputs["endpoint"],
        keys=outputs["keys"],
        kubeconfig=kubeconfig,
        talosconfig=outputs.get("talosconfig", ""),
        certificate=certificate,
        prometheus_url=prometheus,
        alertmanager_url=alertmanager,
    )


def _outputs(name: str) -> Object:
    try:
        done = subprocess.run(
            ["pulumi", "stack", "output", "--json", "--show-secrets", "--stack", name],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        raise NoSiteError('pulumi is not on PATH: install it; for the lab: eval "$(python -m lab env)"') from None
    if done.returncode != 0:
        raise NoSiteError(f"`pulumi stack output --stack {name}`: {done.stderr.strip()[-400:]}")
    return dict(json.loads(done.stdout))
