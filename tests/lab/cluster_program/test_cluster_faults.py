"""Faults at each step of `up`: an error that names node and step, and a next `up` that completes (004)."""

from __future__ import annotations

import re

import pytest

from lab.machines.faults import Fault
from lab.machines.image_factory import ImageFactoryServer
from tests.lab.cluster_program.conftest import NewRig
from tests.lab.cluster_program.rig import Rig

# How long a command waits here. Shorter, and a busy machine cannot do it without a fault either.
PATIENCE_S = 20
SLOW_S = 2 * PATIENCE_S
LATE_S = 1.5 * PATIENCE_S


def hurry(rig: Rig) -> None:
    """Have the program's commands give up soon."""
    folder = rig.project / "components"
    source = folder.resolve() / "machine_commands.py"
    folder.unlink()
    folder.mkdir()
    for module in source.parent.glob("*.py"):
        (folder / module.name).write_text(module.read_text())
    text = source.read_text()
    limit = f'"--timeout", "{PATIENCE_S}s"'
    for command in ("apply", "bootstrap", "kubeconfig"):
        text = text.replace(f'talos("{command}", ', f'talos("{command}", {limit}, ')
    text = re.sub(
        r'"--timeout", f"\{drain_timeout_s \+ 3600\}s"', f'{limit}, "--health-timeout", "{PATIENCE_S}s"', text
    )
    (folder / "machine_commands.py").write_text(text)


# A machine that is late is still booting when `up` gives it up, and boots while the next one waits.
FAULTS = [
    # Configuration of the control plane.
    pytest.param(
        "cp-1", Fault(kind="slow", seconds=SLOW_S, calls=("ApplyConfiguration",)), r"apply", id="cp-apply-slow"
    ),
    pytest.param(
        "cp-1",
        Fault(kind="refuse", code="INTERNAL", calls=("ApplyConfiguration",)),
        r"cp-1: ApplyConfiguration: .*refused on request",
        id="cp-apply-refused",
    ),
    pytest.param("cp-1", Fault(kind="late", seconds=LATE_S), r"cp-1: waited \d+ s to install and boot", id="cp-late"),
    pytest.param(
        "cp-1", Fault(kind="die", at="install"), r"cp-1: waited \d+ s to install and boot", id="cp-dies-installing"
    ),
    pytest.param("cp-1", Fault(kind="clock-skew", seconds=3 * 86400), r"cp-1: .*certificate", id="cp-clock-skew"),
    # Configuration of a worker.
    pytest.param(
        "hgx-1", Fault(kind="slow", seconds=SLOW_S, calls=("ApplyConfiguration",)), r"apply", id="hgx-apply-slow"
    ),
    pytest.param(
        "hgx-1",
        Fault(kind="refuse", code="INTERNAL", calls=("ApplyConfiguration",)),
        r"hgx-1: ApplyConfiguration: .*refused on request",
        id="hgx-apply-refused",
    ),
    pytest.param(
        "hgx-1", Fault(kind="late", seconds=LATE_S), r"hgx-1: waited \d+ s to install and boot", id="hgx-late"
    ),
    pytest.param("hgx-1", Fault(kind="die", at="apply"), r"hgx-1: ", id="hgx-dies-applying"),
    pytest.param(
        "hgx-1", Fault(kind="die", at="install"), r"hgx-1: waited \d+ s to install and boot", id="hgx-dies-installing"
    ),
    pytest.param(
        "hgx-1",
        Fault(kind="installer-fails"),
        r"hgx-1: came back in maintenance mode: the install did not succeed",
        id="hgx-installer-fails",
    ),
    pytest.param("hgx-1", Fault(kind="clock-skew", seconds=3 * 86400), r"hgx-1: .*certificate", id="hgx-clock-skew"),
    # Bootstrap; a slow one is waited for, as it must not be sent twice.
    pytest.param(
        "cp-1",
        Fault(kind="refuse", code="INTERNAL", calls=("Bootstrap",)),
        r"cp-1: Bootstrap: .*refused on request",
        id="bootstrap-refused",
    ),
    pytest.param(
        "cp-1", Fault(kind="die", at="bootstrap"), r"cp-1: waited \d+ s (to bootstrap|for etcd)", id="bootstrap-dies"
    ),
    # Kubeconfig.
    pytest.param(
        "cp-1", Fault(kind="slow", seconds=SLOW_S, calls=("Kubeconfig",)), r"cp-1: waited \d+ s", id="kubeconfig-slow"
    ),
    pytest.param(
        "cp-1",
        Fault(kind="refuse", calls=("Kubeconfig",)),
        r"cp-1: waited \d+ s for the kubeconfig",
        id="kubeconfig-refused",
    ),
]


@pytest.mark.parametrize(("node", "fault", "said"), FAULTS)
def test_a_fault_of_bring_up_is_named_and_the_next_up_completes(
    make_rig: NewRig, node: str, fault: Fault, said: str
) -> None:
    rig = make_rig("infra", "hgx-h200")
    hurry(rig)
    rig.fault(node, fault)
    failed = rig.up(check=False)
    assert re.search(said, failed), failed[-3000:]
    assert node in failed
    rig.mend()
    rig.up()
    assert all(rig.machine(each).node_is_ready for each in rig.nodes)
    rig.pulumi("preview", "--expect-no-changes")


def test_an_image_factory_that_is_away_is_named_and_no_machine_is_touched(make_rig: NewRig) -> None:
    rig = make_rig("infra", "hgx-h200")
    factory = rig.rack.factory
    assert factory is not None
    host, _, port = factory.registry.partition(":")
    factory.close()
    failed = rig.up(check=False)
    assert factory.url in failed, failed[-3000:]
    assert "Traceback" not in failed
    assert all(rig.machine(each).stage == "maintenance" for each in rig.nodes)
    rig.rack.factory = ImageFactoryServer(factory.content, host, int(port))
    rig.up()
    assert all(rig.machine(each).node_is_ready for each in rig.nodes)
