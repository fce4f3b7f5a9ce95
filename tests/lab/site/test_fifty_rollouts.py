"""Fifty rollouts of canaries under streams: none breaks, no request fails, and a session moves when its share does.

Ten models walk at a time, five times. The steps are the objects that the program renders, applied without `up`, which
would take hours; the gateways, pickers, gatekeepers and their controllers are the real ones. An hour at most.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pytest
import yaml

from stacks.plan.site_plan import plan_values
from tests.lab.site.rendered_steps import RenderedSteps
from tests.lab.site.replicas import until
from tests.lab.site.running_site import Site
from tests.lab.site.sessions_followed import Answered, Followed, takes_the_canary
from tests.lab.site.stack_changes import KEY, Document, edited_stack

pytestmark = [pytest.mark.exhaustive, pytest.mark.row("001.06", "001.32", "002.13", "002.14", "004.23", "opening 20")]

BASE, CLIENT, TENANT = "qwen3-32b", "acme.laptop", "acme"
MODELS = [f"chat-{number}" for number in range(10)]
WALKS = 5
SESSIONS = [f"session-{number}" for number in range(20)]
STREAM_TOKENS, MANY = 200, 10_000
BECOMES = "-becomes"
"""End of the phase in which a step is not there yet, as requests name it."""
# Percent of a model's canary, None for none, and whether the model has the canary's arguments itself.
_Stage = tuple[int | None, bool]
_RAISED: list[_Stage] = [(0, False), (5, False), (25, False)]
_PROMOTED: list[_Stage] = [*_RAISED, (100, False), (100, True), (0, True), (None, True)]
_ROLLED_BACK: list[_Stage] = [*_RAISED, (0, False), (None, False), (None, False), (None, False)]


@dataclass(frozen=True, kw_only=True)
class Step:
    """Where each model is."""

    name: str
    percents: Mapping[str, int | None]
    seeds: Mapping[str, int]
    """In each model's own arguments."""
    tried: int
    """The same of all canaries."""

    def edit(self, site: Document) -> None:
        ten_models(site)
        for model, spec in site["models"].items():
            spec["server"]["extra_args"] = [f"--seed={self.seeds[model]}"]
            if (percent := self.percents[model]) is not None:
                server = {"replicas": 1, "extra_args": [f"--seed={self.tried}"]}
                spec["canary"] = {"percent": percent, "server": server}


def ten_models(site: Document) -> None:
    base = site["models"][BASE]
    base["server"] |= {"longest_stream_s": 30, "extra_args": ["--seed=1"]}
    site["models"] = {model: copy.deepcopy(base) for model in MODELS}
    for tenant in site["tenants"].values():
        tenant["models"] = list(MODELS)
    site["callers"] = {"decided_by": "gatekeeper"}


def _keep_both(site: Document) -> None:
    """Without the large model, whose GPUs the ten need."""
    site["models"] = {BASE: site["models"][BASE]}
    for tenant in site["tenants"].values():
        tenant["models"] = [BASE]
    site["callers"] = {"decided_by": "gatekeeper", "keep_both": True}


def steps() -> Iterator[Step]:
    """Of one walk after the other; half of its models are promoted, and the others are rolled back."""
    seeds = dict.fromkeys(MODELS, 1)
    for walk in range(WALKS):
        tried = walk + 2
        ways = {model: (_PROMOTED, _ROLLED_BACK)[(walk + place) % 2] for place, model in enumerate(MODELS)}
        for number in range(len(_PROMOTED)):
            stages = {model: way[number] for model, way in ways.items()}
            yield Step(
                name=f"{walk}.{number}",
                percents={model: percent for model, (percent, _) in stages.items()},
                seeds={model: tried if given else seeds[model] for model, (_, given) in stages.items()},
                tried=tried,
            )
        seeds = {model: tried if way is _PROMOTED else seeds[model] for model, way in ways.items()}


@dataclass(kw_only=True)
class Walked:
    """What clients sent, and what answered."""

    followed: Followed
    steps: dict[str, Step] = field(default_factory=dict)
    canaries: dict[str, dict[str, str]] = field(default_factory=dict)
    """Step -> model -> the name of its canary, where it has one."""
    answers: list[Answered] = field(default_factory=list)


@pytest.fixture(scope="module")
def walked(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walked]:
    folder = tmp_path_factory.mktemp("rollouts")
    with edited_stack(site.lab, folder) as stack:
        stack.up(_keep_both)
        there = Site(lab=site.lab, front=stack.up(ten_models))
        made = Walked(
            followed=Followed(site=there, key=CLIENT, models=MODELS, sessions=SESSIONS, stream_tokens=STREAM_TOKENS)
        )
        asyncio.run(_walk(made, RenderedSteps(site.lab, folder, ten_models)))
        made.answers = until(made.followed.all_answered, what="every request in Envoy's log")
        yield made


async def _walk(made: Walked, rendered: RenderedSteps) -> None:
    followed = made.followed
    async with followed.all_the_time():
        for step in steps():
            made.steps[step.name] = step
            made.canaries[step.name] = await asyncio.to_thread(_canaries, followed.site, step)
            followed.phase = f"{step.name}{BECOMES}"
            await asyncio.to_thread(rendered.become, step.edit)
            followed.phase = step.name
            for model in MODELS:
                await followed.once(model, SESSIONS)
            await asyncio.to_thread(followed.read)
            if step.percents[MODELS[0]] == 25 and step.name.startswith("0."):
                await followed.once(MODELS[0], [f"once-{number}" for number in range(MANY)])


def _canaries(site: Site, step: Step) -> dict[str, str]:
    document = yaml.safe_load(site.lab.site_file.read_text())["config"][KEY]
    step.edit(document)
    models = plan_values(document, site.lab.site_file.name).models
    return {name: model.canary.name for name, model in models.items() if model.canary}


def _expected(made: Walked, phase: str, answer: Answered) -> str:
    """The revision of a session while nothing changes."""
    step, canary = made.steps.get(phase), made.canaries.get(phase, {}).get(answer.model)
    percent = step.percents[answer.model] if step else None
    if percent is None or canary is None or not takes_the_canary(canary, TENANT, answer.session, percent):
        return answer.model
    return canary


def test_no_stream_breaks_and_no_request_fails(walked: Walked) -> None:
    canaries = {canary for of_step in walked.canaries.values() for canary in of_step.values()}
    streams, failed = len(walked.followed.streams), walked.followed.failed
    assert len(canaries) == WALKS * len(MODELS)
    assert streams > len(canaries)
    assert not failed, (len(failed), failed[:10])


def test_each_session_has_the_revision_of_its_share(walked: Walked) -> None:
    settled = [answer for answer in walked.answers if answer.phase in walked.steps]
    other = [answer for answer in settled if answer.by != _expected(walked, answer.phase, answer)]
    assert len(settled) >= len(walked.steps) * len(MODELS) * len(SESSIONS)
    assert not other, (len(other), other[:10])
    many = [answer for answer in settled if answer.session.startswith("once-")]
    assert len(many) == MANY
    assert abs(sum(answer.by != answer.model for answer in many) / MANY - 0.25) <= 0.01


def test_no_session_moves_but_those_that_the_step_moves(walked: Walked) -> None:
    """While gatekeepers are replaced, one that moves may have either of its two revisions."""
    before = dict(zip(walked.steps, ["", *walked.steps], strict=False))
    moving = [answer for answer in walked.answers if answer.phase.endswith(BECOMES)]
    astray = []
    for answer in moving:
        step = answer.phase.removesuffix(BECOMES)
        if answer.by not in {_expected(walked, phase, answer) for phase in (before[step], step)}:
            astray.append(answer)
    assert len(moving) > len(walked.steps)
    assert not astray, (len(astray), astray[:10])
