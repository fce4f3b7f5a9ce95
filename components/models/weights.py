"""A model's weights: the volume that its replicas share, the Job that fills it, and how a server mounts a revision.

`node_weights` has what differs where each node has them on its own disk.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from components.models import own_program
from components.network_policies import Rule, allow_ingress
from components.specs.weights import SERVED, WEIGHTS, WeightsSpec, adapter_of
from floor import gpu_nodes
from floor.metadata import DISPOSABLE
from floor.stateful import Keeping
from services.weights import variables
from services.weights.order import Wanted, WeightsOrder

# Where a whole volume is in a pod that has no revision of its own to read.
MOUNT = "/models"
_CACHE, _USED = "/models/vllm-cache", "/models/used"
ADAPTERS = "/models/adapters"
"""Where a server has all revisions of its volume, those of its adapters among them, by their commits."""
HEADROOM = 1.1
CLAIM_MARK = "-weights-"
"""What the name of a model's claim has between model and class."""
CA_KEY = "ca.crt"
_CA_FOLDER = "/etc/weights-ca"
PROGRAM = "weights"
"""Its name in services/."""
_ORDER, _ORDER_FOLDER = "weights-order", "/etc/weights-order"
# A node that is lost, or a server that was away for long, costs one of these.
_MORE_RUNS = 2
# The provider waits for this long after the Job itself would have ended: its image, and a place on a node.
_SCHEDULING_S = 300
# What came is in the volume, so a pod on a lost node is replaced soon, within the time of a short Job too.
_LOST_NODE = [
    {"key": f"node.kubernetes.io/{state}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}
    for state in ("not-ready", "unreachable")
]
_NAMES = [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]


@dataclass(frozen=True, kw_only=True)
class WeightsPlan:
    """The weights of one model: what is brought, from where, and what it may take."""

    order: WeightsOrder
    roles: tuple[str, ...]
    """What each that is wanted is for, in their order."""
    image: str
    """Whose Python runs the program: the engine's own, which its nodes have."""
    storage_class: str
    """Of the volume that the replicas share."""
    volume_bytes: float
    """Of all revisions that have room."""
    budget_s: int
    """The Job fails after that."""
    token_secret: str
    """Secret of the models' namespace with the hub's token, a bucket's keys or a registry's login; empty for none."""
    ca_config_map: str
    """ConfigMap of the models' namespace with the site's authorities; empty for none."""
    egress: Sequence[Rule] | None
    """What the Job may reach; None leaves that open."""
    node_path: str = ""
    """Folder of each GPU node for all models; empty where the replicas share one volume."""

    @property
    def by_role(self) -> dict[str, Wanted]:
        """What is wanted, by what it is for. Raises ValueError where one has no role."""
        return dict(zip(self.roles, self.order.wanted, strict=True))

    @property
    def claim(self) -> str:
        """Name of the claim that pods mount."""
        if self.node_path:
            return node_claim_name(self.order.model, self.node_path)
        return claim_name(self.order.model, self.storage_class)

    @property
    def daemon_set(self) -> str:
        """Name of what fills each node."""
        return f"{self.order.model}-weights"

    def within(self, folder: str = "") -> dict[str, str]:
        """The field of a mount that leads to a folder of the model; nothing for a volume as a whole."""
        path = "/".join(filter(None, (self.order.model if self.node_path else "", folder)))
        return {"subPath": path} if path else {}

    @property
    def job(self) -> str:
        """Name of the Job: another order is another Job."""
        return f"{self.order.model}-weights-{self.by_role[SERVED].revision[:8]}"

    @property
    def patience_s(self) -> int:
        """How long `up` waits for the Job."""
        return self.budget_s + _SCHEDULING_S


def folder(role: str) -> str:
    """Where a server has the repository of this role."""
    return f"{MOUNT}/{role}"


def environment() -> Mapping[str, str]:
    """Environment of vLLM: it downloads nothing, and keeps what it compiles in the volume."""
    return {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_CACHE_ROOT": _CACHE}


def egress(spec: WeightsSpec) -> Sequence[Rule] | None:
    """What the Job may reach for weights; None where its policy cannot express it.

    A NetworkPolicy knows no host names. The hub and the stores that it redirects to are anywhere, behind HTTPS. A
    mirror or registry redirects to whatever it likes, and the port of a Service is not that of its pods, as a bucket's
    may be.
    """
    match spec.source:
        case "volume":
            return []
        case "mirror" | "bucket" | "oci":
            return None
    return [{"ports": [*_NAMES, {"protocol": "TCP", "port": 443}]}]


def claim_name(model: str, storage_class: str) -> str:
    """Of a model's volume: another class is another volume, as that field of a claim never changes.

    The new one is made and filled, then servers move to it, then the old one is deleted. Under one name, the claim
    could not be deleted while servers mount it, and the provider's preview would fail.
    """
    return f"{model}{CLAIM_MARK}{storage_class}"


def node_claim_name(model: str, path: str) -> str:
    """Of the folder on each node: another path is another volume, as no field of one can change."""
    return f"{model}-node{path.replace('-', '--').replace('/', '-')}"


def volume_gib(weight_bytes: float) -> int:
    """Size of a model's volume: a tenth more than the weights, in whole GiB."""
    return math.ceil(weight_bytes * HEADROOM / 2**30)


def claim(
    name: str,
    namespace: str,
    *,
    labels: Mapping[str, str],
    weight_bytes: float,
    storage_class: str,
    keeping: Keeping = "protected",
) -> dict[str, Any]:
    """The one volume that all replicas of a model share."""
    marks = {"annotations": {DISPOSABLE: "true"}} if keeping == "disposable" else {}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": claim_name(name, storage_class), "namespace": namespace, "labels": dict(labels), **marks},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": f"{volume_gib(weight_bytes)}Gi"}},
        },
    }


def labels(name: str) -> dict[str, str]:
    """Of the pods that write the volume: no server's, so no request reaches them."""
    return {"app.kubernetes.io/name": WEIGHTS, "app.kubernetes.io/instance": name}


def order(name: str, namespace: str, plan: WeightsPlan) -> dict[str, Any]:
    """What the program is to bring, as files of one folder."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": _order_name(name), "namespace": namespace, "labels": labels(name)},
        "data": plan.order.files(),
    }


def job(name: str, namespace: str, plan: WeightsPlan) -> dict[str, Any]:
    """Brings every wanted revision into the volume, once, before a server starts."""
    return _job(name, namespace, plan, "bring", plan.job, {"activeDeadlineSeconds": plan.budget_s})


def prune_job(name: str, namespace: str, plan: WeightsPlan) -> dict[str, Any]:
    """Removes earlier revisions, once every server runs on the wanted ones."""
    revision = plan.by_role[SERVED].revision[:8]
    return _job(name, namespace, plan, "prune", f"{name}-prune-{revision}", {"activeDeadlineSeconds": _SCHEDULING_S})


def _job(
    name: str, namespace: str, plan: WeightsPlan, command: str, called: str, limits: Mapping[str, Any]
) -> dict[str, Any]:
    pod = writing_pod(name, plan, command)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": called,
            "namespace": namespace,
            "labels": labels(name),
            # One that failed is made again by the next `up`, not waited for.
            "annotations": {"pulumi.com/replaceUnready": "true"},
        },
        "spec": {
            "backoffLimit": _MORE_RUNS,
            **limits,
            "template": {
                "metadata": {"labels": labels(name)},
                "spec": {
                    "restartPolicy": "Never",
                    **pod,
                    "tolerations": [*pod["tolerations"], *_LOST_NODE],
                },
            },
        },
    }


def writing_pod(name: str, plan: WeightsPlan, command: str) -> dict[str, Any]:
    """A pod whose one container writes the volume."""
    container = {
        **runs(plan, command),
        "name": "weights",
        "args": [
            "--volume=/volume",
            f"--order={_ORDER_FOLDER}",
            f"--digest={plan.order.digest}",
            *(["--remove-earlier"] if plan.node_path and command == "bring" else []),
        ],
        "resources": {"requests": {"cpu": "1", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
        "volumeMounts": [
            mounted_program(),
            _mounted_order(),
            {"name": "weights", "mountPath": "/volume", **plan.within()},
        ],
    }
    authorities: list[dict[str, Any]] = []
    if command == "bring" and plan.order.source != "volume":
        container["env"] = [*container["env"], *_source_variables(plan)]
        if plan.ca_config_map:
            container["args"] = [*container["args"], f"--ca={_CA_FOLDER}/{CA_KEY}"]
            container["volumeMounts"] = [
                *container["volumeMounts"],
                {"name": "ca", "mountPath": _CA_FOLDER, "readOnly": True},
            ]
            # Where it is missing the program states so; a pod that waits for it would only run out of time.
            authorities = [{"name": "ca", "configMap": {"name": plan.ca_config_map, "optional": True}}]
    near_gpus = {"key": gpu_nodes.FAMILY_LABEL, "operator": "Exists"}
    return {
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        # Where the servers run: the engine's image is there already, and other nodes need not mount the volume.
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [near_gpus]}]
                }
            }
        },
        "tolerations": [{"key": gpu_nodes.TAINT_KEY, "operator": "Exists", "effect": gpu_nodes.TAINT_EFFECT}],
        "containers": [container],
        "volumes": [*_input_volumes(name), _weights_volume(plan.claim), *authorities],
    }


def _source_variables(plan: WeightsPlan) -> list[dict[str, Any]]:
    """Where the program downloads from, and what opens it. Where a Secret is missing the program states so."""
    source = plan.order.source
    return [
        {"name": variables.address_of(source), "value": plan.order.endpoint},
        *(
            {"name": name, "valueFrom": {"secretKeyRef": {"name": plan.token_secret, "key": key, "optional": True}}}
            for name, key in (*variables.KEYS[source].items(), *variables.OPTIONAL_KEYS.get(source, {}).items())
            if plan.token_secret
        ),
    ]


def network_policy(name: str, namespace: str, plan: WeightsPlan) -> dict[str, Any]:
    """No pod reaches the Job's pods, and they reach the source alone."""
    return allow_ingress(f"{name}-weights", namespace, labels(name), [], egress=plan.egress)


def check_containers(plan: WeightsPlan) -> list[dict[str, Any]]:
    """A server's containers that end well only where the revision is whole; they run before the engine."""
    own, adapters = _apart(plan)
    checks = [
        _check(
            plan,
            f"check-{role}",
            [f"--folder={folder(role)}", f"--repository={wanted.repository}", f"--revision={wanted.revision}"],
            _revision(plan, role, wanted.revision),
        )
        for role, wanted in own.items()
    ]
    if adapters:
        # One for all: a container starts after the other.
        named = [f"--each={wanted.repository}@{wanted.revision}" for wanted in adapters]
        checks.append(_check(plan, "check-adapters", [f"--folder={ADAPTERS}", *named], _revisions(plan)))
    return checks


def _check(plan: WeightsPlan, name: str, what: Sequence[str], mount: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **runs(plan, "check"),
        "name": name,
        "args": [
            f"--order={_ORDER_FOLDER}",
            *what,
            *([f"--daemon-set={plan.daemon_set}", f"--used={_USED}"] if plan.node_path else [f"--job={plan.job}"]),
        ],
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "volumeMounts": [
            mounted_program(),
            _mounted_order(),
            dict(mount),
            *([{"name": "weights", "mountPath": _USED, **plan.within("used")}] if plan.node_path else []),
        ],
    }


def _apart(plan: WeightsPlan) -> tuple[dict[str, Wanted], list[Wanted]]:
    """What has a folder of its own by its role, and adapters, of which there may be hundreds."""
    roles = plan.by_role
    adapters = [wanted for role, wanted in roles.items() if adapter_of(role)]
    return {role: wanted for role, wanted in roles.items() if not adapter_of(role)}, adapters


def server_mounts(plan: WeightsPlan | None, unfilled: str) -> list[dict[str, Any]]:
    """What an engine mounts: its revisions for reading, and a place for what it compiles."""
    if plan is None:
        return [{"name": "weights", "mountPath": MOUNT}] if unfilled else []
    own, adapters = _apart(plan)
    read = [_revision(plan, role, wanted.revision) for role, wanted in own.items()]
    return [
        *read,
        *([_revisions(plan)] if adapters else []),
        {"name": "weights", "mountPath": _CACHE, **plan.within("vllm-cache")},
    ]


def server_volumes(plan: WeightsPlan | None, unfilled: str) -> list[dict[str, Any]]:
    """The volumes behind these mounts; `unfilled` is the claim of one that no Job fills."""
    if plan is None:
        return [_weights_volume(unfilled)] if unfilled else []
    return [_weights_volume(plan.claim), *_input_volumes(plan.order.model)]


def runs(plan: WeightsPlan, command: str) -> dict[str, Any]:
    """The program in the engine's image.

    As the image's user, root: servers are, and what they and earlier programs left in the volume is theirs. A group
    for the volume would not help, as Longhorn's driver sets none on ReadWriteMany volumes.
    """
    return own_program.runs(plan.image, PROGRAM, command)


def _revision(plan: WeightsPlan, role: str, revision: str) -> dict[str, Any]:
    return {"name": "weights", "mountPath": folder(role), **plan.within(f"revisions/{revision}"), "readOnly": True}


def _revisions(plan: WeightsPlan) -> dict[str, Any]:
    return {"name": "weights", "mountPath": ADAPTERS, **plan.within("revisions"), "readOnly": True}


def mounted_program() -> dict[str, Any]:
    """The mount of the program, by whose path Python finds it."""
    return own_program.mount(PROGRAM)


def _mounted_order() -> dict[str, Any]:
    return {"name": _ORDER, "mountPath": _ORDER_FOLDER, "readOnly": True}


def _input_volumes(name: str) -> list[dict[str, Any]]:
    """The program, which all models share, and this one's order."""
    return [own_program.volume(PROGRAM), {"name": _ORDER, "configMap": {"name": _order_name(name)}}]


def _order_name(name: str) -> str:
    return f"{name}-weights-order"


def _weights_volume(claim: str) -> dict[str, Any]:
    return {"name": "weights", "persistentVolumeClaim": {"claimName": claim}}
