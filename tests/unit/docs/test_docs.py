"""The pages say nothing that does not exist: links, commands, targets, tests, versions."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from lab import cli, doctor

ROOT = Path(__file__).parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
NOT_OURS = {".git", ".venv", ".lab", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"}
LANGUAGES = {"sh", "sh check", "mermaid", "text", "yaml", "python"}

# Commands of the `sh` blocks -> the test that runs them or their like. `sh check` blocks are run as they are, on a
# running site.
RUN_BY = {
    'eval "$(.venv/bin/python -m lab env)"': "test_env_prints_lines_that_a_shell_takes",
    "make lab": "test_the_targets_of_make_run_what_they_promise",
    "make test": "test_the_targets_of_make_run_what_they_promise",
    "make check": "test_the_targets_of_make_run_what_they_promise",
    "make docs": "test_reference_and_schema_are_not_stale",
    "make bundle": "test_the_sums_are_those_of_the_files",
    "pulumi preview": "test_pulumi_by_hand_works_in_a_shell",
    "pulumi up": "test_pulumi_by_hand_works_in_a_shell",
    "pulumi refresh": "test_a_stacks_life_leaves_the_checked_in_files_alone",
    "pulumi destroy": "test_a_stacks_life_leaves_the_checked_in_files_alone",
    "kubectl cordon cp-1": "test_a_talos_version_rolls_under_load_without_a_failed_request",
    "kubectl -n inference-models rollout restart deployment glm-5-1-epp qwen3-32b-epp": (
        "test_a_picker_gives_way_to_its_successor"
    ),
    "pulumi cancel --yes": "test_a_killed_engine_leaves_a_state_that_the_next_up_completes",
    # Nobody can run these two where only package registries are reachable; their versions are checked below.
    "pulumi plugin install resource kubernetes v4.34.2": "test_an_installed_official_plugin_is_preferred",
    "pulumi plugin install resource command v1.2.1": "test_an_installed_official_plugin_is_preferred",
    "python -m lab install": "test_a_filled_folder_is_reused",
    "python -m lab install --list": "test_every_part_says_where_it_is_in_the_row",
    "python -m lab install --only crds": "test_only_the_named_part_is_touched",
    "python -m lab.install --only crds --bundle DIRECTORY": "test_the_sums_are_those_of_the_files",
    "python -m lab install --drop-go-cache": "test_the_go_caches_are_offered_for_dropping_and_dropped",
    "LAB_HOME=/path/to/the/other/.lab LAB_INDEX=0 python -m lab down": "test_down_leaves_nothing",
    "LAB_INDEX=1 python -m lab up": "test_lab_of_another_folder_is_refused_with_its_name",
    **dict.fromkeys(
        ("bin/sitectl --help", 'export PATH="$PWD/bin:$PATH"', 'eval "$(sitectl completion bash)"'),
        "test_the_launcher_is_called_as_its_page_says",
    ),
    "cp Pulumi.prod.yaml Pulumi.berlin.yaml": "test_every_committed_site_loads",
    # Run as they stand, in their order, on a checkout of its own.
    **dict.fromkeys(
        (
            "python -m sitectl init berlin --model chat=qwen3-32b-fp8 --tenant search",
            "python -m sitectl validate berlin",
            "python -m sitectl proof berlin",
            "python -m sitectl rules berlin",
            "python -m sitectl plan berlin",
            "python -m sitectl explain --site berlin models.chat.server.replicas",
            "python -m sitectl explain --site berlin models.chat.knobs.max_num_seqs",
            "python -m sitectl explain --site berlin deployment/chat spec.replicas",
            "python -m sitectl explain --site berlin deployment/chat spec.template.spec.containers.0.args",
            "python -m sitectl render berlin --out rendered",
            "python -m sitectl diff HEAD",
            "python -m sitectl plan berlin --save preview.json",
            "python -m sitectl plan berlin --from preview.json --refuse irreversible",
            "python -m sitectl versions",
            "python -m sitectl doctor",
            "python -m sitectl docs",
            "python -m sitectl docs add-a-model",
            "python -m ci.offline --out offline --base HEAD",
            "python -m ci.previews --base HEAD --out previews",
            "python -m sitectl comment previews --forge github --number 7 --dry-run",
            "python -m ci.previews --refresh --out previews",
            "python -m sitectl drift previews --forge github --dry-run",
            "python -m sitectl rules --list",
            "python -m sitectl rules",
        ),
        "test_the_pages_commands_run",
    ),
}
# What a target has to lead to, seen by `make -n`.
WORKERS = (os.cpu_count() or 0) + 1
PROMISES = {
    "venv": ["lab/bootstrap.py"],
    "tools": ["-m lab install"],
    "bundle": ["-m lab install --only crds"],
    "lab": ["-m lab install", "-m lab up", "-m lab deploy"],
    "lab-down": ["-m lab down"],
    "doctor": ["-m lab doctor"],
    "test": [
        f"pytest -q -n {WORKERS} tests/unit",
        f"{WORKERS}*popen//python=tests/lab/alone.sh .venv/bin/python' tests/lab",
    ],
    "check": ["ruff check", "ruff format --check", "mypy", "tests/unit"],
    "docs": ["-m stacks.reference"],
}


def fences(page: Path) -> Iterator[tuple[str, str]]:
    """(what stands behind the backticks, content) of each fenced block."""
    for match in re.finditer(r"^ *```([^\n]*)\n(.*?)^ *```$", page.read_text(), re.MULTILINE | re.DOTALL):
        yield match[1].strip(), match[2]


def prose(page: Path) -> str:
    return re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def commands(page: Path, language: str) -> Iterator[str]:
    for said, content in fences(page):
        if said == language:
            for line in content.replace("\\\n", " ").splitlines():
                if command := re.sub(r"\s{2,}#.*|^#.*", "", line).strip():
                    yield command


def shown(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@cache
def names_of_tests() -> frozenset[str]:
    found: set[str] = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        found |= {
            node.name
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
    return frozenset(found)


def files() -> Iterator[Path]:
    for folder, below, names in os.walk(ROOT):
        below[:] = [name for name in below if name not in NOT_OURS]
        # In a worktree of git, .git is a file.
        yield from (Path(folder, name) for name in names if name not in NOT_OURS)


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_links_lead_somewhere(page: Path) -> None:
    lost = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if target.startswith(("https://", "http://")):
            continue
        name, _, anchor = target.partition("#")
        other = (page.parent / name).resolve() if name else page
        if not other.exists() or (anchor and anchor not in anchors(other)):
            lost.append(target)
    assert not lost


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached: set[Path] = set()
    ahead = [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        if page in reached:
            continue
        reached.add(page)
        links = re.findall(r"\]\(([^)#\s]+\.md)[^)]*\)", prose(page))
        ahead += [(page.parent / link).resolve() for link in links if not link.startswith("http")]
    assert set(PAGES) - reached == set()


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_blocks_say_what_they_hold(page: Path) -> None:
    assert {said for said, _ in fences(page)} <= LANGUAGES


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_every_command_is_run_by_a_test(page: Path) -> None:
    assert [command for command in commands(page, "sh") if command not in RUN_BY] == []


def test_the_list_of_commands_holds_no_strangers() -> None:
    used = {command for page in PAGES for command in commands(page, "sh")}
    assert set(RUN_BY) - used == set()
    assert set(RUN_BY.values()) - names_of_tests() == set()


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_named_tests_exist(page: Path) -> None:
    modules = {path.stem for path in (ROOT / "tests").rglob("*.py")}
    named = set(re.findall(r"\b(test_[a-z0-9_]+)\b", page.read_text()))
    assert named - names_of_tests() - modules == set()


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_lab_commands_are_understood(page: Path) -> None:
    text = page.read_text()
    inline = re.findall(r"`(?:[A-Z_]+=\S+ )*python -m lab ([^`|\n]+)`", text)
    fenced = [
        command.partition("python -m lab ")[2].partition("|")[0]
        for language in ("sh", "sh check")
        for command in commands(page, language)
        if "python -m lab " in command
    ]
    for said in [*inline, *fenced]:
        words = shlex.split(said.partition(")")[0])
        try:
            cli.parser().parse_args(words)
        except SystemExit as refused:
            pytest.fail(f"python -m lab {said}: refused with {refused.code}")


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:^|`|[A-Z_]+=\S+ )make ([a-z][a-z-]*)", page.read_text(), re.MULTILINE))
    assert named - targets == set()


@pytest.mark.parametrize("target", sorted(PROMISES))
def test_the_targets_of_make_run_what_they_promise(target: str) -> None:
    done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr
    assert [part for part in PROMISES[target] if part not in done.stdout] == []


def test_make_and_lab_say_what_there_is() -> None:
    said = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    described = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert described == set(re.findall(r"^  make ([a-z-]+) ", said, re.MULTILINE))
    told = subprocess.run(
        [sys.executable, "-m", "lab", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert [name for name in cli.COMMANDS if name not in told] == []


def test_official_plugins_are_named_in_the_version_of_their_sdk() -> None:
    for page in PAGES:
        for name, version in re.findall(r"plugin install resource (\w+) v([\d.]+\d)", page.read_text()):
            assert version == importlib.metadata.version(f"pulumi-{name}"), page


def test_the_machine_that_the_readme_asks_for_is_the_doctors() -> None:
    asked = re.findall(r"(\d+) GiB", (ROOT / "README.md").read_text())[:3]
    wanted = (doctor.BUILD_DISK_BYTES, doctor.LAB_DISK_BYTES, doctor.LAB_MEMORY_BYTES)
    assert asked == [str(size // doctor.GIB) for size in wanted]


def test_no_file_names_the_place_where_it_was_written() -> None:
    # Put together here, or this file would find itself.
    places = ["/" + "work/", "/" + "tmp/venv", "/" + "tmp/prebuild"]
    found = []
    for path in files():
        text = path.read_bytes().decode(errors="ignore")
        found += [f"{path.relative_to(ROOT)}: {place}" for place in places if place in text]
    assert found == []
