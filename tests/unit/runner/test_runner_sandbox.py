from __future__ import annotations

from pathlib import Path

from lab.runner.images import HostFiles, Program
from lab.runner.launch import command_line
from lab.runner.sandbox import DEFAULT_CAPABILITIES, Mount, Sandbox, bwrap_argv, etc_files, identity, resolv_conf

PROGRAM = Program(tool="epp", path="/epp", entrypoint=("/epp",), arguments=("serve",))


def argv(sandbox: Sandbox) -> list[str]:
    host_paths = ["/etc/ssl", "/etc/shadow"]
    return bwrap_argv(sandbox, bwrap="/usr/bin/bwrap", info_fd=7, status_fd=8, host_paths=host_paths)


def sandbox(**fields: object) -> Sandbox:
    files = HostFiles(binds=((Path("/cache/epp"), "/app/epp"),))
    return Sandbox(hostname="web-0", command=["/app/epp"], files=files, **fields)  # type: ignore[arg-type]


def pairs(words: list[str], flag: str) -> list[str]:
    return [words[index + 1] for index, word in enumerate(words) if word == flag]


def test_program_is_pid_one_and_outlives_the_runner() -> None:
    words = argv(sandbox(identity=identity({}, 65532)))
    assert {"--as-pid-1", "--unshare-pid"} <= set(words)
    assert not {"--die-with-parent", "--pdeathsig"} & set(words)
    assert pairs(words, "--json-status-fd") == ["8"]
    assert words[-1] == "/app/epp"


def test_host_files_are_few_and_read_only() -> None:
    words = argv(sandbox())
    assert pairs(words, "--ro-bind") == ["/usr", "/etc/ssl", "/cache/epp"]
    assert "--bind" not in words


def test_inner_mounts_follow_outer_ones_and_have_open_parents() -> None:
    mounts = [
        Mount(source="/b", target="/data/deep/inner", read_only=True),
        Mount(source="/a", target="/data"),
    ]
    words = argv(sandbox(mounts=mounts))
    assert words.index("/b") > words.index("/a")
    assert "/data/deep" in pairs(words, "--dir")
    assert pairs(words, "--dir").index("/app") >= 0


def test_read_only_root_is_sealed_after_the_mounts() -> None:
    words = argv(sandbox(mounts=[Mount(source="/a", target="/data")], read_only_root=True))
    assert words.index("--remount-ro") > words.index("/data")


def test_plain_root_needs_no_switch() -> None:
    assert "/usr/bin/setpriv" not in argv(sandbox(identity=identity({}, 0)))


def test_user_of_spec_over_image() -> None:
    assert identity({}, 65532).uid == 65532
    who = identity({"runAsUser": 1000, "runAsGroup": 2000, "fsGroup": 3000, "supplementalGroups": [4000]}, 65532)
    assert (who.uid, who.gid, who.groups) == (1000, 2000, (3000, 4000))
    words = argv(sandbox(identity=who))
    assert pairs(words, "--reuid") == ["2000001000"]
    assert pairs(words, "--groups") == ["2000003000,2000004000"]


def test_capabilities() -> None:
    assert identity({}, 0).capabilities == DEFAULT_CAPABILITIES
    dropped = identity({"capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}}, 0)
    assert dropped.capabilities == {"CAP_NET_BIND_SERVICE"}
    assert "CAP_KILL" not in identity({"capabilities": {"drop": ["KILL"]}}, 0).capabilities


def test_command_and_args_override_as_kubernetes_says() -> None:
    env = {"PORT": "9002"}
    assert command_line({}, PROGRAM, env) == ["/epp", "serve"]
    assert command_line({"args": ["--port", "$(PORT)"]}, PROGRAM, env) == ["/epp", "--port", "9002"]
    assert command_line({"args": []}, PROGRAM, env) == ["/epp"]
    assert command_line({"command": ["sh"]}, PROGRAM, env) == ["sh"]
    assert command_line({"command": ["sh"], "args": ["-c"]}, PROGRAM, env) == ["sh", "-c"]


def test_resolv_conf_by_policy() -> None:
    cluster = resolv_conf({}, "team", "10.0.0.10")
    assert cluster == (
        "nameserver 10.0.0.10\nsearch team.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n"
    )
    assert "nameserver" not in resolv_conf({"dnsPolicy": "Default"}, "team", "10.0.0.10")
    assert "nameserver" not in resolv_conf({"hostNetwork": True}, "team", "10.0.0.10")
    assert "10.0.0.10" in resolv_conf({"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}, "t", "10.0.0.10")
    own = {"dnsPolicy": "None", "dnsConfig": {"nameservers": ["1.2.3.4"], "options": [{"name": "ndots", "value": "1"}]}}
    assert resolv_conf(own, "team", "10.0.0.10") == "nameserver 1.2.3.4\noptions ndots:1\n"


def test_hosts_has_pod_and_aliases() -> None:
    hosts = etc_files("web-0", "198.18.1.2", [{"ip": "10.1.1.1", "hostnames": ["a", "b"]}])["hosts"]
    assert "198.18.1.2\tweb-0\n" in hosts
    assert "10.1.1.1\ta b\n" in hosts
