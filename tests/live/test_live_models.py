"""Each model: its objects as planned, its replicas apart and Ready, and answers from it."""

from __future__ import annotations

import json

import httpx
import pytest

from components.models import model_server
from components.models.weights import claim_name
from components.specs.inference_pool import picker_name
from stacks.plan.models import MODELS_NAMESPACE, RevisionPlan
from tests.live.conftest import Seen
from tests.live.running import Object, RunningSite

_API = f"/apis/apps/v1/namespaces/{MODELS_NAMESPACE}/deployments"
_GROUPS = f"/apis/leaderworkerset.x-k8s.io/v1/namespaces/{MODELS_NAMESPACE}/leaderworkersets"
_CORE = f"/api/v1/namespaces/{MODELS_NAMESPACE}"
_PROMPT = " ".join(f"line {number} of a prompt that two requests share" for number in range(200))


def _replicas(site: RunningSite, revision: RevisionPlan) -> list[Object]:
    return site.pods(MODELS_NAMESPACE, model_server.labels(revision.name))


def _declared(site: RunningSite, revision: RevisionPlan) -> tuple[Object, Object]:
    """The Deployment, or the set of groups of a model over several nodes; and the engine's container that is asked."""
    if revision.server.nodes > 1:
        made = site.read(f"{_GROUPS}/{revision.name}")
        template = made["spec"]["leaderWorkerTemplate"]["leaderTemplate"]
    else:
        made = site.read(f"{_API}/{revision.name}")
        template = made["spec"]["template"]
    (container,) = template["spec"]["containers"]
    return made, container


def generators(site: RunningSite) -> list[RevisionPlan]:
    """Those that may be asked: a request to one that has no replica on purpose would start one."""
    writing = [revision for revision in site.plan.revisions if revision.proof.order.model.task == "generate"]
    serving = [
        revision
        for revision in writing
        if revision.spec.server.least or _declared(site, revision)[0]["spec"]["replicas"]
    ]
    return serving or pytest.skip("the site has no model that writes text and serves now")


@pytest.mark.row("000.14", "000.15", "000.16", "001.26", "001.37", "002.05", "opening 2")
def test_every_model_has_its_replicas_ready_with_the_planned_image(site: RunningSite, seen: Seen) -> None:
    wrong = []
    for revision in site.plan.revisions:
        made, container = _declared(site, revision)
        spec, status = made["spec"], made.get("status", {})
        server, ready, declared = revision.spec.server, status.get("readyReplicas", 0), spec["replicas"]
        # Those of its group come after them.
        planned = revision.engine.args
        wanted = f"{server.least} to {server.replicas}" if server.scaling else f"{server.replicas}"
        seen(f"{revision.name}: {ready} of {wanted} Ready, {container['image']}")
        if not server.least <= declared == ready <= server.replicas:
            wrong.append(f"{revision.name}: {ready} Ready of {declared} declared, the site sets {wanted}")
        if container["image"] != revision.engine.image or container["args"][: len(planned)] != planned:
            wrong.append(f"{revision.name}: image or arguments are not the planned ones")
    assert not wrong, "; ".join(wrong)


@pytest.mark.row("002.11")
def test_every_replica_is_probed(site: RunningSite, seen: Seen) -> None:
    wrong = []
    for revision in site.plan.revisions:
        _, container = _declared(site, revision)
        missing = [name for name in ("startupProbe", "readinessProbe", "livenessProbe") if name not in container]
        seen(f"{revision.name}: {3 - len(missing)} of 3 probes")
        wrong += [f"{revision.name} has no {name}" for name in missing]
    assert not wrong, "; ".join(wrong)


@pytest.mark.row("002.11")
def test_no_replica_restarts(site: RunningSite, seen: Seen) -> None:
    restarted = []
    for revision in site.plan.revisions:
        for pod in _replicas(site, revision):
            (status,) = pod["status"].get("containerStatuses") or [{"restartCount": 0}]
            seen(f"{pod['metadata']['name']}: {status['restartCount']} restarts")
            if status["restartCount"]:
                restarted.append(f"{pod['metadata']['name']} restarted {status['restartCount']} times")
    assert not restarted, "; ".join(restarted)


@pytest.mark.row("002.12", "000.20")
def test_replicas_of_a_model_are_on_nodes_of_their_own(site: RunningSite, seen: Seen) -> None:
    """Where the site has as many nodes for it: one lost node must not take all of them."""
    wrong = []
    for revision in site.plan.revisions:
        nodes = [pod["spec"].get("nodeName", "no node") for pod in _replicas(site, revision)]
        seen(f"{revision.name}: {', '.join(sorted(nodes))}")
        if len(nodes) > 1 and len(set(nodes)) == 1:
            wrong.append(f"all replicas of {revision.name} are on {nodes[0]}")
    assert not wrong, "; ".join(wrong)


@pytest.mark.row("002.12")
def test_a_drain_leaves_every_model_a_replica(site: RunningSite, seen: Seen) -> None:
    path = f"/apis/policy/v1/namespaces/{MODELS_NAMESPACE}/poddisruptionbudgets"
    budgets = {budget["metadata"]["name"]: budget.get("status", {}) for budget in site.items(path)}
    wrong = []
    for revision in site.plan.revisions:
        status = budgets.get(revision.name)
        seen(f"{revision.name}: {status.get('disruptionsAllowed') if status else 'no budget'} may be evicted now")
        if status is None:
            wrong.append(f"{revision.name} has no PodDisruptionBudget")
        elif revision.spec.server.least > 1 and not status.get("disruptionsAllowed"):
            wrong.append(f"no replica of {revision.name} may be evicted, so its nodes cannot be drained")
    assert not wrong, "; ".join(wrong)


@pytest.mark.row("000.19", "000.22")
def test_all_replicas_of_a_model_mount_its_one_volume(site: RunningSite, seen: Seen) -> None:
    wrong = []
    storage = site.plan.site.storage
    on_nodes = storage.weights.place == "nodes"
    for revision in site.plan.revisions:
        filled = site.plan.filled_by(revision)
        if on_nodes and filled.weights is None:
            continue
        name = filled.weights.claim if filled.weights else claim_name(filled.name, storage.storage_class)
        claim = site.read(f"{_CORE}/persistentvolumeclaims/{name}")
        phase, modes = claim["status"].get("phase"), claim["spec"]["accessModes"]
        seen(f"{claim['metadata']['name']}: {phase}, {', '.join(modes)}, class {claim['spec'].get('storageClassName')}")
        if phase != "Bound" or (modes != ["ReadWriteMany"] and not on_nodes):
            wrong.append(f"{claim['metadata']['name']} is {phase} with {modes}")
        for pod in _replicas(site, revision):
            claims = [
                volume.get("persistentVolumeClaim", {}).get("claimName") for volume in pod["spec"].get("volumes", [])
            ]
            if claim["metadata"]["name"] not in claims:
                wrong.append(f"{pod['metadata']['name']} does not mount it")
    assert not wrong, "; ".join(wrong)


@pytest.mark.row("003.09", "003.12", "opening 10")
def test_every_gpu_node_has_the_weights_of_every_model(site: RunningSite, seen: Seen) -> None:
    if site.plan.site.storage.weights.place != "nodes":
        pytest.skip("the site's weights are on shared volumes")
    wrong = []
    for plan in site.plan.stores.values():
        body = site.read(f"/apis/apps/v1/namespaces/{MODELS_NAMESPACE}/daemonsets/{plan.daemon_set}")
        status = body.get("status", {})
        wanted, ready = status.get("desiredNumberScheduled", 0), status.get("numberReady", 0)
        filled = [
            f"{pod['spec'].get('nodeName')} {'filled' if _is_ready(pod) else 'not filled'}"
            for pod in site.pods(MODELS_NAMESPACE, body["spec"]["selector"]["matchLabels"])
        ]
        seen(f"{plan.daemon_set}: {ready} of {wanted} nodes; {', '.join(sorted(filled))}")
        if not wanted or ready != wanted or status.get("updatedNumberScheduled") != wanted:
            wrong.append(f"{plan.daemon_set}: {ready} of {wanted} nodes have what is wanted")
        bring = body["spec"]["template"]["spec"]["initContainers"][0]
        if f"--digest={plan.order.digest}" not in bring["args"]:
            wrong.append(f"{plan.daemon_set} brings another order than the site's")
    assert not wrong, "; ".join(wrong)


def _is_ready(pod: Object) -> bool:
    return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in pod["status"].get("conditions", []))


@pytest.mark.row("000.27")
def test_every_model_has_its_pickers_and_its_pool(site: RunningSite, seen: Seen) -> None:
    wrong = []
    for revision in site.plan.revisions:
        deployment = site.read(f"{_API}/{picker_name(revision.name)}")
        ready, wanted = deployment.get("status", {}).get("readyReplicas", 0), revision.spec.pool.pickers
        pool = site.read(
            f"/apis/inference.networking.k8s.io/v1/namespaces/{MODELS_NAMESPACE}/inferencepools/{revision.name}"
        )
        selector = pool["spec"]["selector"]["matchLabels"]
        seen(f"{revision.name}: {ready} of {wanted} pickers Ready, pool selects {selector}")
        if ready != wanted:
            wrong.append(f"{revision.name}: {ready} of {wanted} pickers are Ready")
        if selector != model_server.labels(revision.name):
            wrong.append(f"{revision.name}: the pool selects other Pods: {selector}")
    assert not wrong, "; ".join(wrong)


@pytest.mark.row("000.28", "000.31", "002.01", "004.01")
def test_every_model_streams_an_answer_under_each_of_its_names(site: RunningSite, seen: Seen) -> None:
    wrong = []
    for revision in generators(site):
        with site.http(site.key_for(revision.model)) as client:
            for name in site.plan.models[revision.model].served_names:
                chunks, done, trouble = streamed(client, name)
                seen(f"{name}: {chunks} chunks{'' if done else ', no end'}{trouble}")
                if chunks < 2 or not done:
                    wrong.append(f"{name} sent {chunks} chunks{'' if done else ' and no [DONE]'}{trouble}")
    assert not wrong, "; ".join(wrong)


def streamed(client: httpx.Client, model: str) -> tuple[int, bool, str]:
    """(chunks with text, whether the stream ended properly, what went wrong)."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "Count to ten."}],
        "max_tokens": 16,
        # An engine may otherwise end its answer after one token.
        "ignore_eos": True,
        "stream": True,
    }
    chunks, done = 0, False
    with client.stream("POST", "chat/completions", json=body) as response:
        if response.status_code != httpx.codes.OK:
            return 0, False, f" ({response.status_code}: {response.read().decode(errors='replace')[:200]})"
        # `iter_lines` also ends a line at Unicode's separators, which an answer may hold.
        for line in "".join(response.iter_text()).split("\n"):
            data = line.removeprefix("data:").strip() if line.startswith("data:") else ""
            if data == "[DONE]":
                done = True
            elif data:
                event = json.loads(data)
                if "error" in event:
                    return chunks, False, f" ({event['error']})"
                chunks += sum(bool(choice.get("delta", {}).get("content")) for choice in event.get("choices", []))
    return chunks, done, ""


@pytest.mark.row("000.25", "000.26", "001.11", "001.21")
def test_a_prompt_that_comes_again_is_found_cached(site: RunningSite, seen: Seen) -> None:
    cold = []
    for revision in generators(site):
        body = {
            "model": revision.model,
            "messages": [{"role": "user", "content": f"{site.name}: {_PROMPT}"}],
            "max_tokens": 1,
        }
        with site.http(site.key_for(revision.model)) as client:
            answers = [client.post("chat/completions", json=body) for _ in range(2)]
        if refused := [answer.status_code for answer in answers if answer.status_code != httpx.codes.OK]:
            cold.append(f"{revision.model} answered with {refused[0]}")
            continue
        usage = answers[-1].json()["usage"]
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
        seen(f"{revision.model}: {cached} of {usage['prompt_tokens']} prompt tokens cached")
        if cached < usage["prompt_tokens"] / 2:
            cold.append(f"{revision.model} found {cached} of {usage['prompt_tokens']} prompt tokens in its cache")
    assert not cold, "; ".join(cold)
