"""A real vLLM on a CPU with two adapters, started with the program's arguments: each answers by itself, always."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.models.weights import ADAPTERS
from lab.paths import CHECKOUT, Lab
from lab.vllm_cpu import environment, tiny_model_file
from stacks.plan.site_plan import plan_values
from tests.lab.engines.conftest import SERVED
from tests.lab.engines.running_engine import CONTEXT_TOKENS, RunningEngine, real_vllm

pytestmark = [pytest.mark.exhaustive, pytest.mark.row("001.13")]

WRITER = Path(__file__).with_name("tiny_adapter.py")
NAMES = ("legal", "tax")
# As the writer has them; it runs in another Python.
RANK, MODULES = 8, ["q_proj", "v_proj"]


def started(folder: Path, adapters: Path) -> Any:
    """The engine of the lab's site with both; their folders are these instead of a server's mounts."""
    file = CHECKOUT / "Pulumi.lab.yaml"
    site: dict[str, Any] = yaml.safe_load(file.read_text())["config"]["inference-platform:site"]
    adapter = {"rank": RANK, "target_modules": MODULES}
    sizes = {"max_num_seqs": 4, "max_num_queued_reqs": 8}
    site["models"][SERVED] |= {
        "server": {"engine": "vllm"},
        "overrides": {name: {"value": value, "reason": "a CPU serves it"} for name, value in sizes.items()},
        "adapters": {
            name: {"repository": f"acme/{name}", "revision": f"{number}" * 40, **adapter}
            for number, name in enumerate(NAMES)
        },
    }
    engine = plan_values(site, file.name).models[SERVED].stable.engine
    text = "\n".join(engine.args)
    for name, adapter in site["models"][SERVED]["adapters"].items():
        mounted = f"{ADAPTERS}/{adapter['revision']}"
        assert mounted in text
        text = text.replace(mounted, str(adapters / name))
    return real_vllm(folder, text.split("\n"), engine.env, SERVED)


def answers(engine: RunningEngine) -> dict[str, str]:
    """The most likely words of each, and under which name."""
    texts = {}
    for name in (SERVED, *NAMES):
        asked = {"model": name, "prompt": "once upon a time", "max_tokens": 24, "temperature": 0, "ignore_eos": True}
        answer = engine.post("/v1/completions", asked, 600)
        assert answer.status_code == 200, answer.text
        assert answer.json()["model"] == name
        texts[name] = str(answer.json()["choices"][0]["text"])
    return texts


def test_each_answers_under_its_name_and_the_same_after_a_restart(tmp_path: Path) -> None:
    python = environment.python_of(Lab.from_environment())
    subprocess.run([python, tiny_model_file(), tmp_path / "model", str(CONTEXT_TOKENS)], check=True)
    for seed, name in enumerate(NAMES):
        folder = tmp_path / "adapters" / name
        subprocess.run([python, WRITER, tmp_path / "model", folder, str(seed)], check=True)
    answered = []
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        with started(folder, tmp_path / "adapters") as engine:
            assert {card["id"] for card in engine.get("/v1/models").json()["data"]} == {SERVED, *NAMES}
            answered.append(answers(engine))
    assert len(set(answered[0].values())) == 3, answered[0]
    assert answered[0] == answered[1]
