"""A model's weights on a site: one Job that brings them, servers that read them, and what locks change."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from components.models import own_program, weights
from components.models.model_server import deployment
from components.specs.weights import adapter_role
from floor.problems import SiteError
from services.weights.manifest import Entry, Manifest, file_name
from services.weights.order import Wanted
from stacks.facts import catalogue
from stacks.plan.models import RevisionPlan
from stacks.plan.site_plan import plan_read, plan_values
from stacks.plan.weights import lacking_repositories
from stacks.site.loader import read_values
from tests.unit.spine.test_platform import declare
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("000.19", "000.20", "000.22", "001.30", "003.12", "opening 10")

QWEN = catalogue.load("qwen3-32b-fp8")
LOCK = Manifest(QWEN.repository, QWEN.revision, {"model.safetensors": Entry(50 * 2**30, "ab" * 32)})
# A site whose every model has this lock.
QWEN_ALONE = {"models.glm-5-1": None, "tenants": {"a": {"models": ["qwen3-32b"], "keys": {"laptop": {}}}}}


def serving(project: Path, change: dict[str, Any] | None = None, lock: str = "") -> RevisionPlan:
    if lock:
        (project / "weights").mkdir(exist_ok=True)
        (project / "weights" / file_name(QWEN.repository, QWEN.revision)).write_text(lock)
    file = project / "Pulumi.prod.yaml"
    return plan_values(changed(prod(), change or {}), str(file)).models["qwen3-32b"].stable


def store(project: Path, change: dict[str, Any] | None = None, lock: str = "") -> weights.WeightsPlan:
    plan = serving(project, change, lock).weights
    assert plan
    return plan


def test_servers_read_one_revision_and_wait_for_its_check(tmp_path: Path) -> None:
    plan = serving(tmp_path)
    pod = deployment("q", "m", plan.spec.server, plan.server, plan.engine, plan.weights)["spec"]["template"]["spec"]
    (check, _), (container,) = pod["initContainers"], pod["containers"]
    revision = {
        "name": "weights",
        "mountPath": "/models/weights",
        "subPath": f"revisions/{QWEN.revision}",
        "readOnly": True,
    }
    assert revision in check["volumeMounts"]
    assert revision in container["volumeMounts"]
    writable = [
        mount for mount in container["volumeMounts"] if not mount.get("readOnly") and mount["name"] == "weights"
    ]
    assert [mount["subPath"] for mount in writable] == ["vllm-cache"]
    variables = {variable["name"]: variable.get("value") for variable in container["env"]}
    assert (variables["HF_HUB_OFFLINE"], variables["VLLM_CACHE_ROOT"]) == ("1", writable[0]["mountPath"])


def test_the_token_is_named_and_never_written(tmp_path: Path) -> None:
    plan = store(tmp_path, {"storage.weights": {"token_secret": "hub-token"}})
    job = weights.job("q", "m", plan)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    (token,) = [variable for variable in container["env"] if variable["name"] == "HF_TOKEN"]
    assert token["valueFrom"]["secretKeyRef"] == {"name": "hub-token", "key": "token", "optional": True}
    assert plan.order.token_from == "Secret inference-models/hub-token, key token"
    assert "HF_TOKEN" not in str(weights.job("q", "m", store(tmp_path, {"storage.weights": {}})))


BUCKET = {"source": "bucket", "bucket": {"address": "https://s3.site.example/models/", "keys_secret": "weights-bucket"}}


def test_a_bucket_is_named_with_its_keys_and_never_holds_them(tmp_path: Path) -> None:
    plan = store(tmp_path, {"storage.weights": BUCKET, **QWEN_ALONE}, lock=LOCK.text())
    assert (plan.order.endpoint, plan.order.region) == ("https://s3.site.example/models", "us-east-1")
    assert plan.order.token_from == ("Secret inference-models/weights-bucket, keys access_key_id and secret_access_key")
    (container,) = weights.job("q", "m", plan)["spec"]["template"]["spec"]["containers"]
    variables = {variable["name"]: variable for variable in container["env"]}
    assert variables["WEIGHTS_BUCKET"]["value"] == "https://s3.site.example/models"
    assert variables["AWS_SECRET_ACCESS_KEY"]["valueFrom"]["secretKeyRef"] == {
        "name": "weights-bucket",
        "key": "secret_access_key",
        "optional": True,
    }
    token = {"name": "weights-bucket", "key": "session_token", "optional": True}
    assert variables["AWS_SESSION_TOKEN"]["valueFrom"]["secretKeyRef"] == token
    assert not {"HF_ENDPOINT", "HF_TOKEN"} & variables.keys()
    assert plan.egress is None, "its port is not that of its pods"


def test_a_bucket_serves_locked_models_alone(tmp_path: Path) -> None:
    file = tmp_path / "Pulumi.prod.yaml"
    values = changed(prod(), {"storage.weights": BUCKET})
    with pytest.raises(SiteError, match=r"has no lock of .* at [0-9a-f]{8}, and a bucket lists no files") as refused:
        plan_values(values, str(file))
    assert [problem.key for problem in refused.value.problems] == ["models.glm-5-1", "models.qwen3-32b"]
    itself = changed(prod(), {"storage.weights": BUCKET})
    changed(itself, {"storage.weights.bucket.address": "http://localhost:9000/models"})
    with pytest.raises(SiteError, match=r"storage\.weights\.bucket\.address: is each replica itself"):
        plan_values(itself, str(file))
    assert all("weights lock" in problem.fix for problem in refused.value.problems)
    plan = plan_read(read_values(values, str(file)), without={"weights"})
    assert set(plan.stores) == {"glm-5-1", "qwen3-32b"}, "the command that writes the locks reads it"


REGISTRY = {"address": "https://registry.site.example/models/", "login_secret": "weights-login"}
OCI = {"source": "oci", "oci": REGISTRY}


def test_a_registry_is_named_with_its_login_and_never_holds_it(tmp_path: Path) -> None:
    plan = store(tmp_path, {"storage.weights": OCI, **QWEN_ALONE}, lock=LOCK.text())
    assert (plan.order.source, plan.order.endpoint) == ("oci", "https://registry.site.example/models")
    assert plan.order.token_from == "Secret inference-models/weights-login, keys username and password"
    (container,) = weights.job("q", "m", plan)["spec"]["template"]["spec"]["containers"]
    variables = {variable["name"]: variable for variable in container["env"]}
    assert variables["WEIGHTS_REGISTRY"]["value"] == "https://registry.site.example/models"
    for variable, key in (("REGISTRY_USERNAME", "username"), ("REGISTRY_PASSWORD", "password")):
        reference = {"name": "weights-login", "key": key, "optional": True}
        assert variables[variable]["valueFrom"]["secretKeyRef"] == reference
    assert not {"HF_ENDPOINT", "HF_TOKEN", "WEIGHTS_BUCKET"} & variables.keys()
    assert plan.egress is None, "it redirects to stores"
    assert "weights-login" not in str([weights.prune_job("q", "m", plan), *weights.check_containers(plan)])
    assert "registry.py" in own_program.config_map("weights", "m")["data"]
    everyone = {"source": "oci", "oci": {"address": "https://registry.site.example"}}
    plan = store(tmp_path, {"storage.weights": everyone, **QWEN_ALONE}, lock=LOCK.text())
    assert plan.order.token_from == "" and "secretKeyRef" not in str(weights.job("q", "m", plan))


def test_a_registry_serves_locked_models_alone(tmp_path: Path) -> None:
    file = tmp_path / "Pulumi.prod.yaml"
    values = changed(prod(), {"storage.weights": OCI})
    with pytest.raises(SiteError, match=r"has no lock of .*, and a registry has files by their sha256") as refused:
        plan_values(values, str(file))
    assert [problem.key for problem in refused.value.problems] == ["models.glm-5-1", "models.qwen3-32b"]
    assert all("weights lock" in problem.fix for problem in refused.value.problems)
    plan = plan_read(read_values(values, str(file)), without={"weights"})
    assert set(plan.stores) == {"glm-5-1", "qwen3-32b"}, "the command that writes the locks reads it"


@pytest.mark.parametrize(
    ("address", "right"),
    [
        ("https://registry.site.example//Models/Prod/", "https://registry.site.example/models/prod"),
        ("https://registry.site.example/models/v2", "https://registry.site.example/models"),
        ("https://registry.site.example/Models/V2/", "https://registry.site.example/models"),
        ("https://registry.site.example/V2", "https://registry.site.example"),
        ("https://registry.site.example/v2", "https://registry.site.example"),
        ("http://10.5.0.9:5000/v2/", "http://10.5.0.9:5000"),
        ("https://registry.site.example/v2/models", "https://registry.site.example/models"),
        ("https://registry.site.example/models/qwen/qwen3-32b-fp8", "https://registry.site.example/models"),
        ("http://localhost:5000", "https://registry.site.example/models"),
        ("registry.site.example", "https://registry.site.example/models"),
        ("https://u:p@registry.site.example/models", "https://registry.site.example/models"),
        ("https://registry.site.example/models/..", "https://registry.site.example/models"),
    ],
)
def test_an_address_that_is_no_registrys_has_a_fix_that_is(tmp_path: Path, address: str, right: str) -> None:
    change = {"storage.weights": OCI, "storage.weights.oci.address": address, **QWEN_ALONE}
    with pytest.raises(SiteError) as refused:
        store(tmp_path, change, lock=LOCK.text())
    problems = refused.value.problems
    assert all(problem.key.startswith("storage.weights.oci") for problem in problems)
    assert any(problem.fix.endswith(f" {right}") for problem in problems)
    assert "u:p" not in str(refused.value)
    assert len(problems) == 1 + ("u:p" in address), "one place decides what is wrong"
    assert store(tmp_path, {**change, "storage.weights.oci.address": right}).order.endpoint == right


@pytest.mark.parametrize(("repository", "fits"), [("Owner/Model-V1.5__b", True), ("owner/_model", False)])
def test_a_repository_that_no_registry_can_have_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repository: str, fits: bool
) -> None:
    plan = store(tmp_path, {"storage.weights": OCI, **QWEN_ALONE}, lock=LOCK.text())
    wanted = replace(plan.order.wanted[0], repository=repository)
    other = replace(plan, order=replace(plan.order, wanted=(wanted,)))
    problems = list(lacking_repositories({"q": other}))
    assert [problem.path for problem in problems] == ([] if fits else [("models", "q")])
    bucket = replace(other, order=replace(other.order, source="bucket"))
    assert not list(lacking_repositories({"q": bucket}))
    # No entry of the catalogue has such a repository.
    monkeypatch.setattr("stacks.plan.weights.is_repository", lambda _: fits)
    with nullcontext() if fits else pytest.raises(SiteError, match="has the repository Qwen/Qwen3-32B-FP8, and no"):
        store(tmp_path, {"storage.weights": OCI, **QWEN_ALONE}, lock=LOCK.text())


def test_the_job_trusts_the_authorities_that_a_site_names(tmp_path: Path) -> None:
    plan = store(tmp_path, {"storage.weights.ca_config_map": "hub-ca"})
    pod = weights.job("q", "m", plan)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert {"name": "ca", "configMap": {"name": "hub-ca", "optional": True}} in pod["volumes"]
    assert {"name": "ca", "mountPath": "/etc/weights-ca", "readOnly": True} in container["volumeMounts"]
    assert container["args"][-1] == "--ca=/etc/weights-ca/ca.crt"
    assert plan.order.ca_from == "ConfigMap inference-models/hub-ca, key ca.crt"
    assert "--ca=" not in str(weights.prune_job("q", "m", plan)), "it asks no server"
    without = store(tmp_path, {"storage.weights": {}})
    assert "weights-ca" not in str(weights.job("q", "m", without))
    assert "ca_from" not in str(without.order.files())


def test_authorities_of_a_server_that_is_not_asked_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SiteError, match="with source volume none is asked; got ca_config_map hub-ca"):
        store(tmp_path, {"storage.weights": {"source": "volume", "ca_config_map": "hub-ca"}})


def test_a_job_is_given_twice_the_time_that_its_limit_needs(tmp_path: Path) -> None:
    plan = store(tmp_path, {"storage.weights.download_bytes_per_s": 1e8})
    needed = serving(tmp_path).server.weight_bytes / 1e8
    assert plan.order.bytes_per_s == 1e8
    assert weights.job("q", "m", plan)["spec"]["activeDeadlineSeconds"] == plan.budget_s
    assert 2 * needed + 300 < plan.budget_s < plan.patience_s


def test_a_filled_volume_has_a_job_that_reaches_nothing(tmp_path: Path) -> None:
    plan = store(tmp_path, {"storage.weights": {"source": "volume"}})
    assert "HF_ENDPOINT" not in str(weights.job("q", "m", plan))
    assert plan.egress == []


def test_the_volume_has_the_size_of_the_catalogue_and_room_for_more_revisions(tmp_path: Path) -> None:
    single = {"storage.weights.revisions": 1}
    by_catalogue = serving(tmp_path).server.weight_bytes
    assert store(tmp_path, single).volume_bytes == by_catalogue
    assert store(tmp_path, {"storage.weights.revisions": 2}).volume_bytes == 2 * by_catalogue
    assert [store(tmp_path, {"storage.weights.revisions": count}).order.keep for count in (1, 2)] == [1, 1]


@pytest.mark.parametrize(("share", "grows"), [(0.5, False), (1.05, False), (1.2, True)])
def test_a_lock_changes_a_volume_only_where_its_files_would_not_fit(tmp_path: Path, share: float, grows: bool) -> None:
    """A claim that exists never shrinks, and grows only where its class allows that."""
    single = {"storage.weights.revisions": 1}
    without = store(tmp_path, single).volume_bytes
    lock = Manifest(QWEN.repository, QWEN.revision, {"model.safetensors": Entry(round(without * share), "0" * 64)})
    locked = store(tmp_path, single, lock.text()).volume_bytes
    assert locked == (round(without * share) if grows else without)


def test_a_job_runs_where_servers_run_and_sees_no_gpu(tmp_path: Path) -> None:
    """Other nodes need not mount the volume; in the servers' runtime class the image would give it every GPU."""
    plan = store(tmp_path)
    for job in (weights.job("q", "m", plan), weights.prune_job("q", "m", plan)):
        pod = job["spec"]["template"]["spec"]
        (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        assert term["matchExpressions"] == [{"key": "nvidia.com/gpu.family", "operator": "Exists"}]
    (check,) = weights.check_containers(plan)
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in check["env"]


def test_each_repository_is_checked_and_mounted_by_its_role_and_none_goes_without(tmp_path: Path) -> None:
    plan = store(tmp_path)
    adapter = Wanted("org/adapter", "c" * 40, "")
    order = replace(plan.order, wanted=(*plan.order.wanted, adapter))
    both = replace(plan, order=order, roles=(*plan.roles, "draft"))
    assert [check["name"] for check in weights.check_containers(both)] == ["check-weights", "check-draft"]
    mounted = {mount["mountPath"]: mount.get("subPath") for mount in weights.server_mounts(both, "")}
    assert mounted["/models/draft"] == f"revisions/{adapter.revision}"
    for reads in (weights.check_containers, lambda lacking: weights.server_mounts(lacking, "")):
        with pytest.raises(ValueError, match="zip"):
            reads(replace(plan, order=order))


def test_all_adapters_are_checked_by_one_container_and_mounted_at_once(tmp_path: Path) -> None:
    plan = store(tmp_path)
    adapters = tuple(Wanted(f"org/adapter-{number}", f"{number:040x}", "") for number in range(200))
    order = replace(plan.order, wanted=(*plan.order.wanted, *adapters))
    many = replace(plan, order=order, roles=(*plan.roles, *(adapter_role(f"a{number}") for number in range(200))))
    own, check = weights.check_containers(many)
    assert (own["name"], check["name"]) == ("check-weights", "check-adapters")
    assert check["args"][1:4] == ["--folder=/models/adapters", *(f"--each=org/adapter-{n}@{n:040x}" for n in (0, 1))]
    assert len(weights.server_mounts(many, "")) == len(weights.server_mounts(plan, "")) + 1
    assert {mount["mountPath"]: mount.get("subPath") for mount in check["volumeMounts"]}[
        weights.ADAPTERS
    ] == "revisions"


def test_the_job_gets_the_lock_and_another_lock_is_another_order(tmp_path: Path) -> None:
    without = store(tmp_path).order
    plan = store(tmp_path, lock=LOCK.text())
    data = weights.order("q", "m", plan)["data"]
    assert data[file_name(QWEN.repository, QWEN.revision).replace("@", ".")] == LOCK.text()
    assert len(data) == 2 and "order.json" in data, "the program is once per namespace"
    assert plan.order.digest != without.digest
    assert f"--digest={plan.order.digest}" in str(weights.job("q", "m", plan))


def test_a_site_without_locks_is_warned_with_the_command_that_makes_them(tmp_path: Path) -> None:
    file = str(tmp_path / "Pulumi.prod.yaml")
    (warning,) = [reported for reported in plan_values(prod(), file).warnings if reported.key == "storage.weights"]
    assert "no lock lists the files of glm-5-1, qwen3-32b, so their source alone decides" in warning.what
    assert "python -m sitectl weights lock prod, on" in warning.fix
    serving(tmp_path, lock=LOCK.text())
    (warning,) = [reported for reported in plan_values(prod(), file).warnings if reported.key == "storage.weights"]
    assert "no lock lists the files of glm-5-1, so" in warning.what


@pytest.mark.parametrize(
    ("text", "says"),
    [("nonsense\n", ":1: not a line of a lock"), (LOCK.text().replace(QWEN.revision, "0" * 40), "of another revision")],
)
def test_a_lock_that_cannot_be_read_is_a_problem_of_its_model(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(SiteError, match=says) as refused:
        serving(tmp_path, lock=text)
    (problem,) = refused.value.problems
    assert problem.key == "models.qwen3-32b"


def test_simulated_models_have_weights_only_where_a_trial_wants_them(tmp_path: Path) -> None:
    simulated = {"purpose": "trial", "models.qwen3-32b.server.engine": "simulator"}
    assert serving(tmp_path, simulated).weights is None
    assert serving(tmp_path, {**simulated, "storage.weights.simulated": "bring"}).weights


def test_a_draft_without_a_lock_is_named_where_its_model_has_one(tmp_path: Path) -> None:
    draft = {"method": "draft", "catalogue": "qwen3-0.6b", "tokens": 2, "acceptance": 0.7}
    changes = {"storage.weights": BUCKET, "models.qwen3-32b.server.speculative": draft, **QWEN_ALONE}
    with pytest.raises(SiteError, match=r"has no lock of Qwen/Qwen3-0\.6B at [0-9a-f]{8}, and") as refused:
        store(tmp_path, changes, lock=LOCK.text())
    assert [problem.key for problem in refused.value.problems] == ["models.qwen3-32b"]


@pytest.mark.parametrize("host", ["[fd00::9]:9000", "[fd00::9]", "10.5.0.9:9000"])
def test_a_bucket_may_be_at_an_address(tmp_path: Path, host: str) -> None:
    address = f"http://{host}/models"
    change = {"storage.weights": {"source": "bucket", "bucket": {"address": address}}, **QWEN_ALONE}
    assert store(tmp_path, change, lock=LOCK.text()).order.endpoint == address


def test_a_variable_of_the_job_is_named_in_one_file_for_pods_rules_and_the_program() -> None:
    root = Path(__file__).parents[3]
    names = ("WEIGHTS_BUCKET", "WEIGHTS_REGISTRY", "REGISTRY_USERNAME", "REGISTRY_PASSWORD", "HF_ENDPOINT")
    named = {
        str(file.relative_to(root))
        for room in ("components", "floor", "policy", "services", "stacks")
        for file in (root / room).rglob("*.py")
        if any(name in file.read_text() for name in names)
    }
    assert named == {"services/weights/variables.py"}
    assert "variables.py" in own_program.config_map("weights", "m")["data"]


@pytest.mark.slow
def test_the_text_of_a_program_is_in_the_state_once_for_all_models(tmp_path: Path) -> None:
    """An engine with a state in files writes it whole at each step."""
    site = plan_values(prod(), "site.yaml").site
    assert len(site.models) > 1
    recorder, _ = declare(site, tmp_path)
    for program, module in (("weights", "bringing.py"), ("liveness", "progress.py")):
        line = (Path(__file__).parents[3] / "services" / program / module).read_text().splitlines()[0]
        holding = [name for name, args in recorder.resources.items() if line in str(args.inputs)]
        assert holding == [f"pod-programs-{program}"]
