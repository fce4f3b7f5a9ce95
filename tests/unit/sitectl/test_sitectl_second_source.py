"""`proof --with-aiconfigurator`: NVIDIA's kernel timings next to the proof's step times."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from sitectl.shell.errors import Exit
from stacks.proof.proof import prove
from stacks.proof.second_source import BAND, SERIES, available
from tests.unit.proof.proof_orders import order
from tests.unit.sitectl.sites_to_work_on import ROOT, make_checkout, run

pytestmark = pytest.mark.row("opening 1")

ASK = ("proof", "--with-aiconfigurator", "berlin")
# AIConfigurator 0.12.0 of Qwen3-32B-FP8 on one H200, in milliseconds: see aiconfigurator-0.12.csv of the proof's tests.
RECORDED = {("static_ctx", 1): 133.17, ("static_gen", 1): 20.58, ("static_gen", 32): 30.45}
# Of the model's own request of 16,384 tokens and its full batch: made up, near what the proof gives.
RECORDED_USUAL = {"static_ctx": 1500.0, "static_gen": 60.0}


@pytest.fixture
def berlin(tmp_path: Path) -> Path:
    """A site with a model that the second source knows and one that it does not."""
    folder = make_checkout(tmp_path / "own", sites=())
    run(folder, "init", "berlin", "--model", "chat=qwen3-32b-fp8", "--model", "texts=qwen3-embedding-8b")
    return folder


def fake_package(
    folder: Path, monkeypatch: pytest.MonkeyPatch, times: dict[tuple[str, int], float], version: str = f"{SERIES}.0"
) -> None:
    """A stand-in for the package at its import boundary: metadata, known models, `cli_estimate`."""
    for module in [name for name in sys.modules if name.partition(".")[0] in ("aiconfigurator", "aiconfigurator_core")]:
        monkeypatch.delitem(sys.modules, module)
    files = {
        f"aiconfigurator-{version}.dist-info/METADATA": f"Name: aiconfigurator\nVersion: {version}\n",
        "aiconfigurator/__init__.py": "",
        "aiconfigurator/cli/__init__.py": "",
        "aiconfigurator/cli/api.py": (
            "from types import SimpleNamespace\n"
            f"TIMES = {times!r}\nUSUAL = {RECORDED_USUAL!r}\n"
            "def cli_estimate(model, system, *, mode, backend_name, isl, osl, batch_size, tp_size, **others):\n"
            "    assert (model, system, backend_name) == ('Qwen/Qwen3-32B-FP8', 'h200_sxm', 'vllm')\n"
            "    assert tp_size == 1\n"
            "    time = TIMES[mode, batch_size] if isl == 2048 else USUAL[mode]\n"
            "    prompt = mode == 'static_ctx'\n"
            "    return SimpleNamespace(ttft=time if prompt else -1, tpot=-1 if prompt else time)\n"
        ),
        "aiconfigurator_core/__init__.py": "",
        "aiconfigurator_core/sdk/__init__.py": "",
        "aiconfigurator_core/sdk/common.py": "DefaultHFModels = {'Qwen/Qwen3-32B-FP8'}\n",
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(folder)


@pytest.fixture(autouse=True)
def no_fake_outlives_its_test() -> Iterator[None]:
    """A module that one test imports from its stand-in must not be there for the next."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("aiconfigurator", "aiconfigurator_core"):
            del sys.modules[name]


@pytest.mark.skipif(available(), reason="aiconfigurator is installed, and this says what happens without it")
def test_without_the_package_one_error_says_how_to_get_it(berlin: Path) -> None:
    """Asked for and not there is exit status 3, also as data; the proof without the option needs nothing."""
    result = run(berlin, *ASK)
    assert (result.status, result.out) == (Exit.UNABLE, "")
    assert result.err.startswith("error: the second source is not installed\n  got: no aiconfigurator\n")
    assert f"fix: pip install 'aiconfigurator~={SERIES}.0'" in result.err
    assert run(berlin, *ASK, "--json").data["error"]["allowed"] == f"aiconfigurator {SERIES}.*"
    assert run(berlin, "proof", "berlin").status == Exit.OK


def test_another_series_is_refused(berlin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_package(tmp_path / "fake", monkeypatch, RECORDED, version="0.11.3")
    result = run(berlin, *ASK)
    assert result.status == Exit.UNABLE
    assert "got: aiconfigurator 0.11.3" in result.err


def test_figures_stand_beside_each_other(berlin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the model that it knows, each step with ratio and verdict; the other is reported, and refuses nothing."""
    fake_package(tmp_path / "fake", monkeypatch, RECORDED)
    result = run(berlin, *ASK)
    assert result.status == Exit.OK, result.out
    assert (
        f"compared    aiconfigurator {SERIES}.0: prompts of 2,048 tokens or as named, 16-bit cache; band {BAND}"
        in result.out
    )
    assert "nothing to compare, aiconfigurator does not know Qwen/Qwen3-Embedding-8B" in result.out
    answer = run(berlin, *ASK, "--json").data["berlin"]
    assert answer["agrees"]
    steps = answer["models"]["chat"]["beside"]["steps"]
    # The model's own batch is what its one scheduler holds of requests of the usual length.
    batch = round(prove(order("qwen3-32b-fp8", simple=True)).memory["parallel_requests"].value)
    own = ["prefill of 1 at 16,384", f"decode of {batch} at 16,384"]
    assert [step["step"] for step in steps] == ["prefill of 1", "decode of 1", "decode of 32", *own]
    assert [step["theirs_ms"] for step in steps] == [133.17, 20.58, 30.45, 1500.0, 60.0]
    for step in steps:
        assert step["inside"]
        assert step["ratio"] == pytest.approx(step["ours_ms"] / step["theirs_ms"], abs=0.01)
        assert f"{step['step']:<23}{step['ours_ms']:>9.1f} ms here" in result.out
    # A site has nothing to fix there.
    unknown = answer["models"]["texts"]["beside"]["unknown"]
    assert unknown == "aiconfigurator does not know Qwen/Qwen3-Embedding-8B"


def test_a_step_outside_of_the_band_is_refused(berlin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_package(tmp_path / "fake", monkeypatch, RECORDED | {("static_gen", 32): 90.0})
    result = run(berlin, *ASK)
    assert result.status == Exit.REFUSED
    assert [line.split()[0:3] for line in result.out.splitlines() if line.endswith("OUTSIDE")] == [
        ["decode", "of", "32"]
    ]


def test_a_site_that_is_not_valid_is_reported_without_the_second_source(
    berlin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_package(tmp_path / "fake", monkeypatch, {})
    file = berlin / "Pulumi.berlin.yaml"
    document = yaml.safe_load(file.read_text())
    document["config"]["inference-platform:site"]["gateway"]["port"] = "x"
    file.write_text(yaml.safe_dump(document))
    result = run(berlin, *ASK)
    assert result.status == Exit.REFUSED
    assert "gateway.port" in result.out


@pytest.mark.second_source
def test_with_the_package_the_reference_site_is_inside_the_band() -> None:
    result = run(ROOT, "proof", "--with-aiconfigurator", "--json", "prod")
    assert result.status == Exit.OK
    models = result.data["prod"]["models"]
    assert {len(model["beside"]["steps"]) for model in models.values()} == {5}


def test_the_extra_names_the_series_that_the_proof_is_held_against() -> None:
    """It stays out of the lock: `make venv` brings what the platform needs, and this is no part of it."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras["proof"] == [f"aiconfigurator~={SERIES}.0"]
    assert "aiconfigurator" not in (ROOT / "requirements.lock").read_text()
