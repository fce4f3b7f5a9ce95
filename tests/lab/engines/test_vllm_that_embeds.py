"""Models that embed or rank on a real vLLM, on a CPU: started with the program's arguments, and what clients ask."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.paths import CHECKOUT
from stacks.plan.site_plan import plan_values
from tests.lab.engines.running_engine import RunningEngine, real_vllm

pytestmark = [pytest.mark.exhaustive, pytest.mark.row("002.04")]

SERVED = "vectors"
WRITER = Path(__file__).with_name("tiny_pooling_model.py")
# The tiny models' context, and so few at once that a CPU holds them.
CONTEXT_TOKENS, SEQUENCES, HELD = 8192, 4, 32
# Of some thousand tokens each: a step has room for two and a half of them.
LONG = [letter * 3000 for letter in "abcd"]


@dataclass(frozen=True)
class Tried:
    """A model of the catalogue, and the class that its tiny one has."""

    model: str
    of_class: str


EMBEDDERS = (Tried("bge-m3", "XLMRobertaModel"), Tried("qwen3-embedding-0.6b", "Qwen3ForCausalLM"))
RANKERS = (
    Tried("bge-reranker-v2-m3", "XLMRobertaForSequenceClassification"),
    Tried("qwen3-reranker-0.6b", "Qwen3ForCausalLM"),
)


@pytest.fixture(scope="module")
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    """One of them as the program starts it on the lab's site, less what needs a GPU."""
    tried: Tried = request.param
    file = CHECKOUT / "Pulumi.lab.yaml"
    site: dict[str, Any] = yaml.safe_load(file.read_text())["config"]["inference-platform:site"]
    small = {"max_num_seqs": SEQUENCES, "max_num_queued_reqs": HELD, "max_model_len": CONTEXT_TOKENS}
    overrides = {name: {"value": value, "reason": "a CPU serves it"} for name, value in small.items()}
    site["models"] = {SERVED: {"catalogue": tried.model, "server": {"engine": "vllm"}, "overrides": overrides}}
    for tenant in site["tenants"].values():
        tenant["models"] = [SERVED]
    plan = plan_values(site, file.name).models[SERVED].stable.engine
    folder = tmp_path_factory.mktemp(tried.model)
    with real_vllm(folder, plan.args, plan.env, SERVED, writer=(str(WRITER), tried.of_class)) as running:
        yield running


def vectors(engine: RunningEngine, prompts: list[str]) -> list[list[float]]:
    answer = engine.post("/v1/embeddings", {"model": SERVED, "input": prompts}, 600)
    assert answer.status_code == 200, answer.text
    return [entry["embedding"] for entry in answer.json()["data"]]


@pytest.mark.parametrize("engine", EMBEDDERS, indirect=True, ids=lambda tried: tried.model)
def test_a_vector_does_not_depend_on_what_else_is_in_the_step(engine: RunningEngine) -> None:
    alone = [vector for prompt in LONG for vector in vectors(engine, [prompt])]
    together = vectors(engine, LONG)
    for single, other in zip(alone, together, strict=True):
        assert other == pytest.approx(single, abs=1e-2)
    assert alone[0] != pytest.approx(alone[1], abs=1e-2)


@pytest.mark.parametrize("engine", RANKERS, indirect=True, ids=lambda tried: tried.model)
@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank"])
def test_each_document_gets_a_score(engine: RunningEngine, path: str) -> None:
    """The gateway reads a model out of /cohere/v2/rerank alone."""
    body = {"model": SERVED, "query": "what is it?", "documents": ["it is this", "it is that", LONG[0]]}
    answer = engine.post(path, body, 600)
    assert answer.status_code == 200, answer.text
    results = answer.json()["results"]
    assert sorted(result["index"] for result in results) == [0, 1, 2]
    assert all(0 <= result["relevance_score"] <= 1 for result in results)
    # Limits charge it, and look for it in front of the documents (manifests/templates/front-door.lua.j2).
    assert answer.json()["usage"]["total_tokens"] > len(LONG[0])
    assert answer.text.index('"usage"') < answer.text.index('"results"')


@pytest.mark.parametrize("engine", EMBEDDERS[:1], indirect=True, ids=lambda tried: tried.model)
def test_as_many_prompts_as_a_replica_is_to_hold_are_one_request(engine: RunningEngine) -> None:
    assert len(vectors(engine, ["a"] * HELD)) == HELD
