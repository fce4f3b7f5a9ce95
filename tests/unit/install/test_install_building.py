"""Building a family with a stand-in for go: what the key depends on, names, scripts, and each error's text."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from lab.errors import LabError
from lab.install.building import GoBuilder, build_error
from lab.install.parts import GO_FAMILIES, BuiltProgram, GoFamily
from lab.install.toolchain import GoToolchain, go_environment
from lab.paths import Lab

FAKE_GO = """#!/bin/sh
case "$1" in
  mod) echo '{"Dir": "MODULE"}' ;;
  list) cat LIBRARIES 2>/dev/null || true ;;
  build)
    echo "$@" >> STEPS
    echo "$@" > ARGUMENTS
    env > ENVIRONMENT
    if [ -f FAILURE ]; then cat FAILURE; exit 1; fi
    while [ $# != 0 ] && [ "$1" != "-o" ]; do shift; done
    [ $# != 0 ] || exit 0
    for package in controller server; do echo program > "$2$package"; chmod 755 "$2$package"; done ;;
esac
"""


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(home=tmp_path / "home", cache=tmp_path / "cache")


@pytest.fixture
def family(tmp_path: Path) -> GoFamily:
    folder = tmp_path / "tools" / "gateway"
    folder.mkdir(parents=True)
    (folder / "go.mod").write_text("module x\n\ngo 1.26.0\n\nrequire example.org/gateway v1.2.3\n")
    (folder / "go.sum").write_text("example.org/gateway v1.2.3 h1:abc=\n")
    return GoFamily(
        name="gateway",
        module="example.org/gateway",
        programs=(
            BuiltProgram(name="gateway-controller", package="example.org/gateway/cmd/controller"),
            BuiltProgram(name="gatewayd", package="example.org/gateway/server/v3"),
        ),
        version_variables=(("example.org/gateway/version.text", "{version}-x"),),
        scripts=("scripts/helper",),
        tools=tmp_path / "tools",
    )


@pytest.fixture
def builder(lab: Lab, tmp_path: Path) -> GoBuilder:
    (tmp_path / "module" / "scripts").mkdir(parents=True)
    (tmp_path / "module" / "scripts" / "helper").write_text("#!/bin/sh\n")
    text = FAKE_GO
    for word in ("MODULE", "ARGUMENTS", "ENVIRONMENT", "FAILURE", "LIBRARIES", "STEPS"):
        text = text.replace(word, str(tmp_path / word.lower()))
    go = tmp_path / "go"
    go.write_text(text)
    go.chmod(0o755)
    return GoBuilder(lab, GoToolchain(go, "go1.26.8 linux/amd64", "test"))


def test_programs_get_their_names_and_scripts_come_along(builder: GoBuilder, family: GoFamily, tmp_path: Path) -> None:
    entry = builder.obtain(family)
    programs = sorted((entry.folder / "bin").iterdir())
    assert [path.name for path in programs] == ["gateway-controller", "gatewayd", "helper"]
    assert all(path.stat().st_mode & 0o777 == 0o755 for path in programs)
    assert (
        "-trimpath -ldflags -s -w -X example.org/gateway/version.text=v1.2.3-x" in (tmp_path / "arguments").read_text()
    )


def test_libraries_are_compiled_in_batches_so_that_few_are_on_the_disk_twice(
    builder: GoBuilder, family: GoFamily, tmp_path: Path
) -> None:
    libraries = [f"example.org/library/{number}" for number in range(900)]
    downloads = "go: downloading example.org/library v1.0.0\n\n"
    (tmp_path / "libraries").write_text(downloads + "".join(f"{library}\n" for library in libraries))
    builder.obtain(family)
    *before, last = [line.split() for line in (tmp_path / "steps").read_text().splitlines()]
    compiled = [[word for word in step if word in libraries] for step in before]
    assert [library for step in compiled for library in step] == libraries
    assert [len(step) for step in compiled] == [400, 400, 100]
    assert not {*libraries} & {*last}


def test_tags_and_the_releases_number_reach_go(builder: GoBuilder, family: GoFamily, tmp_path: Path) -> None:
    variables = (("example.org/gateway/version.text", "{release}"),)
    tagged = dataclasses.replace(family, tags=("small", "quick"), version_variables=variables)
    builder.obtain(tagged)
    arguments = (tmp_path / "arguments").read_text()
    assert "-ldflags -s -w -X example.org/gateway/version.text=1.2.3 -tags small,quick -o" in arguments


@pytest.mark.parametrize(
    ("module", "release"),
    [("v0.312.0", "3.12.0"), ("v0.305.1", "3.5.1"), ("v0.300.0", "3.0.0"), ("v0.320.10", "3.20.10")],
)
def test_prometheus_counts_its_module_apart(module: str, release: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prometheus = next(family for family in GO_FAMILIES if family.name == "prometheus")
    monkeypatch.setattr("lab.install.parts.required_version", lambda *_: module)
    assert prometheus.release == release


def test_the_key_follows_sums_flags_programs_own_code_and_toolchain(builder: GoBuilder, family: GoFamily) -> None:
    first = builder.key(family)
    assert builder.key(family) == first
    other_go = dataclasses.replace(builder, toolchain=GoToolchain(Path("go"), "go1.27.0 linux/amd64", "test"))
    keys = {
        first,
        other_go.key(family),
        builder.key(dataclasses.replace(family, version_variables=())),
        builder.key(dataclasses.replace(family, scripts=())),
        builder.key(dataclasses.replace(family, programs=family.programs[:1])),
    }
    keys.add(builder.key(dataclasses.replace(family, tags=("small",))))
    assert len(keys) == 6
    with (family.folder / "go.sum").open("a") as sums:
        sums.write("example.org/other v1.0.0 h1:def=\n")
    keys.add(builder.key(family))
    (family.folder / "main.go").write_text("package main\n")
    keys.add(builder.key(family))
    (family.folder / "main.go").write_text("package main // changed\n")
    keys.add(builder.key(family))
    (family.folder / "own.patch").write_text("a patch\n")
    keys.add(builder.key(family))
    assert len(keys) == 10


PATCH = (
    "--- a/pkg/answer.go\n+++ b/pkg/answer.go\n@@ -1,2 +1,2 @@\n package pkg\n-var Answer = 429\n+var Answer = 503\n"
)


def test_a_patched_module_is_what_is_built(builder: GoBuilder, family: GoFamily, tmp_path: Path) -> None:
    """A copy: the module cache stays as its sums say."""
    original = tmp_path / "module" / "pkg" / "answer.go"
    original.parent.mkdir()
    original.write_text("package pkg\nvar Answer = 429\n")
    original.chmod(0o444)
    original.parent.chmod(0o555)
    (family.folder / "own.patch").write_text(PATCH)
    go = builder.toolchain.program
    seen = tmp_path / "seen"
    # The fake go reads what the go.mod that it is given puts in the module's place.
    go.write_text(go.read_text().replace("build)", f"build) cp -r $(sed -n 's/^replace .* => //p' \"$7\") {seen}; ", 1))
    builder.obtain(family)
    assert "var Answer = 503" in (seen / "pkg" / "answer.go").read_text()
    assert "var Answer = 429" in original.read_text()
    assert "-modfile" in (tmp_path / "arguments").read_text()


def test_a_patch_that_does_not_fit_is_named(builder: GoBuilder, family: GoFamily, tmp_path: Path) -> None:
    (tmp_path / "module" / "pkg").mkdir()
    (tmp_path / "module" / "pkg" / "answer.go").write_text("package pkg\nvar Answer = 500\n")
    (family.folder / "own.patch").write_text(PATCH)
    with pytest.raises(LabError, match=r"gateway/own\.patch does not fit example\.org/gateway"):
        builder.obtain(family)
    assert builder.store.fault("gateway", builder.key(family)) == "missing"


def test_the_users_build_settings_do_not_reach_go(lab: Lab) -> None:
    users = {"PATH": "/bin", "GOFLAGS": "-race", "GOEXPERIMENT": "x", "CGO_CFLAGS": "-O0", "GOPROXY": "https://mine"}
    environment = go_environment(lab, users)
    assert environment["GOPROXY"] == "https://mine"
    assert environment["GOFLAGS"] == "-mod=readonly -buildvcs=false"
    assert environment["GOMODCACHE"] == str(lab.cache / "go" / "mod")
    assert not {"GOEXPERIMENT", "CGO_CFLAGS"} & set(environment)


def test_a_failed_build_shows_its_last_lines_and_leaves_nothing(
    builder: GoBuilder, family: GoFamily, tmp_path: Path, lab: Lab
) -> None:
    (tmp_path / "failure").write_text("# example.org/gateway\nmain.go:1: undefined: x\n")
    with pytest.raises(LabError) as failure:
        builder.obtain(family)
    assert "part gateway: go failed" in failure.value.what
    assert "undefined: x" in failure.value.what
    assert str(lab.cache / "logs" / "gateway.log") in failure.value.fix
    assert builder.store.fault("gateway", builder.key(family)) == "missing"


@pytest.mark.parametrize(
    ("output", "what", "fix"),
    [
        (
            'example.org/m@v1.2.3: Get "https://proxy.golang.org/example.org/m/@v/v1.2.3.zip": dial tcp: lookup '
            "proxy.golang.org: no such host",
            "part crds: example.org/m v1.2.3 could not be fetched, the module proxy cannot be reached",
            "connect to the network",
        ),
        (
            "go: github.com/pulumi/pulumi/pkg/v3@v3.265.0: reading https://proxy.golang.org/x/@v/v3.265.0.info: "
            "403 Forbidden\n\tserver response: This module version is not available.",
            "the module proxy refuses github.com/pulumi/pulumi/pkg/v3 v3.265.0",
            "tools/family/go.mod",
        ),
        (
            'reading "https://goproxy.example/example.org/m/@v/v1.0.0.mod": 404 Not Found',
            "refuses example.org/m v1.0.0",
            "GOPROXY",
        ),
        ("missing go.sum entry for example.org/m", "a module of tools/family does not match", "go mod tidy"),
        ("verifying example.org/m@v1.0.0: checksum mismatch", "example.org/m v1.0.0 does not match", "go.sum"),
        ("write /tmp/x: no space left on device", "the disk is full", "free about 8 GB"),
    ],
)
def test_go_output_becomes_one_error_with_a_fix(tmp_path: Path, output: str, what: str, fix: str) -> None:
    log = tmp_path / "x.log"
    log.write_text(output + "\n")
    error = build_error("crds", "family", log)
    assert error.what.startswith("part crds: ")
    assert what in error.what
    assert fix in error.fix


@pytest.mark.parametrize("family", GO_FAMILIES, ids=lambda family: family.name)
def test_each_declared_family_has_its_module_and_sums(family: GoFamily) -> None:
    assert family.version.startswith("v")
    assert f"{family.module} {family.version} h1:" in (family.folder / "go.sum").read_text()
    declared = (family.folder / "go.mod").read_text()
    assert all(program.package in declared for program in family.programs)


def test_no_two_families_claim_a_name() -> None:
    names = [name for family in GO_FAMILIES for name in family.names]
    assert len(names) == len(set(names))
