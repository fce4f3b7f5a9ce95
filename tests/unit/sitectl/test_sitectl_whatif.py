"""`whatif`: its table and its data, its exit status, and what it says to a wrong command line."""

from __future__ import annotations

import importlib.util
import os
import sys
import tomllib
from pathlib import Path

import pytest

from sitectl.output import whatif_plot
from sitectl.shell.errors import Exit
from tests import documented
from tests.unit.sitectl.sites_to_work_on import ROOT, edit, make_checkout, run

pytestmark = pytest.mark.row("opening 12", "004.20", "001.05", "004.09", "002.12")

PAGE = ROOT / "docs" / "what-if.md"


@pytest.mark.slow
def test_the_page_shows_what_is_printed(checkout_folder: Path) -> None:
    """UPDATE_GOLDEN=1 writes the block of the page again."""
    words = documented.argv("python -m sitectl whatif prod --spike 20")
    result = run(checkout_folder, *words[3:])
    assert result.status == Exit.REFUSED, result.err
    (shown,) = (content for _, content in documented.fences(PAGE) if content.startswith("qwen3-32b: "))
    printed = next(block for block in result.out.split("\n\n") if block.startswith("qwen3-32b: ")).rstrip("\n") + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        PAGE.write_text(PAGE.read_text().replace(shown, printed))
    else:
        assert shown == printed
    assert result.out.startswith("site prod: what if 20 times the load for 60 s? Simulated with seed 1;")
    assert "simulate qwen3-32b ..." in result.err


@pytest.mark.slow
def test_the_page_s_lost_node_keeps_its_targets(checkout_folder: Path) -> None:
    words = documented.argv("python -m sitectl whatif prod --lose-node --model glm-5-1")
    result = run(checkout_folder, *words[3:])
    assert result.status == Exit.OK, result.err
    assert "hgx-1 is lost" in result.out
    lines = {line.split()[0]: " ".join(line.split()) for line in result.out.splitlines() if line.startswith("  ")}
    assert lines["replicas"] == "replicas 2 1"
    assert lines["recovers"] == "recovers after 1,730 s"
    assert "qwen3-32b" not in result.out


@pytest.mark.slow
def test_without_scaling_is_a_scenario_of_its_own(checkout_folder: Path) -> None:
    words = documented.argv("python -m sitectl whatif prod --spike 20 --no-scaling")
    result = run(checkout_folder, *words[3:], "--model", "qwen3-32b")
    assert result.out.startswith("site prod: what if 20 times the load for 60 s, no replica goes or comes?")


@pytest.mark.slow
def test_without_a_change_there_is_one_column(checkout_folder: Path) -> None:
    result = run(checkout_folder, "whatif", "prod", "--quiet")
    assert (result.status, result.err) == (Exit.OK, "")
    assert result.out.startswith("site prod: as declared. Simulated with seed 1;")
    assert "scenario" not in result.out
    assert "qwen3-32b: keeps its targets." in result.out
    assert "glm-5-1: keeps its targets." in result.out
    assert "uncertain" not in result.out


def test_a_target_that_the_slow_end_of_the_band_misses_is_uncertain(tmp_path: Path) -> None:
    folder = make_checkout(tmp_path / "own", sites=("prod",))
    file = folder / "Pulumi.prod.yaml"
    file.write_text(file.read_text().replace("itl_p95_ms: 75}", "itl_p95_ms: 40}"))
    result = run(folder, "whatif", "prod", "--quiet", "--model", "glm-5-1")
    assert result.status == Exit.OK
    assert "glm-5-1: uncertain." in result.out
    assert "  uncertain   at the slow end of the band: ITL p95 is " in result.out


@pytest.mark.slow
def test_data_has_every_figure_with_unit_source_and_label(checkout_folder: Path) -> None:
    words = ("whatif", "prod", "--lose-gpus", "8", "--model", "qwen3-32b", "--json")
    result = run(checkout_folder, *words)
    assert result.status == Exit.REFUSED
    model = result.data["models"]["qwen3-32b"]
    assert (result.data["kept"], result.data["scenario"], result.data["seed"]) == (False, "each model loses 8 GPUs", 1)
    assert (result.data["verdict"], model["verdict"]) == ("fails", "fails")
    assert (model["fallback_share"], model["targets"]["ttft_p95"], model["replicas"]) == (None, 2000, 4)
    for column in (model["as_declared"], model["scenario"]):
        figures = [*column["figures"].values(), *(f for tier in column["tiers"] for f in tier["figures"].values())]
        assert all(figure["fidelity"] == "estimated" and figure["source"] and figure["unit"] for figure in figures)
    (urgent, jobs) = model["scenario"]["tiers"]
    assert (urgent["tier"], jobs["tier"], urgent["share"]) == ("interactive", "batch", 0.5)
    # No request got so far: no number, which JSON has none for.
    assert urgent["figures"]["ttft_p95"]["value"] is None
    assert urgent["misses"] == ["89 % are refused, at most 0.1 % may be"]
    assert run(checkout_folder, *words).out == result.out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["whatif"], ["error: missing argument 'SITE'"]),
        (["whatif", "oslo"], ["no such site", "allowed: lab, prod"]),
        (["whatif", "prod", "--spike", "0"], ["--spike: 0.0 is not in the range x>0"]),
        (["whatif", "prod", "--spike", "nan"], ["--spike: nan is not a finite number"]),
        (["whatif", "prod", "--spike", "inf"], ["--spike: inf is not a finite number"]),
        (["whatif", "prod", "--prefix-hit", "nan"], ["--prefix-hit: nan is not a finite number"]),
        (
            ["whatif", "prod", "--model", "qwen3-32b", "--spike", "1e6"],
            [
                "more requests of qwen3-32b than can be simulated",
                "allowed: up to 2,000,000",
                "fix: a spike of at most ",
            ],
        ),
        (["whatif", "prod", "--spike", "20x"], ["--spike: '20x' is not a valid float range"]),
        (["whatif", "prod", "--prefix-hit", "20"], ["--prefix-hit: 20.0 is not in the range 0<=x<=1"]),
        (["whatif", "prod", "--tier-share", "batch"], ["--tier-share: 'batch' is not TIER=SHARE, such as batch=0.8"]),
        (["whatif", "prod", "--tier-share", "batch=2"], ["'batch=2' is not a share from 0 to 1"]),
        (["whatif", "prod", "--tier-share", "night=0.2"], ["no such tier", "got: night", "allowed: ", "batch"]),
        (["whatif", "prod", "--lose-node", "hgx-9"], ["no such node", "got: hgx-9", "allowed: worst, hgx-1, hgx-2"]),
        (["whatif", "prod", "--model", "glm"], ["no such model", "got: glm", "allowed: glm-5-1, qwen3-32b"]),
        (["whatif", "prod", "--plot", "spike.pdf"], ["got: spike.pdf", "allowed: .svg, .png", "fix: --plot spike.svg"]),
    ],
    ids=lambda words: " ".join(words),
)
def test_a_wrong_command_line_says_what_is_allowed(checkout_folder: Path, words: list[str], says: list[str]) -> None:
    result = run(checkout_folder, *words)
    assert (result.status, result.out) == (Exit.USAGE, "")
    assert [part for part in says if part.lower() not in result.err.lower()] == [], result.err


def test_a_site_that_is_not_valid_is_reported_how_to_look(tmp_path: Path) -> None:
    folder = make_checkout(tmp_path / "own", sites=("prod",))
    edit(folder, "prod", prices={"gpu_hours": 3})
    result = run(folder, "whatif", "prod")
    assert result.status == Exit.REFUSED
    assert "did you mean 'gpu_hour'?" in result.err
    assert "fix: python -m sitectl validate prod" in result.err


def test_models_without_a_load_are_named(tmp_path: Path) -> None:
    folder = make_checkout(tmp_path / "own", sites=("prod",))
    edit(folder, "prod", models={"chat": {"catalogue": "qwen3-32b-fp8"}}, tenants={}, usage={})
    result = run(folder, "whatif", "prod", "--spike", "20")
    assert result.status == Exit.OK
    assert "chat: not simulated, it declares no load; set models.chat.load" in result.out


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is not None, reason="matplotlib is installed")
def test_without_matplotlib_a_plot_says_how_to_get_it_before_anything_is_simulated(checkout_folder: Path) -> None:
    result = run(checkout_folder, "whatif", "prod", "--plot", "spike.svg")
    assert (result.status, result.out) == (Exit.UNABLE, "")
    assert result.err.startswith("error: matplotlib is not installed\n  fix: pip install 'matplotlib~=3.11'")


def test_the_extra_is_what_the_message_installs() -> None:
    (wanted,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["plot"]
    assert f"pip install '{wanted}'" == whatif_plot.INSTALL


@pytest.mark.slow
def test_a_plot_has_a_panel_for_each_model(
    checkout_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a stand-in for the package at its import boundary, which writes down what it is asked to draw."""
    package = tmp_path / "packages" / "matplotlib"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("rcParams = {}\ndef use(backend): assert backend == 'Agg'\n")
    (package / "pyplot.py").write_text(
        "from pathlib import Path\n"
        "drawn = []\n"
        "class Panel:\n"
        "    def plot(self, x, y, label, linewidth): drawn.append((label, min(x), max(x), len(x) == len(y)))\n"
        "    def set(self, **texts): drawn.append(texts['title'])\n"
        "    def legend(self): pass\n"
        "class Figure:\n"
        "    def savefig(self, file, metadata): Path(file).write_text('\\n'.join(map(str, drawn)))\n"
        "def subplots(rows, **size): return Figure(), [(Panel(),) for _ in range(rows)]\n"
        "def close(figure): pass\n"
    )
    monkeypatch.syspath_prepend(package.parent)
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    file = tmp_path / "spike.svg"
    try:
        result = run(checkout_folder, "whatif", "prod", "--spike", "20", "--plot", str(file))
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
            del sys.modules[name]
    assert result.status == Exit.REFUSED, result.err
    lines = file.read_text().splitlines()
    assert [line for line in lines if not line.startswith("(")] == ["glm-5-1", "qwen3-32b"]
    curves = [line for line in lines if line.startswith("(")]
    assert [curve.split("'")[1] for curve in curves] == ["as declared", "20 times the load for 60 s"] * 2
    begins = [float(curve.split(", ")[1]) for curve in curves]
    assert all(-61 < seconds <= -59 for seconds in begins)
    assert all(curve.endswith("True)") for curve in curves)
