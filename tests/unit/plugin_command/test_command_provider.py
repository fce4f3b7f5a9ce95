from pathlib import Path
from typing import Any

import grpc
import pytest
from pulumi.runtime.proto import provider_pb2

from lab.plugins import values
from lab.plugins.command.process import JobRunner
from lab.plugins.command.provider import CommandProvider
from lab.plugins.protocol import EngineLog

URN = "urn:pulumi:lab::project::inference-platform:talos:Node$command:local:Command::job"


class AbortedError(Exception):
    """What gRPC's abort becomes here."""


class Context:
    def abort(self, code: grpc.StatusCode, message: str) -> None:
        assert code == grpc.StatusCode.UNKNOWN
        raise AbortedError(message)


@pytest.fixture
def provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandProvider:
    monkeypatch.chdir(tmp_path)
    return CommandProvider(EngineLog(""), JobRunner())


def create(provider: CommandProvider, *, preview: bool = False, **properties: Any) -> Any:
    request = provider_pb2.CreateRequest(urn=URN, properties=values.to_struct(properties), preview=preview)
    return provider.Create(request, Context())


def update(provider: CommandProvider, olds: dict[str, Any], *, preview: bool = False, **news: Any) -> dict[str, Any]:
    request = provider_pb2.UpdateRequest(
        urn=URN, olds=values.to_struct(olds), news=values.to_struct(news), preview=preview
    )
    return values.from_struct(provider.Update(request, Context()).properties)


def test_create_keeps_inputs_as_they_came_and_adds_outputs(provider: CommandProvider) -> None:
    token = values.secret("abcdef")
    made = create(provider, create="echo $A", environment={"A": token}, triggers=[1.0])
    assert made.id.startswith("job")
    assert len(made.id) == len("job") + 8
    assert values.from_struct(made.properties) == {
        "create": "echo $A",
        "environment": {"A": token},
        "triggers": [1.0],
        "stdout": "abcdef",
        "stderr": "",
    }


def test_previews_run_nothing_and_know_no_output(provider: CommandProvider, tmp_path: Path) -> None:
    made = create(provider, preview=True, create="touch ran", archivePaths=["*"])
    assert made.id == ""
    outputs = values.from_struct(made.properties)
    assert (outputs["stdout"], outputs["stderr"], outputs["archive"]) == (values.UNKNOWN,) * 3
    olds = {"create": "true", "stdout": "old", "stderr": ""}
    assert update(provider, olds, preview=True, create="touch ran")["stdout"] == values.UNKNOWN
    assert update(provider, olds, preview=True, delete="touch ran")["stdout"] == "old", "nothing will run"
    assert list(tmp_path.iterdir()) == []


def test_update_runs_its_script_with_the_earlier_output(provider: CommandProvider) -> None:
    olds = {"create": "true", "stdout": "old", "stderr": "bad"}
    script = "echo $PULUMI_COMMAND_STDOUT/$PULUMI_COMMAND_STDERR"
    assert update(provider, olds, create="true", update=script)["stdout"] == "old/bad"
    assert update(provider, olds, create=script)["stdout"] == "old/bad", "create serves as update"
    assert update(provider, olds, create=script, addPreviousOutputInEnv=False)["stdout"] == "/"
    assert update(provider, olds, stdin="x")["stdout"] == "old", "without a script nothing runs"


def test_delete_runs_its_script(provider: CommandProvider, tmp_path: Path) -> None:
    state = {"delete": "echo $PULUMI_COMMAND_STDOUT > gone", "stdout": values.secret("made"), "stderr": ""}
    provider.Delete(provider_pb2.DeleteRequest(urn=URN, properties=values.to_struct(state)), Context())
    assert (tmp_path / "gone").read_text() == "made\n"


def test_interpreter_and_folder_are_used(provider: CommandProvider, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    made = create(provider, create="import os; print(os.getcwd())", interpreter=["python3", "-c"], dir="sub")
    assert values.from_struct(made.properties)["stdout"] == str(tmp_path / "sub")


def test_triggers_replace_and_the_rest_updates(provider: CommandProvider) -> None:
    request = provider_pb2.DiffRequest(
        urn=URN,
        old_inputs=values.to_struct({"create": "a", "triggers": [1.0], "stdin": "x"}),
        olds=values.to_struct({"create": "a", "triggers": [1.0], "stdin": "x", "stdout": "o", "stderr": ""}),
        news=values.to_struct({"create": "b", "triggers": [2.0], "stdin": "y"}),
        ignoreChanges=["stdin"],
    )
    diff = provider.Diff(request, Context())
    assert list(diff.diffs) == ["create", "triggers[0]"]
    assert list(diff.replaces) == ["triggers[0]"]
    assert diff.changes == provider_pb2.DiffResponse.DIFF_SOME
    assert not diff.deleteBeforeReplace
    assert diff.detailedDiff["triggers[0]"].kind == provider_pb2.PropertyDiff.UPDATE_REPLACE


def test_a_failed_script_aborts_without_the_secret(provider: CommandProvider) -> None:
    with pytest.raises(AbortedError) as failed:
        create(provider, create="echo $A >&2; exit 4", environment=values.secret({"A": "abcdef"}))
    assert "exit status 4" in str(failed.value)
    assert "abcdef" not in str(failed.value)


def test_run_returns_outputs_and_names_bad_arguments(provider: CommandProvider) -> None:
    def invoke(**arguments: Any) -> Any:
        request = provider_pb2.InvokeRequest(tok="command:local:run", args=values.to_struct(arguments))
        return provider.Invoke(request, Context())

    assert values.from_struct(getattr(invoke(command="echo hi"), "return"))["stdout"] == "hi"
    assert [failure.property for failure in invoke(dir=1.0).failures] == ["dir", "command"]


def test_other_kinds_are_refused_by_name(provider: CommandProvider) -> None:
    request = provider_pb2.CheckRequest(urn=URN.replace("command:local:", "command:remote:"))
    with pytest.raises(AbortedError, match="command:remote:Command"):
        provider.Check(request, Context())
