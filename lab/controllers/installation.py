"""Installs the gateway controllers into a running lab, and says whether they serve."""

from __future__ import annotations

import time
from collections.abc import Callable

from kubernetes import client, dynamic
from kubernetes.client.exceptions import ApiException

from lab.cluster import api
from lab.controllers import charts, crd_gate, releases
from lab.controllers.charts import Manifest
from lab.errors import LabError
from lab.paths import Lab

FIELD_MANAGER = "lab-controllers"
_JOB_TIMEOUT_S = 180.0
_POLL_S = 0.5
_NOT_FOUND = 404


def plan(lab: Lab) -> list[Manifest]:
    """Every object of the controllers, in the order of applying; raises LabError when a chart cannot be rendered."""
    rendered = [*charts.render(lab, releases.ENVOY_GATEWAY), *charts.render(lab, releases.AI_GATEWAY)]
    workloads = [manifest for manifest in rendered if manifest["kind"] == "Deployment"]
    accounts = {
        (workload["metadata"]["namespace"], workload["spec"]["template"]["spec"]["serviceAccountName"])
        for workload in workloads
    }
    return charts.in_order(
        [
            *(releases.namespace(name) for name in releases.NAMESPACES),
            *releases.quota_store(),
            *crd_gate.permissions(sorted(accounts)),
            *(crd_gate.gated(manifest) if manifest["kind"] == "Deployment" else manifest for manifest in rendered),
        ]
    )


def install(lab: Lab) -> None:
    """Bring both controllers to what the charts say; a second run changes nothing.

    The Deployments start once the program has made the CRDs, so this does not wait for them.
    Raises LabError when a chart cannot be rendered or the certificates' Job does not complete.
    """
    manifests = plan(lab)
    with api.connect(lab) as connection:
        resources = dynamic.DynamicClient(connection)
        for manifest in manifests:
            if manifest["kind"] == "Secret" and _exists(resources, manifest):
                # The chart makes another certificate at every rendering.
                continue
            if manifest["kind"] == "Job":
                _run_certificates_job(connection, resources, manifest)
            else:
                _apply(resources, manifest)


def ready(lab: Lab) -> bool:
    """Whether both controllers run their newest version and every replica is ready; False without a cluster."""
    if not lab.kubeconfig.exists():
        return False
    wanted = (
        (releases.ENVOY_GATEWAY_NAMESPACE, "envoy-gateway"),
        (releases.AI_GATEWAY_NAMESPACE, releases.AI_GATEWAY_CONTROLLER),
    )
    with api.connect(lab) as connection:
        apps = client.AppsV1Api(connection)
        try:
            return all(_is_rolled_out(apps.read_namespaced_deployment(name, namespace)) for namespace, name in wanted)
        except ApiException as error:
            if error.status == _NOT_FOUND:
                return False
            raise


def _is_rolled_out(deployment: client.V1Deployment) -> bool:
    status = deployment.status
    if (status.observed_generation or 0) < deployment.metadata.generation:
        return False
    counts = {status.replicas or 0, status.updated_replicas or 0, status.ready_replicas or 0}
    return counts == {deployment.spec.replicas}


def _apply(resources: dynamic.DynamicClient, manifest: Manifest) -> None:
    resources.server_side_apply(
        resources.resources.get(api_version=manifest["apiVersion"], kind=manifest["kind"]),
        body=manifest,
        name=manifest["metadata"]["name"],
        namespace=manifest["metadata"].get("namespace"),
        field_manager=FIELD_MANAGER,
        force_conflicts=True,
    )


def _exists(resources: dynamic.DynamicClient, manifest: Manifest) -> bool:
    kind = resources.resources.get(api_version=manifest["apiVersion"], kind=manifest["kind"])
    try:
        resources.get(kind, name=manifest["metadata"]["name"], namespace=manifest["metadata"]["namespace"])
    except ApiException as error:
        if error.status == _NOT_FOUND:
            return False
        raise
    return True


def _run_certificates_job(
    connection: client.ApiClient, resources: dynamic.DynamicClient, job: Manifest, timeout_s: float = _JOB_TIMEOUT_S
) -> None:
    """Run the chart's certgen hook unless its certificates exist already."""
    namespace, name = job["metadata"]["namespace"], job["metadata"]["name"]
    certificates = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "envoy-gateway", "namespace": namespace}}
    if _exists(resources, certificates):
        return
    batch = client.BatchV1Api(connection)
    _delete_failed(batch, namespace, name)
    _apply(resources, job)
    _wait_completed(lambda: batch.read_namespaced_job(name, namespace), namespace, name, timeout_s)


def _delete_failed(batch: client.BatchV1Api, namespace: str, name: str) -> None:
    """A Job never tries again after its last attempt, so a failed one makes room for another."""
    try:
        status = batch.read_namespaced_job(name, namespace).status
        if status.failed and not status.active and not status.succeeded:
            batch.delete_namespaced_job(name, namespace, propagation_policy="Background")
            while True:
                batch.read_namespaced_job(name, namespace)
                time.sleep(_POLL_S)
    except ApiException as error:
        if error.status != _NOT_FOUND:
            raise


def _wait_completed(read: Callable[[], client.V1Job], namespace: str, name: str, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        status = read().status
        if status.succeeded:
            return
        failed = any(condition.type == "Failed" and condition.status == "True" for condition in status.conditions or [])
        if failed or time.monotonic() > deadline:
            what = "failed" if failed else f"has not completed after {timeout_s:g} s"
            raise LabError(
                f"controllers: Job {namespace}/{name}, which makes the gateway's certificates, {what}",
                fix=f"see `kubectl -n {namespace} describe pods -l app=certgen` for the reason; the pod runner has "
                "to run (`python -m lab up`)",
            )
        time.sleep(_POLL_S)
