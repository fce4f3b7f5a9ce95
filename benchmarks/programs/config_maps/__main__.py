"""Declares `objects` ConfigMaps in one namespace, with the provider that the platform's program uses."""

import pulumi
import pulumi_kubernetes as kubernetes

config = pulumi.Config()
space = config.require("namespace")
provider = kubernetes.Provider(
    "cluster", kubeconfig=config.require("kubeconfig"), cluster_identifier="lab", enable_server_side_apply=True
)
there = kubernetes.core.v1.Namespace("space", metadata={"name": space}, opts=pulumi.ResourceOptions(provider=provider))
for number in range(config.require_int("objects")):
    name = f"object-{number:04}"
    kubernetes.core.v1.ConfigMap(
        name,
        metadata={"name": name, "namespace": space, "labels": {"app.kubernetes.io/part-of": "engine-cost"}},
        data={"number": str(number), "text": "x" * 200},
        opts=pulumi.ResourceOptions(provider=provider, depends_on=[there]),
    )
