"""A saved preview may come from any source: `plan --from` judges it, or says why it is not a preview."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest

from sitectl.change import saved_previews
from sitectl.change.report import of_preview_document
from sitectl.output import markdown, words
from sitectl.shell.errors import SitectlError
from tests.fixtures.previews import kept
from tests.unit.stacks.site_mutations import changed, damaged

QUICK, MANY = 100, 5000
DEPLOYMENT = "kubernetes:apps/v1:Deployment"
INPUTS = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "m"}}
ENDLESS = {**INPUTS, "spec": {"replicas": float("inf")}}
DELETED: dict[str, Any] = {
    "op": "delete",
    "urn": f"urn:pulumi:rack::inference-platform::{DEPLOYMENT}::m",
    "oldState": {"type": DEPLOYMENT, "inputs": INPUTS},
}
SEED = 20270131


def judged_or_refused(count: int, file: Path) -> None:
    chance = random.Random(SEED)  # noqa: S311 - the same damage each time
    texts = sorted(map(kept.text, kept.names()), key=len)[:20]
    refused = 0
    for number in range(count):
        preview = json.loads(chance.choice(texts))
        for _ in range(chance.choice((1, 2, 20))):
            # Most of a preview are the inputs of resources, and what decides lies above them.
            part = chance.choice((preview, chance.choice(preview["steps"] or [preview])))
            changed(part if isinstance(part, dict) and part else preview, chance)
            if not isinstance(preview.get("steps"), list):
                break
        content = json.dumps(preview).encode()
        file.write_bytes(damaged(content, chance) if chance.random() < 0.1 else content)
        try:
            report = of_preview_document("rack", saved_previews.read(file))
            assert words.plan(report)
            assert markdown.document([copy.deepcopy(report)])
        except SitectlError as error:
            refused += 1
            assert error.problem.what and error.problem.fix
        except Exception as failure:
            keep = file.with_name(f"case-{number}.json")
            keep.write_bytes(file.read_bytes())
            raise AssertionError(f"case {number}, kept in {keep}: {failure!r}") from failure
    assert 0 < refused < count


_SITE = "inference-platform:site"
STRANGE: dict[str, dict[str, Any]] = {
    "models of a tenant are no list": {"config": {_SITE: '{"tenants":{"a":{"models":5}}}'}},
    "models of a tenant are no names": {"config": {_SITE: '{"tenants":{"a":{"models":[{}]}}}'}},
    "tenants are a list": {"config": {_SITE: '{"tenants":[1]}'}},
    "a site of brackets": {"config": {_SITE: "[" * 100_000}},
    "a price of 400 digits": {"config": {_SITE: f'{{"prices":{{"gpu_hour":{"9" * 400}}}}}'}, "steps": [DELETED]},
    "endless replicas": {"steps": [{**DELETED, "oldState": {**DELETED["oldState"], "inputs": ENDLESS}}]},
    "an unknown operation": {"steps": [{**DELETED, "op": "explode"}]},
    "a second line in a name": {"steps": [{**DELETED, "urn": "urn:pulumi:a::b::c::d\nIRREVERSIBLE  all is well"}]},
    "headroom of another form": {"headroom": [{"a": 1}]},
    "guarantees of another form": {"guarantees": [["a", 1]]},
}
REFUSED = {"endless replicas", "an unknown operation", "a second line in a name"}
REFUSED |= {"headroom of another form", "guarantees of another form"}


@pytest.mark.parametrize("case", sorted(STRANGE))
def test_a_strange_preview_is_judged_or_refused(tmp_path: Path, case: str) -> None:
    file = tmp_path / "preview.json"
    file.write_text(json.dumps({"steps": []} | STRANGE[case]))
    try:
        report = of_preview_document("rack", saved_previews.read(file))
    except SitectlError as error:
        assert case in REFUSED
        assert error.problem.what and error.problem.fix and "Error(" not in error.problem.what
    else:
        assert case not in REFUSED
        assert words.plan(report) and markdown.document([report])


def test_a_damaged_preview_is_judged_or_refused(tmp_path: Path) -> None:
    judged_or_refused(QUICK, tmp_path / "preview.json")


@pytest.mark.exhaustive
def test_many_damaged_previews_are_judged_or_refused(tmp_path: Path) -> None:
    judged_or_refused(MANY, tmp_path / "preview.json")
