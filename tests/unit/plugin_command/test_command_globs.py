from pathlib import Path

import pytest

from lab.plugins.command.globs import matching_files

FILES = ("a.txt", "src/a.js", "src/deep/b.js", "src/secret.js", "src/x1.js", "odd[1].txt")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("rules", "matching"),
    [
        (["*"], ["a.txt", "odd[1].txt"]),
        (["src/*.js"], ["src/a.js", "src/secret.js", "src/x1.js"]),
        (["src/**.js", "!**secret.*"], ["src/a.js", "src/deep/b.js", "src/x1.js"]),
        (["!**secret.*", "src/secret.js"], ["src/secret.js"]),
        (["src/{a,x?}.js"], ["src/a.js", "src/x1.js"]),
        (["src/[!a-b]?.js"], ["src/x1.js"]),
        (["odd\\[1\\].txt"], ["odd[1].txt"]),
        (["src"], []),
        ([], []),
    ],
)
def test_rules_choose_files(folder: Path, rules: list[str], matching: list[str]) -> None:
    assert matching_files(folder, rules) == matching
