"""`bin/sitectl` finds or makes its environment, from any folder; what it imports stays small."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sitectl.shell.cli import COMMANDS
from tests import documented
from tests.unit.sitectl.sites_to_work_on import COMMAND, ROOT, make_checkout

pytestmark = pytest.mark.processes

# A bootstrap that makes an environment out of the one that runs the tests, and counts.
BOOTSTRAP = f"""\
import pathlib, sys
root = pathlib.Path(__file__).resolve().parent.parent
made = root / "made"

def is_current(version):
    return made.exists() and made.read_text() == (root / "requirements.lock").read_text()

if __name__ == "__main__":
    sys.stderr.write("[venv] making it\\n")
    (root / ".venv" / "bin").mkdir(parents=True, exist_ok=True)
    (root / ".venv" / "pyvenv.cfg").write_text({(Path(sys.prefix) / "pyvenv.cfg").read_text()!r})
    python = root / ".venv" / "bin" / "python"
    if not python.exists():
        python.symlink_to({os.path.realpath(sys.executable)!r})
        (root / ".venv" / "lib").symlink_to({str(Path(sys.prefix, "lib").resolve())!r})
    made.write_text((root / "requirements.lock").read_text())
"""


def call(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | variables
    return subprocess.run(
        words, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        timeout=120,
    )  # fmt: skip


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A checkout with the launcher and no environment yet."""
    folder = make_checkout(tmp_path / "own", sites=("lab",))
    for name in ("bin", *COMMAND, "pyproject.toml"):
        source = ROOT / name
        shutil.copytree(source, folder / name) if source.is_dir() else shutil.copy(source, folder / name)
    (folder / "lab").mkdir()
    (folder / "lab" / "bootstrap.py").write_text(BOOTSTRAP)
    (folder / "requirements.lock").write_text("a==1\n")
    return folder


@pytest.mark.exhaustive
def test_the_launcher_makes_its_environment_once_and_again_for_another_lock(own: Path, tmp_path: Path) -> None:
    launcher = str(own / "bin" / "sitectl")
    first = call(own, "bin/sitectl", "--version")
    assert (first.returncode, first.stdout, first.stderr) == (0, f"sitectl 0.1.0 ({own})\n", "[venv] making it\n")
    (own / "docs-of-mine").mkdir()
    for folder, words in (
        (own, ["bin/sitectl", "validate", "lab"]),
        (own / "docs-of-mine", ["../bin/sitectl", "validate", "lab"]),
        (tmp_path, [launcher, "validate", "lab", "--project", str(own)]),
        (tmp_path, [launcher, "validate", str(own / "Pulumi.lab.yaml")]),
    ):
        done = call(folder, *words)
        assert (done.returncode, done.stderr) == (0, ""), words
        # A file that is named by its path is in no checkout that `rules` would know.
        if not words[-1].endswith(".yaml"):
            called = words[0] if words[0] != launcher else "own/bin/sitectl"
            assert f"next: {called} proof" in done.stdout, words
    (own / "requirements.lock").write_text("a==2\n")
    assert call(own, "bin/sitectl", "--version").stderr == "[venv] making it\n"
    assert call(own, "bin/sitectl", "--version").stderr == ""


def test_an_environment_that_cannot_be_made_ends_with_the_bootstraps_words(own: Path) -> None:
    (own / "lab" / "bootstrap.py").write_text("import sys\nsys.exit('error: no network\\n  fix: connect')\n")
    done = call(own, "bin/sitectl", "--help")
    assert (done.returncode, done.stderr) == (1, "error: no network\n  fix: connect\n")


def test_an_environment_of_another_user_is_an_error_with_a_fix(own: Path) -> None:
    """Its Python may be in a home folder that only its owner reads; root reads all, so the exec is what fails here."""
    python = own / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("no program\n")
    done = call(own, "bin/sitectl", "--version")
    assert done.returncode == 3
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        f"error: {python} cannot be run: Permission denied",
        "  fix: use a checkout of your own, or have its owner make .venv with a Python that you can run",
    ]


def test_the_launcher_is_named_in_an_activated_environment_too(own: Path) -> None:
    """There its own Python is first on PATH, as after `lab env`, and nothing has to be found."""
    (own / ".venv").symlink_to(sys.prefix)
    done = call(own, "bash", "-ec", f'export PATH="{sys.prefix}/bin:$PATH"; bin/sitectl validate lab')
    assert "next: bin/sitectl proof lab" in done.stdout


def test_the_name_of_the_launcher_can_be_copied_from_a_folder_with_blanks(own: Path, tmp_path: Path) -> None:
    (own / ".venv").symlink_to(sys.prefix)
    spaced = tmp_path / "my checkout"
    own.rename(spaced)
    done = call(tmp_path, "my checkout/bin/sitectl", "validat", "--project", str(spaced))
    assert "fix: 'my checkout/bin/sitectl' --help" in done.stderr


def test_the_launcher_works_in_a_folder_that_was_deleted(own: Path, tmp_path: Path) -> None:
    (own / ".venv").symlink_to(sys.prefix)
    (tmp_path / "gone").mkdir()
    done = call(tmp_path, "bash", "-c", f"cd gone; rmdir ../gone; {sys.executable} {own}/bin/sitectl validate")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-2:] == [
        "error: the current folder was deleted",
        "  fix: change into one that is there",
    ]


def test_a_linked_environment_is_somebody_elses_and_left_alone(own: Path) -> None:
    (own / ".venv").symlink_to(sys.prefix)
    done = call(own, "bin/sitectl", "--version")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_module_without_an_environment_is_the_launcher(own: Path) -> None:
    """-S: a Python that has none of the packages."""
    done = call(own, sys.executable, "-S", "-m", "sitectl", "--version")
    assert (done.returncode, done.stdout) == (0, f"sitectl 0.1.0 ({own})\n")
    assert "Traceback" not in done.stderr


def test_an_old_python_can_read_the_launcher() -> None:
    for file in ("bin/sitectl", "sitectl/__main__.py", "sitectl/shell/called.py", "sitectl/__init__.py"):
        ast.parse((ROOT / file).read_text(), feature_version=(3, 6))


def imported(*words: str) -> set[str]:
    """Top-level packages that a command has imported by its end."""
    code = (
        "import sys; from sitectl.shell.cli import main\n"
        f"main({list(words)!r})\n"
        "print('\\n'.join({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    return set(call(ROOT, sys.executable, "-c", code).stderr.split())


def test_help_imports_none_of_what_commands_need() -> None:
    """Counted, because time depends on the machine: --help answers at once."""
    for words in (["--help"], ["--version"], ["nonsense"]):
        loaded = imported(*words)
        assert "sitectl" in loaded
        assert not loaded & {"pulumi", "pulumi_kubernetes", "grpc", "kubernetes", "pydantic", "yaml"}, words


def test_validate_imports_no_sdk_of_kubernetes() -> None:
    assert not imported("validate", "lab") & {"pulumi_kubernetes", "kubernetes"}


def test_validate_completes_files_where_no_site_begins_so() -> None:
    asked = {"_SITECTL_COMPLETE": "bash_complete", "COMP_WORDS": "sitectl validate ./Pul", "COMP_CWORD": "2"}
    assert call(ROOT, sys.executable, "-m", "sitectl", **asked).stdout == "file,./Pul\n"


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["val"], ["validate"]),
        (["completion", "--q"], ["--quiet"]),
        (["validate", "pr"], ["prod"]),
        (["render", "lab", "p"], ["prod"]),
        (["plan", "--ref"], ["--refresh", "--refuse"]),
        (["docs", "add-a-"], ["add-a-component", "add-a-gpu", "add-a-model", "add-a-site", "add-a-tenant"]),
        (["docs", "pro"], ["proof", "provider-stand-ins", "prompts-by-id", "prove-other-manifests"]),
        (["catalogue", "s"], ["show"]),
        (["catalogue", "show", "glm-5"], ["glm-5.1-fp8"]),
        (["completion", "b"], ["bash"]),
        (["init", "la"], []),
    ],
)
def test_completion_offers_commands_options_and_sites(words: list[str], offered: list[str], tmp_path: Path) -> None:
    script = tmp_path / "sitectl.bash"
    script.write_text(call(ROOT, sys.executable, "-m", "sitectl", "completion", "bash").stdout)
    given = f"COMP_WORDS=(sitectl {' '.join(words)}); COMP_CWORD={len(words)}"
    ask = f"source {script}; {given}; _sitectl_completion {ROOT}/bin/sitectl"
    done = call(ROOT, "bash", "-c", f'{ask}; printf "%s\\n" "${{COMPREPLY[@]}}"')
    assert done.stdout.split() == offered


def test_the_launcher_is_called_as_its_page_says(own: Path) -> None:
    shown = (
        documented.shell("bin/sitectl --help"),
        documented.shell('export PATH="$PWD/bin:$PATH"'),
        documented.shell('eval "$(sitectl completion bash)"'),
    )
    (own / ".venv").symlink_to(sys.prefix)
    done = call(own, "bash", "-ec", "\n".join((*shown, "complete -p sitectl; sitectl validate lab")))
    assert (done.returncode, done.stderr) == (0, "")
    assert "complete -o nosort -F _sitectl_completion sitectl" in done.stdout
    assert "next: sitectl proof lab" in done.stdout


def test_the_readme_begins_without_a_lab(own: Path) -> None:
    (own / ".venv").symlink_to(sys.prefix)
    shown = (
        documented.shell("bin/sitectl init berlin --model chat=qwen3-32b-fp8 --gpu-hour 3.5"),
        documented.shell("bin/sitectl proof berlin"),
        documented.shell("bin/sitectl render berlin --out rendered"),
    )
    done = call(own, "bash", "-ec", "\n".join(shown))
    assert done.returncode == 0, done.stderr
    assert "chat: holds. Qwen/Qwen3-32B-FP8 on h200-sxm" in done.stdout
    assert "EUR/h" in done.stdout
    assert (own / "rendered" / "berlin" / "inference-models" / "deployment.apps_chat.yaml").exists()


def test_every_shell_gets_every_command() -> None:
    asked = {
        "zsh": {"_SITECTL_COMPLETE": "zsh_complete", "COMP_WORDS": "sitectl ", "COMP_CWORD": "1"},
        "fish": {"_SITECTL_COMPLETE": "fish_complete", "COMP_WORDS": "sitectl ", "COMP_CWORD": ""},
    }
    for shell, environment in asked.items():
        assert "complete" in call(ROOT, sys.executable, "-m", "sitectl", "completion", shell).stdout
        text = call(ROOT, sys.executable, "-m", "sitectl", **environment).stdout
        assert [name for name in COMMANDS if name not in text] == [], shell
