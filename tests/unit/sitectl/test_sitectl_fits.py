"""`fits`: what it prints, from files and stdin, and its exit status."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from sitectl.shell.errors import Exit
from sitectl.shell.terminal import wrapped
from tests import documented
from tests.unit.sitectl.sites_to_work_on import ROOT, run

pytestmark = pytest.mark.row("opening 27")

PAGE = ROOT / "docs" / "how-to" / "prove-other-manifests.md"
WIDTH = 118
((_, MANIFEST),) = (block for block in documented.fences(PAGE) if block[0] == "yaml")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "deployment.yaml").write_text(MANIFEST)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_page_shows_what_is_printed(folder: Path) -> None:
    words = documented.argv("python -m sitectl fits deployment.yaml --gpu h100-sxm")[3:]
    assert words == documented.argv("bin/sitectl fits deployment.yaml --gpu h100-sxm")[1:]
    result = run(folder, *words)
    assert result.status == Exit.REFUSED
    (shown,) = (content for _, content in documented.fences(PAGE) if content.startswith("Deployment serving/chat"))
    assert wrapped(result.out, WIDTH).rstrip("\n") == shown.rstrip("\n")


def test_a_list_on_stdin_is_judged_and_what_starts_is_no_failure(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = documented.shell("kubectl get deployments -A -o yaml | python -m sitectl fits -")
    assert documented.shell("helm template my-release my-chart | python -m sitectl fits - --gpu h100-sxm")
    text = MANIFEST.replace("size=2,", "size=4,").replace("gpu: 2", "gpu: 4")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"other: !Ref x\n---\n{text}".encode())))
    result = run(folder, *line.partition(" sitectl ")[2].split(), "--gpu", "h100-sxm", "--json")
    assert result.status == Exit.OK
    (judged,) = result.data["containers"]
    assert (judged["verdict"], judged["problems"]) == ("starts", [])


def test_options_decide_about_the_model_of_a_path_and_the_usual_request(folder: Path) -> None:
    file = folder / "deployment.yaml"
    file.write_text(MANIFEST.replace("meta-llama/Llama-3.3-70B-Instruct", "/models/own").replace("gpu: 2", "gpu: 4"))
    words = ("fits", file.name, "--gpu", "h200-sxm")
    unknown = run(folder, *words, "--json")
    assert (unknown.status, unknown.data["containers"][0]["verdict"]) == (Exit.REFUSED, "unknown")
    named = [run(folder, *words, "--model", "llama-3.3-70b", "--request-tokens", size) for size in ("1000", "8000")]
    assert [result.status for result in named] == [Exit.OK, Exit.OK]
    assert ["requests of 1,000 tokens" in result.out for result in named] == [True, False]


def test_files_without_vllm_and_files_that_are_none_are_an_error_with_a_fix(folder: Path) -> None:
    (folder / "other.yaml").write_text("kind: ConfigMap\n---\nkind: Secret\n")
    nothing = run(folder, "fits", "other.yaml")
    assert (nothing.status, "in 2 documents" in nothing.err, "fix: " in nothing.err) == (Exit.REFUSED, True, True)
    (folder / "other.yaml").write_text("a: [")
    broken = run(folder, "fits", "other.yaml")
    assert (broken.status, "other.yaml is no YAML" in broken.err) == (Exit.USAGE, True)
    assert run(folder, "fits", "none.yaml").status != Exit.OK
