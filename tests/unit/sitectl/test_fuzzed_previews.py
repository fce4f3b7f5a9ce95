"""A saved preview may come from anybody: `plan --from` judges it, or says why it is none."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path

import pytest

from sitectl import markdown, saved_previews, words
from sitectl.errors import SitectlError
from sitectl.report import of_preview_document
from tests.unit.stacks.site_mutations import changed, damaged

PREVIEWS = Path(__file__).parents[2] / "fixtures" / "previews"
QUICK, MANY = 100, 5000
SEED = 20270131


def judged_or_refused(count: int, file: Path) -> None:
    chance = random.Random(SEED)  # noqa: S311 - the same damage each time
    texts = [path.read_text() for path in sorted(PREVIEWS.glob("*.json"), key=lambda path: path.stat().st_size)[:20]]
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
            assert error.what and error.fix
        except Exception as failure:
            keep = file.with_name(f"case-{number}.json")
            keep.write_bytes(file.read_bytes())
            raise AssertionError(f"case {number}, kept in {keep}: {failure!r}") from failure
    assert 0 < refused < count


def test_a_damaged_preview_is_judged_or_refused(tmp_path: Path) -> None:
    judged_or_refused(QUICK, tmp_path / "preview.json")


@pytest.mark.exhaustive
def test_many_damaged_previews_are_judged_or_refused(tmp_path: Path) -> None:
    judged_or_refused(MANY, tmp_path / "preview.json")
