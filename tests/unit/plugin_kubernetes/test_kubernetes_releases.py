"""Release inputs, diffs and states, with a stand-in for helm itself that answers from files."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from lab.plugins.kubernetes import config, release_inputs, releases
from lab.plugins.kubernetes.checking import Naming
from lab.plugins.kubernetes.diffing import ChangeKind
from lab.plugins.kubernetes.errors import ProviderError
from lab.plugins.kubernetes.helm import Helm, HelmError, Record
from lab.plugins.kubernetes.objects import secrets_of
from lab.plugins.kubernetes.properties import UNKNOWN, Secret, Tree, encode, plain
from lab.plugins.kubernetes.session import ProviderSession

URN = "urn:pulumi:dev::project::kubernetes:helm.sh/v3:Release::web"
ASSET = {"4dabf18193072939515e22adb298388d": "c44067f5952c0a294b673a41bacd8c17"}


class SilentLog:
    def status(self, urn: str, message: str) -> None: ...
    def info(self, urn: str, message: str) -> None: ...
    def warning(self, urn: str, message: str) -> None: ...


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProviderSession:
    """A session without a cluster, whose helm knows the chart `demo` in version 1.2.3 and logs how it was called."""
    program = tmp_path / "bin" / "helm"
    program.parent.mkdir()
    program.write_text(
        f"""#!/bin/sh
printf '%s|' "$@" >> {tmp_path}/calls
cat >> {tmp_path}/given
echo >> {tmp_path}/calls
case "$1 $2" in
  "show chart") cat "$3/Chart.yaml";;
  "pull "*) for last; do :; done; mkdir -p "$last"; echo archive > "$last/demo-1.2.3.tgz";;
  "fail "*) echo "level=WARN msg=chatter" >&2; echo "Error: it broke" >&2; exit 1;;
esac
"""
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    chart = tmp_path / "demo"
    chart.mkdir()
    (chart / "Chart.yaml").write_text("name: demo\nversion: 1.2.3\n")
    monkeypatch.chdir(tmp_path)
    return ProviderSession(config.ProviderConfig(), SilentLog(), threading.Event())


def check(session: ProviderSession, olds: Tree | None = None, **news: Any) -> release_inputs.Checked:
    return release_inputs.check(session, URN, olds or {}, {"chart": "./demo", **news}, Naming(seed=b"seed"))


def record(**changes: Any) -> Record:
    known: dict[str, Any] = {
        "name": "web",
        "namespace": "default",
        "revision": 3,
        "status": "deployed",
        "description": "",
        "values": {},
        "manifest": "",
        "hooks": [],
        "chart": "demo",
        "chart_version": "1.2.3",
        "app_version": "7",
    }
    return Record(**{**known, **changes})


def test_inputs_name_everything_as_the_official_state_does(session: ProviderSession) -> None:
    inputs = check(session).inputs
    assert inputs["name"].startswith("web-") and len(inputs["name"]) == len("web-") + 8
    assert inputs["namespace"] == "default" and inputs["timeout"] == 300
    assert inputs["version"] == "1.2.3", "the chart's own, whatever range the program gives"
    assert inputs["atomic"] is False and inputs["keyring"] == "" and inputs["values"] == {}
    assert "maxHistory" not in inputs and "compat" not in inputs and "valueYamlFiles" not in inputs


def test_a_name_is_kept_and_a_timeout_belongs_to_waiting(session: ProviderSession) -> None:
    assert check(session, olds={"name": "web-1"}).inputs["name"] == "web-1"
    assert check(session, name="mine").inputs["name"] == "mine"
    assert check(session, skipAwait=True).inputs["timeout"] == 0
    assert check(session, timeout=0).inputs["timeout"] == 0


def test_values_of_files_lie_under_those_of_the_program(session: ProviderSession, tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("a: {b: 1, c: [1, 2]}\nd: file\n")
    files = [{**ASSET, "path": str(tmp_path / "base.yaml")}, {**ASSET, "text": "d: text\ne: null\n"}]
    values = {"a": {"c": [3], "s": Secret("hidden")}}
    inputs = check(session, valueYamlFiles=files, values=values).inputs
    assert inputs["values"] == {"a": {"b": 1, "c": [3], "s": Secret("hidden")}, "d": "text", "e": None}
    assert isinstance(check(session, valueYamlFiles=Secret(files), values=values).inputs["values"], Secret)
    assert check(session, valueYamlFiles=files, values=UNKNOWN).inputs["values"] is UNKNOWN
    with pytest.raises(ProviderError, match="cannot read values file"):
        check(session, valueYamlFiles=[{**ASSET, "path": "no.yaml"}])


def test_inputs_that_cannot_be_served_are_refused(session: ProviderSession) -> None:
    with pytest.raises(ProviderError, match="no place for a secret"):
        check(session, description=Secret("x"))
    with pytest.raises(ProviderError, match="does not cover the postrender input"):
        check(session, postrender="./script")
    with pytest.raises(ProviderError, match="does not cover the verify input"):
        check(session, verify=True)


def test_a_chart_that_cannot_be_had_is_a_failure_of_the_chart(session: ProviderSession, tmp_path: Path) -> None:
    (tmp_path / "demo" / "Chart.yaml").write_text("name: demo\nversion: 1.2.3\ntype: library\n")
    assert "a library chart, which is never installed" in check(session).problem
    (tmp_path / "bin" / "helm").write_text("#!/bin/sh\necho 'Error: no such chart' >&2\nexit 1\n")
    assert "cannot be pulled: no such chart" in check(session, chart="oci://registry.example.com/demo").problem


def test_a_password_of_a_repository_goes_by_standard_input(session: ProviderSession, tmp_path: Path) -> None:
    options = {"repo": "https://charts.example.com", "username": "reader", "password": "canary"}
    helm = Helm(session, tmp_path / "private")
    helm.folder.mkdir()
    assert helm.chart({"chart": "demo", "version": "1", "repositoryOpts": options}).name == "demo-1.2.3.tgz"
    helm.chart({"chart": "oci://registry.example.com/demo", "repositoryOpts": {**options, "repo": ""}})
    calls = (tmp_path / "calls").read_text()
    assert "repo|add|given|https://charts.example.com|--username|reader|--password-stdin" in calls
    assert "registry|login|registry.example.com|" in calls
    assert "canary" not in calls and (tmp_path / "given").read_text() == "canary" * 2


def test_helms_message_is_passed_on_without_its_chatter(session: ProviderSession, tmp_path: Path) -> None:
    with pytest.raises(HelmError) as caught:
        Helm(session, tmp_path).run("fail", cluster=False)
    assert str(caught.value) == "it broke"


def test_the_state_holds_what_helm_recorded_and_keeps_secrets(session: ProviderSession) -> None:
    inputs = check(session, name="web", values={"a": Secret("canary"), "b": 1}).inputs
    manifest = """
{apiVersion: v1, kind: ConfigMap, metadata: {name: m}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: d, namespace: n}}
---
# nothing
"""
    stored = releases._state(inputs, record(values={"a": "canary", "b": 1, "c": "by hand"}, manifest=manifest))
    assert stored["values"] == {"a": Secret("canary"), "b": 1, "c": "by hand"}
    assert stored["resourceNames"] == {"ConfigMap/v1": ["m"], "Deployment.apps/apps/v1": ["n/d"]}
    assert stored["status"]["revision"] == 3 and stored["status"]["appVersion"] == "7"
    assert isinstance(stored["__inputs"], Secret) and encode(stored)
    assert secrets_of(stored) == {"canary"}, "what is not secret stays readable in messages"
    preview = releases._state(inputs, None)
    assert preview["status"] is UNKNOWN and preview["resourceNames"] is UNKNOWN


def changes(state: Tree, news: Tree, ignored: list[str] | None = None) -> dict[str, ChangeKind]:
    return {path: change.change for path, change in releases.diff(state, news, ignored or []).changes.items()}


def test_a_diff_names_the_value_that_differs(session: ProviderSession) -> None:
    before = check(session, name="web", values={"a": {"x.y": 1, "l": [1, 2]}, "gone": 1}).inputs
    state = releases._state(before, record(values=plain(before["values"])))
    assert changes(state, before) == {}
    after = check(session, name="web", values={"a": {"x.y": 2, "l": [1]}, "new": 1}, timeout=5).inputs
    assert changes(state, after) == {
        'values.a["x.y"]': ChangeKind.UPDATE,
        "values.a.l[1]": ChangeKind.DELETE,
        "values.gone": ChangeKind.DELETE,
        "values.new": ChangeKind.ADD,
        "timeout": ChangeKind.UPDATE,
    }
    newer = {**before, "version": "1.2.4"}
    assert changes(state, newer) == {"version": ChangeKind.UPDATE} and changes(state, newer, ["version"]) == {}


def test_what_was_changed_behind_our_back_differs_too(session: ProviderSession) -> None:
    inputs = check(session, name="web", values={"a": 1, "l": [1]}).inputs
    state = releases._state(inputs, record(values={"a": 2, "l": [1, 2], "theirs": 3}))
    assert changes(state, inputs) == {"values.a": ChangeKind.UPDATE, "values.l[1]": ChangeKind.DELETE}


def test_only_another_place_replaces(session: ProviderSession) -> None:
    inputs = check(session, name="web", values={"name": "a"}).inputs
    state = releases._state(inputs, record(values={"name": "a"}))
    for key in ("name", "namespace"):
        assert releases.diff(state, {**inputs, key: "other"}, []).replaces == [key]
    assert releases.diff(state, {**inputs, "values": {"name": "b"}, "chart": "./other"}, []).replaces == []


def test_states_of_other_versions_are_no_change(session: ProviderSession) -> None:
    inputs = check(session, name="web").inputs
    state = releases._state(inputs, record())
    older = {key: value for key, value in inputs.items() if key != "takeOwnership"}
    state["__inputs"] = Secret({**older, "checksum": "0", "resourceNames": {"ConfigMap/v1": ["m"]}})
    del state["takeOwnership"]
    assert changes(state, inputs) == {}
