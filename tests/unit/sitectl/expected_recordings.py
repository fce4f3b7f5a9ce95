"""What each recorded preview has to be judged as."""

from __future__ import annotations

from dataclasses import dataclass, field

from sitectl.change.verdicts.model import Severity

GONE, ANEW, AGAIN, LIVE = Severity.IRREVERSIBLE, Severity.REPLACED, Severity.RESTARTS, Severity.LIVE
MODELS = "inference-models"
BOTH = ["acme", "globex"]
NODES = ["cp-1", "hgx-1", "hgx-2", "hgx-3", "hgx-4"]
Row = tuple[Severity, str, str]


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What a recording has to be judged as. `rows`: (severity, part of resource, part of what)."""

    rows: list[Row]
    gpus: int = 0
    restarts: int = 0
    cold_start_s: int = 0
    tenants: list[str] = field(default_factory=list)
    errors: str = ""


# What the startup probe allows one replica, and what it may take to end before: two replicas go one after the other.
GLM_START_S, GLM_END_S = 1270 * 5, 80
QWEN_START_S, QWEN_END_S = 115 * 5, 80
GLM_ROLLOUT_S, QWEN_ROLLOUT_S = 2 * (GLM_START_S + GLM_END_S), 2 * (QWEN_START_S + QWEN_END_S)

# The two rows of an edit that gatekeepers alone take.
CALLERS, GATEKEEPERS = "ConfigMap inference-gateway/callers-tenants", "Deployment inference-gateway/gatekeeper"
TAKE_OVER = (LIVE, GATEKEEPERS, "its pods start again, one after the other")
CANARY = "glm-5-1--ebd4ff00"
KEYS_STOP = (GONE, "Secret inference-gateway/keys-globex-ed15f37d57", "all keys of tenant globex stop working")
ENVOY_RESTARTS = (AGAIN, "EnvoyProxy inference-gateway/inference", "restarts Envoy (1 of them)")
LISTENER_REPLACED = (AGAIN, "EnvoyPatchPolicy inference-gateway/openai-errors", "Envoy replaces its listener")


def volume_replaced(model: str, size: str) -> Row:
    claim, earlier = f"PersistentVolumeClaim {MODELS}/{model}-weights-ceph-filesystem", f"{model}-weights-longhorn"
    return GONE, claim, f"deletes the volume {earlier}, of {size} and what is on it"


def restarted(model: str) -> Row:
    return (AGAIN, f"Deployment {MODELS}/{model}", "restarts 2 replicas, one after the other")


def pickers_restarted(model: str, count: int) -> Row:
    pickers = f"{count} picker{'s' if count > 1 else ''}"
    return (AGAIN, f"Deployment {MODELS}/{model}-epp", f"replaces {pickers}, each by a ready one")


def forgotten(key: str) -> Row:
    return (GONE, f"access-globex-{key}", "forgets the key")


EXPECTED = {
    "no-change": Expected(rows=[]),
    "engine-image-bump": Expected(
        rows=[restarted("glm-5-1"), restarted("qwen3-32b")],
        restarts=4,
        cold_start_s=GLM_ROLLOUT_S,
        tenants=BOTH,
    ),
    "picker-image-bump": Expected(
        rows=[pickers_restarted("glm-5-1", 1), pickers_restarted("qwen3-32b", 1)],
        restarts=2,
        tenants=BOTH,
    ),
    "replica-cut": Expected(
        rows=[(AGAIN, f"Deployment {MODELS}/glm-5-1", "2 -> 1 replicas")], gpus=-8, restarts=1, tenants=["acme"]
    ),
    "replica-added": Expected(
        rows=[(LIVE, f"Deployment {MODELS}/glm-5-1", "2 -> 3 replicas")], gpus=8, cold_start_s=GLM_START_S
    ),
    "tenant-key-removed": Expected(
        rows=[
            forgotten("batch"),
            (LIVE, "Secret inference-gateway/keys-globex-1badb29062", "the set of keys changes"),
            (LIVE, "SecurityPolicy inference-gateway/tenants", "no tenant's models do"),
        ],
        tenants=["globex"],
    ),
    "tenant-key-rotated": Expected(
        rows=[
            (GONE, "access-globex-batch", "replaces the key by another one"),
            (LIVE, "Secret inference-gateway/keys-globex-81a0b90a6b", "the set of keys changes"),
        ],
        tenants=["globex"],
    ),
    "tenant-removed": Expected(
        rows=[
            KEYS_STOP,
            forgotten("batch"),
            forgotten("laptop"),
            (ANEW, "SecurityPolicy inference-gateway/tenants", "tenant globex loses qwen3-32b"),
        ],
        tenants=["globex"],
    ),
    "tenant-added": Expected(
        rows=[
            (LIVE, "Secret inference-gateway/keys-initech-1badb29062", "made"),
            (LIVE, "SecurityPolicy inference-gateway/tenants", "tenant initech may call qwen3-32b"),
            (LIVE, "access-initech-laptop", "mints a key"),
        ],
    ),
    "tenant-loses-model": Expected(
        rows=[(ANEW, "SecurityPolicy inference-gateway/tenants", "tenant acme loses glm-5-1")], tenants=["acme"]
    ),
    "tenant-changes-tier": Expected(
        rows=[(LIVE, "EnvoyExtensionPolicy inference-gateway/tiers", "tenant globex: no tier -> tier batch")]
    ),
    "tier-is-worth-more": Expected(
        rows=[
            (LIVE, f"InferenceObjective {MODELS}/batch.glm-5-1", "priority -10 -> 5"),
            (LIVE, f"InferenceObjective {MODELS}/batch.qwen3-32b", "priority -10 -> 5"),
        ]
    ),
    "tiers-removed": Expected(
        rows=[
            (AGAIN, "EnvoyExtensionPolicy inference-gateway/tiers", "Envoy replaces its listener"),
            (LIVE, f"InferenceObjective {MODELS}/batch.glm-5-1", "deleted"),
            (LIVE, f"InferenceObjective {MODELS}/batch.qwen3-32b", "deleted"),
            (LIVE, f"InferenceObjective {MODELS}/interactive.glm-5-1", "deleted"),
            (LIVE, f"InferenceObjective {MODELS}/interactive.qwen3-32b", "deleted"),
        ],
        tenants=BOTH,
    ),
    "model-removed": Expected(
        rows=[
            (GONE, f"PersistentVolumeClaim {MODELS}/qwen3-32b-weights-longhorn", "deletes the volume of 36Gi"),
            KEYS_STOP,
            (ANEW, f"AIGatewayRoute {MODELS}/qwen3-32b", "the model can no longer be called"),
            (ANEW, f"Deployment {MODELS}/qwen3-32b", "stops all 2 replicas for good"),
            (ANEW, "SecurityPolicy inference-gateway/tenants", "tenant acme loses qwen3-32b"),
            (AGAIN, "EnvoyPatchPolicy inference-gateway/qwen3-32b-picker", "Envoy replaces its listener"),
            (LIVE, f"PodDisruptionBudget {MODELS}/qwen3-32b", "deleted"),
        ],
        gpus=-2,
        restarts=3,
        tenants=BOTH,
    ),
    "model-added": Expected(
        rows=[
            (AGAIN, "EnvoyPatchPolicy inference-gateway/qwen-batch-picker", "Envoy replaces its listener"),
            (LIVE, f"Deployment {MODELS}/qwen-batch", "starts 2 replicas on 2 GPUs"),
            (LIVE, f"AIGatewayRoute {MODELS}/qwen-batch", "the model can be called"),
            (LIVE, "SecurityPolicy inference-gateway/tenants", "tenant globex may call qwen-batch"),
            (LIVE, f"PersistentVolumeClaim {MODELS}/qwen-batch-weights-longhorn", "makes a volume of 36Gi"),
        ],
        gpus=2,
        cold_start_s=QWEN_START_S,
        tenants=BOTH,
    ),
    # The engine stops at what the API server refuses, so the rest of the swap is not in its preview.
    "model-swapped": Expected(
        rows=[
            # What else the engine had looked at when this refused is different each time.
            (ANEW, f"PersistentVolumeClaim {MODELS}/glm-5-1-weights-longhorn", "775Gi -> 36Gi"),
        ],
        tenants=BOTH,
        errors="field can not be less than status.capacity",
    ),
    "model-swapped-larger": Expected(
        rows=[
            (ANEW, f"Deployment {MODELS}/qwen3-32b", "zai-org/GLM-5.1-FP8 instead of Qwen/Qwen3-32B-FP8"),
            restarted("qwen3-32b"),
            (LIVE, f"Deployment {MODELS}/qwen3-32b", "2 -> 16 GPUs"),
            (LIVE, f"PersistentVolumeClaim {MODELS}/qwen3-32b-weights-longhorn", "36Gi -> 775Gi"),
        ],
        gpus=14,
        restarts=3,
        cold_start_s=GLM_ROLLOUT_S,
        tenants=BOTH,
    ),
    "storage-class-changed": Expected(
        rows=[
            # Another class is another volume, under another name: it is filled before the earlier one goes.
            (
                GONE,
                f"PersistentVolumeClaim {MODELS}/glm-5-1-weights-ceph-filesystem",
                "the volume glm-5-1-weights-longhorn, of 775Gi",
            ),
            (
                GONE,
                f"PersistentVolumeClaim {MODELS}/qwen3-32b-weights-ceph-filesystem",
                "the volume qwen3-32b-weights-longhorn, of 36Gi",
            ),
            restarted("glm-5-1"),
            restarted("qwen3-32b"),
        ],
        restarts=4,
        cold_start_s=GLM_ROLLOUT_S,
        tenants=BOTH,
    ),
    "context-cut": Expected(
        rows=[
            (ANEW, f"Deployment {MODELS}/glm-5-1", "longest request 202,752 -> 32,768 tokens"),
            restarted("glm-5-1"),
            pickers_restarted("glm-5-1", 1),
            (LIVE, "BackendTrafficPolicy inference-gateway/inference", "spec.requestBuffer changes"),
            (LIVE, f"ConfigMap {MODELS}/glm-5-1-epp", "changes data"),
        ],
        restarts=3,
        cold_start_s=GLM_ROLLOUT_S,
        tenants=["acme"],
    ),
    "gpus-per-replica-changed": Expected(
        rows=[
            restarted("qwen3-32b"),
            pickers_restarted("qwen3-32b", 1),
            (LIVE, f"Deployment {MODELS}/qwen3-32b", "2 -> 4 GPUs"),
            (LIVE, f"ConfigMap {MODELS}/qwen3-32b-epp", "changes data"),
        ],
        gpus=2,
        restarts=3,
        cold_start_s=QWEN_ROLLOUT_S,
        tenants=BOTH,
    ),
    "gpu-family-changed": Expected(
        rows=[restarted("qwen3-32b")], restarts=2, cold_start_s=QWEN_ROLLOUT_S, tenants=BOTH
    ),
    "longest-stream-changed": Expected(
        rows=[
            ENVOY_RESTARTS,
            restarted("glm-5-1"),
            pickers_restarted("glm-5-1", 1),
        ],
        restarts=4,
        cold_start_s=GLM_ROLLOUT_S + 2 * 60,
        tenants=BOTH,
    ),
    "engine-to-vllm": Expected(
        rows=[
            restarted("qwen3-32b"),
            (LIVE, f"AIGatewayRoute {MODELS}/qwen3-32b", "the route changes"),
        ],
        restarts=2,
        cold_start_s=QWEN_ROLLOUT_S,
        tenants=BOTH,
    ),
    "picker-weights": Expected(
        rows=[
            pickers_restarted("glm-5-1", 1),
            (LIVE, f"ConfigMap {MODELS}/glm-5-1-epp", "changes data"),
        ],
        restarts=1,
        tenants=["acme"],
    ),
    "picker-count": Expected(rows=[pickers_restarted("qwen3-32b", 1)], restarts=1, tenants=BOTH),
    "gateway-port-to-https": Expected(
        rows=[
            (ANEW, "Gateway inference-gateway/inference", "HTTP 80 -> HTTPS 443"),
            LISTENER_REPLACED,
        ],
        tenants=BOTH,
    ),
    "certificate-on-the-same-port": Expected(
        rows=[
            (ANEW, "Gateway inference-gateway/inference", "HTTP 80 -> HTTPS 80"),
            LISTENER_REPLACED,
        ],
        tenants=BOTH,
    ),
    "gateway-replicas": Expected(rows=[(LIVE, "EnvoyProxy inference-gateway/inference", "1 -> 2 Envoy pods")]),
    "stream-idle-timeout": Expected(
        rows=[
            (AGAIN, "ClientTrafficPolicy inference-gateway/inference", "Envoy replaces its listener"),
            (LIVE, "BackendTrafficPolicy inference-gateway/inference", "spec.timeout changes"),
        ],
        tenants=BOTH,
    ),
    "request-timeout": Expected(rows=[(LIVE, f"AIGatewayRoute {MODELS}/glm-5-1", "the route changes")]),
    "definitions-left-to-others": Expected(
        rows=[(LIVE, "crds-gateway-api", "leaves the definitions of gateway-api to others")],
    ),
    "provider-identity-changed": Expected(
        rows=[
            (GONE, "pulumi:providers:kubernetes cluster", "every object of this provider is deleted"),
            (GONE, f"Namespace {MODELS}", "deletes the namespace with everything in it"),
            (GONE, "Gateway inference-gateway/inference", "the front door and its address go"),
            (ANEW, f"Deployment {MODELS}/glm-5-1", "stops all 2 replicas and creates them again"),
        ],
        restarts=6,
        cold_start_s=GLM_START_S,
        tenants=BOTH,
    ),
    "node-added": Expected(
        rows=[(LIVE, "machines-nodes-hgx-5", "hgx-5 joins"), (LIVE, "machines-nodes-hgx-5-install", "installs Talos")],
    ),
    "node-removed": Expected(
        rows=[
            (GONE, "machines-nodes-hgx-4-install", "hgx-4 is reset"),
            (ANEW, "machines-nodes-hgx-4", "hgx-4 is drained and leaves the cluster"),
        ],
        tenants=BOTH,
    ),
    "node-labelled": Expected(rows=[(LIVE, "machines-nodes-hgx-1", "hgx-1 takes another config")]),
    "node-reboots": Expected(rows=[(AGAIN, "machines-nodes-hgx-1", "hgx-1 takes another config")], tenants=BOTH),
    "talos-version": Expected(
        rows=[(AGAIN, f"machines-nodes-{node}", f"{node} goes from Talos v1.13.9 to v1.13.7") for node in NODES],
        tenants=BOTH,
    ),
    "kubernetes-version": Expected(
        rows=[(LIVE, f"machines-nodes-{node}", f"{node} takes another config") for node in NODES],
    ),
    "namespace-renamed": Expected(
        rows=[
            (GONE, f"Namespace {MODELS}", "deletes the namespace with everything in it"),
            (GONE, "PersistentVolumeClaim models/glm-5-1-weights-longhorn", "because metadata.namespace changes"),
            (ANEW, "Deployment models/qwen3-32b", "stops all 2 replicas and creates them again"),
            (LIVE, "Namespace models", "made"),
        ],
        restarts=6,
        cold_start_s=GLM_START_S,
        tenants=BOTH,
    ),
    "canary-raised": Expected(
        rows=[
            (LIVE, CALLERS, "canary of glm-5-1: 25 % of its sessions -> 50 % of its sessions"),
            TAKE_OVER,
        ],
    ),
    "canary-set-back": Expected(
        rows=[
            (LIVE, CALLERS, "canary of glm-5-1: 25 % of its sessions -> 0 % of its sessions"),
            TAKE_OVER,
        ],
    ),
    "canary-removed": Expected(
        rows=[
            (GONE, f"PersistentVolumeClaim {MODELS}/{CANARY}-weights-longhorn", "deletes the volume of 775Gi"),
            (AGAIN, "EnvoyPatchPolicy inference-gateway/front-door", "Envoy replaces its listener"),
            (AGAIN, f"Deployment {MODELS}/{CANARY}", "stops all 1 replica for good"),
            (LIVE, CALLERS, "canary of glm-5-1: 25 % of its sessions -> none"),
            (LIVE, f"AIGatewayRoute {MODELS}/{CANARY}", "the revision's route goes"),
            (LIVE, f"InferencePool {MODELS}/{CANARY}", "the revision's pool goes"),
            (LIVE, f"BackendTrafficPolicy {MODELS}/{CANARY}", "the limits of the revision's route go"),
            (LIVE, f"Deployment {MODELS}/{CANARY}-epp", "stops 1 picker for good"),
        ],
        gpus=-8,
        restarts=2,
        tenants=BOTH,
    ),
    "adapter-added": Expected(
        rows=[
            (AGAIN, "EnvoyPatchPolicy inference-gateway/front-door", "Envoy replaces its listener"),
            (AGAIN, f"Deployment {MODELS}/qwen3-32b", "restarts 1 to 2 replicas, one after the other"),
            pickers_restarted("qwen3-32b", 1),
            (LIVE, f"Job {MODELS}/qwen3-32b-weights-aa55da1e", "runs again"),
            (LIVE, f"ScaledObject {MODELS}/qwen3-32b", "replicas start at other loads or times"),
        ],
        restarts=3,
        cold_start_s=1320,
        tenants=BOTH,
    ),
    "range-changed": Expected(
        rows=[
            (LIVE, "BackendTrafficPolicy inference-models/qwen3-32b", "spec.circuitBreaker changes"),
            (LIVE, "PrometheusRule inference-monitoring/inference-platform", "changes spec.groups"),
            (LIVE, f"ScaledObject {MODELS}/qwen3-32b", "1 to 2 -> 1 to 3 replicas by the load"),
        ],
    ),
    # A replica that someone added manually: the next `up` removes it again.
    "drift-replicas": Expected(
        rows=[(AGAIN, f"Deployment {MODELS}/qwen3-32b", "3 -> 2 replicas")], gpus=-1, restarts=1, tenants=BOTH
    ),
}
