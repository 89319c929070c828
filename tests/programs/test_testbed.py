# SPDX-License-Identifier: Apache-2.0
"""The testbed's processes, commands and images, with a program in QEMU's place.

The stage `testbed` has the same with real guests.
"""

import contextlib
import json
import lzma
import os
import re
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import zipfile
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner
from support import fake_qemu
from support.processes.agents import python
from support.processes.cli import alive
from support.processes.waiting import until

import dgkit
from dgkit import testbed
from dgkit.cli import main
from dgkit.cli.testbed_command import _install_missing, _show
from dgkit.session import inspect
from dgkit.testbed import apt, guest_kernel, images, initramfs, qemu, requirements, wheels
from dgkit.testbed import testbed as module
from dgkit.testbed.agents import Agent
from dgkit.testbed.guest_service import _cause, shell_environment
from dgkit.testbed.jupyterlab import LabServer

INSTALL = "`(sudo )?apt-get install --no-install-recommends"
PREPARE = "from dgkit.testbed import requirements; requirements.check = lambda **_: None\n"


@contextlib.contextmanager
def short_folder():
    """A folder of a short path, as that of a socket must be.

    What a guest's JupyterLab has started, npm, may outlive it and write there for a moment.
    """
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        yield folder
    finally:
        limit = time.monotonic() + 10
        while folder.exists():
            shutil.rmtree(folder, ignore_errors=time.monotonic() < limit)


@pytest.fixture
def machine(monkeypatch):
    """A machine with a fake QEMU, images and empty folders; nothing must be left there."""
    with short_folder() as home:
        (home / "bin").mkdir()
        fake_qemu.install(home / "bin")
        monkeypatch.setenv("PATH", f"{home / 'bin'}:{os.environ['PATH']}")
        monkeypatch.setenv("XDG_CACHE_HOME", str(home))
        (home / "run").mkdir(mode=0o700)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(home / "run"))
        monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
        monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
        monkeypatch.setenv("FAKE_AGENT_PATH", ":".join(sys.path))
        monkeypatch.setattr(requirements, "check", lambda **_: None)
        for side in ("host", "dpu"):
            folder = images.cache() / f"{side}-{images._version()}"
            folder.mkdir(parents=True)
            (folder / "kvm").write_text("0")
        yield home
        if left := testbed.running():
            left.down()


@pytest.fixture
def bed(machine):
    with testbed.up() as bed:
        yield bed


def pids(bed):
    state = bed.status()
    return [state["pid"], *(guest["pid"] for guest in state["guests"].values())]


def has_free_channel(bed):
    try:
        return bed.run("dpu", "true").returncode == 0
    except dgkit.TestbedError:
        return False


def folders(home):
    return list((home / "run").rglob("testbed-*"))


def test_a_command_gives_its_streams_and_its_status(bed):
    done = bed.run("dpu", "printf out; printf wrong >&2; exit 3")
    assert (done.stdout, done.stderr, done.returncode) == ("out", "wrong", 3)
    assert bed.run("host", ["printf", "%s", "a b"]).stdout == "a b"
    with pytest.raises(subprocess.CalledProcessError):
        bed.run("host", ["false"], check=True)


def test_output_that_resembles_the_end_mark_is_whole(bed):
    content = "\x1e" * 3 + "x" * 200_000 + "\x1e0123"
    script = "printf '\\36\\36\\36'; head -c 200000 /dev/zero | tr '\\0' x; printf '\\0360123'"
    assert bed.run("dpu", script).stdout == content


def test_at_the_end_of_with_nothing_is_left(machine):
    with testbed.up() as bed:
        held = pids(bed)
        assert folders(machine)
        assert "booting" in bed.console("dpu")
    assert not any(map(alive, held))
    assert not folders(machine)
    bed.close()
    with pytest.raises(dgkit.TestbedError, match="ended"):
        bed.run("dpu", "true")


def test_two_testbeds_do_not_meet(bed):
    with testbed.up() as other:
        assert not set(pids(bed)) & set(pids(other))
    assert bed.run("dpu", "echo goes on").stdout == "goes on\n"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_testbed_ends_with_the_process_that_started_it(number, machine):
    source = f"{PREPARE}from dgkit import testbed\nimport time\nwith testbed.up() as bed:\n"
    source += "    state = bed.status(); pids = [g['pid'] for g in state['guests'].values()]\n"
    source += "    print(state['pid'], *pids, flush=True)\n    time.sleep(1000)"
    command = python(source)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, **pipes) as process:
        held = [int(word) for word in process.stdout.readline().split()]
        process.send_signal(number)
    assert len(held) == 3
    until(lambda: not any(map(alive, held)), "the testbed ends")
    assert not folders(machine)


def test_guests_end_with_a_killed_supervisor_and_the_next_clears_its_folder(machine):
    with testbed.up() as bed:
        held = pids(bed)
        os.kill(held[0], signal.SIGKILL)
        until(lambda: not any(map(alive, held)), "the guests end")
        assert len(folders(machine)) == 1
    with testbed.up():
        assert len(folders(machine)) == 1


def test_a_command_that_takes_too_long_raises(bed):
    with pytest.raises(subprocess.TimeoutExpired):
        bed.run("dpu", "sleep 1000", timeout=0.5)


def test_an_abandoned_command_ends_and_frees_its_channel(bed):
    for _ in range(initramfs.CHANNELS + 1):
        command = bed.start("dpu", "echo $$; sleep 1000")
        pid = int(next(command)[1])
        command.close()
        until(lambda pid=pid: not alive(pid), "the command ends")
        until(lambda: has_free_channel(bed), "its channel is free")


def test_more_commands_than_channels_are_refused(bed):
    begun = [bed.start("host", "echo begun; sleep 1000") for _ in range(initramfs.CHANNELS)]
    assert [next(each) for each in begun] == [(b"o", b"begun\n")] * initramfs.CHANNELS
    with pytest.raises(dgkit.TestbedError, match="as many commands as it can"):
        bed.run("host", "true")
    assert bed.run("dpu", "true").returncode == 0
    for each in begun:
        each.close()


def test_the_end_of_a_guest_ends_its_commands_and_no_other(bed):
    qemu_pid = bed.status()["guests"]["dpu"]["pid"]
    command = bed.start("dpu", "echo begun; sleep 1000")
    next(command)
    os.kill(qemu_pid, signal.SIGKILL)
    with pytest.raises(dgkit.TestbedError, match=r"dpu guest ended.*booting"):
        next(command)
    until(lambda: bed.status()["guests"]["dpu"]["state"] == "ended", "the state is known")
    assert bed.run("host", "echo goes on").stdout == "goes on\n"


def test_a_guest_that_hangs_and_is_killed_holds_up_neither_the_other_nor_the_end(machine):
    with testbed.up() as bed:
        qemu_pid = bed.status()["guests"]["dpu"]["pid"]
        os.kill(qemu_pid, signal.SIGSTOP)
        with pytest.raises(subprocess.TimeoutExpired):
            bed.run("dpu", "true", timeout=0.5)
        assert bed.run("host", "echo goes on").stdout == "goes on\n"
        held = pids(bed)
        os.kill(qemu_pid, signal.SIGKILL)  # resets the port, on which it did not read `kill`
        until(lambda: bed.status()["guests"]["dpu"]["state"] == "ended", "the state is known")
        assert bed.run("host", "echo goes on").stdout == "goes on\n"
    assert not any(map(alive, held))
    assert not folders(machine)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("fails", "no Soft-RoCE"),
        ("ends", r"\(ended\)(.|\n)*panic"),
        ("silent", "not ready in time"),
    ],
)
def test_a_guest_that_does_not_start_is_named_and_nothing_is_left(how, said, machine, monkeypatch):
    monkeypatch.setenv("FAKE_GUEST", how)
    with pytest.raises(dgkit.TestbedError, match=said):
        testbed.up(timeout=2.0 if how == "silent" else 60.0)
    assert not folders(machine)


def test_after_a_panic_at_boot_both_guests_start_once_more(machine, monkeypatch):
    monkeypatch.setenv("FAKE_GUEST", "panics")
    steps = []
    with testbed.up(progress=steps.append) as bed:
        assert bed.run("dpu", "echo up").stdout == "up\n"
    said = "panicked at boot (Kernel panic - not syncing: IO-APIC): both start once more"
    assert [said in step for step in steps].count(True) == 1


def test_wrong_arguments_are_refused(bed, tmp_path):
    with pytest.raises(ValueError, match="guest must be one of host, dpu, not 'gpu'"):
        bed.run("gpu", "true")
    with pytest.raises(ValueError, match="at most 131072 bytes"):
        bed.run("dpu", "x" * (1 << 17))
    with pytest.raises(ValueError, match="dpu_memory"):
        testbed.up(dpu_memory=1)
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="share"):
        testbed.up(share=tmp_path / "file")


def test_the_commands_go_from_up_to_clean(machine, capfd):
    assert main(["testbed", "up", "--share", str(machine), "--dpu-memory", "512M"]) == 0
    out, err = capfd.readouterr()
    assert "until `dgkit testbed down`" in err
    steps = err.splitlines()
    assert [steps.count(f"dgkit testbed: {guest} is ready") for guest in ("host", "dpu")] == [1, 1]
    assert len(set(steps)) == len(steps)
    assert "aarch64" in out
    held = pids(testbed.running())
    assert main(["testbed", "up"]) == 1
    assert "already up" in capfd.readouterr().err
    assert main(["testbed", "status", "--json"]) == 0
    state = json.loads(capfd.readouterr().out)
    assert state["up"]
    assert state["share"] == str(machine)
    assert state["guests"]["dpu"]["state"] == "ready"
    assert main(["testbed", "status"]) == 0
    assert "10.9.0.2" in capfd.readouterr().out
    assert (
        main(["testbed", "run", "dpu", "--", "sh", "-c", "echo out; echo wrong >&2; exit 5"]) == 5
    )
    assert capfd.readouterr() == ("out\n", "wrong\n")
    assert main(["testbed", "run", "dpu", "--timeout", "0.5", "--", "sleep", "1000"]) == 1
    assert "within 0.5 s" in capfd.readouterr().err
    assert main(["testbed", "clean"]) == 1
    assert main(["testbed", "down"]) == 0
    assert not any(map(alive, held))
    assert not folders(machine)
    assert main(["testbed", "clean"]) == 0
    assert not [path for path in images.cache().iterdir() if path.is_dir()]


def test_without_a_testbed_the_commands_say_how_to_start_one(machine, capfd):
    assert main(["testbed", "run", "dpu", "--", "true"]) == 1
    assert "`dgkit testbed up`" in capfd.readouterr().err
    assert main(["testbed", "run", "dpu"]) == 2
    assert main(["testbed", "status"]) == 0
    assert "No testbed is up" in capfd.readouterr().out
    assert main(["testbed", "down"]) == 0


def test_what_is_missing_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr(requirements, "find", lambda _: None)
    monkeypatch.setattr(requirements.shutil, "which", lambda *_: "/usr/bin/apt-get")
    with pytest.raises(dgkit.TestbedError, match=f"{INSTALL} .*kmod.*qemu-system-arm"):
        requirements.check()
    monkeypatch.setattr(requirements.shutil, "which", lambda *_: None)
    with pytest.raises(dgkit.TestbedError, match="Debian or Ubuntu"):
        requirements.check()


@pytest.mark.parametrize(("answer", "run"), [("y\n", True), ("n\n", False)])
def test_root_on_a_terminal_is_asked_and_packages_come_without_recommended_ones(
    answer, run, monkeypatch
):
    commands = []

    def installs(command, **_):
        commands.append(command)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(requirements, "missing", lambda **_: ["kmod", "qemu-system-arm"])
    monkeypatch.setattr(requirements.subprocess, "run", installs)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    up = CliRunner().invoke(terminal(_install_missing), input=answer)
    assert "The testbed needs kmod qemu-system-arm. Install them now?" in up.output
    words = ["apt-get", "install", "--no-install-recommends", "kmod", "qemu-system-arm", "--yes"]
    assert commands == [words] * run


def terminal(ask):
    """Return a command that calls a function as if its standard input were a terminal."""

    @click.command()
    def command():
        sys.stdin.isatty = lambda: True
        ask(ssh=False)

    return command


def test_the_cause_of_a_servers_end_is_one_line(capsys):
    status = {"state": "ready", "machine": "x", "address": "y", "runs_by": "KVM", "pid": 1}
    for why, said in (
        (_cause(137, ""), "killed by SIGKILL"),
        (_cause(1, "Traceback:\n  File\nOSError: no port"), "exit status 1: OSError: no port"),
        (_cause(3, "no port"), "exit status 3: no port"),
    ):
        _show({"guests": {"host": status | {"agent_ended": why}}})
        assert capsys.readouterr().out.splitlines()[1] == f"     its agent ended: {said}"


def test_a_full_disk_is_named_before_anything_is_downloaded(machine, monkeypatch):
    (images.cache() / f"dpu-{images._version()}/kvm").unlink()
    (images.cache() / f"dpu-{images._version()}").rmdir()
    usage = images.shutil.disk_usage("/")
    monkeypatch.setattr(images.shutil, "disk_usage", lambda _: usage._replace(free=5 << 20))
    with pytest.raises(dgkit.TestbedError, match="1024 MiB of free space, not 5"):
        testbed.up()


@pytest.fixture
def packages(monkeypatch, tmp_path):
    """Packages with a kernel, a module and a busybox, in place of downloaded ones."""

    def unpack(names, folder):
        module = folder / "lib/modules/6.1/kernel/rdma_rxe.ko.xz"
        module.parent.mkdir(parents=True)
        module.write_bytes(lzma.compress(b"module"))
        for path, content in {"boot/vmlinuz-6.1": "kernel", "bin/busybox": "busybox"}.items():
            (folder / path).parent.mkdir()
            (folder / path).write_text(content)

    monkeypatch.setattr(apt, "native", lambda: "amd64")
    monkeypatch.setattr(apt, "root", lambda *_: {})
    monkeypatch.setattr(apt, "download", lambda *_, **__: [])
    monkeypatch.setattr(apt, "unpack", unpack)
    monkeypatch.setattr(guest_kernel, "packages", lambda *_: ["linux-image-6.1"])
    monkeypatch.setattr(guest_kernel, "modules", lambda root: list(root.rglob("*.ko.xz")))


@pytest.mark.parametrize(
    "path", ["boot/vmlinuz-6.1", "lib/modules/7.2/vmlinuz", "usr/lib/modules/7.2/vmlinuz"]
)
def test_the_kernel_is_found_where_a_release_of_the_distribution_has_it(path, tmp_path):
    with pytest.raises(dgkit.TestbedError, match="no vmlinuz"):
        guest_kernel.image(tmp_path)
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text("kernel")
    assert guest_kernel.image(tmp_path) == tmp_path / path


def entries(archive):
    """Yield the names and bytes of a newc archive."""
    while True:
        size, length = int(archive[54:62], 16), int(archive[94:102], 16)
        assert archive[:6] == b"070701"
        name = archive[110 : 109 + length].decode()
        start = 110 + length + -(110 + length) % 4
        yield name, archive[start : start + size]
        if name == "TRAILER!!!":
            assert len(archive) == start
            return
        archive = archive[start + size + -size % 4 :]


def test_images_are_made_once_and_old_ones_removed(machine, packages):
    testbed.clean()
    (images.cache() / "host-old").mkdir()
    images.sweep()
    assert not (images.cache() / "host-old").exists()
    steps = []
    with images.in_use():
        host, dpu = images.prepare(steps.append)
        assert images.prepare(pytest.fail) == (host, dpu)
    assert "downloading the host's kernel" in steps
    assert host.files == Path("/")
    assert (dpu.files / "bin/sh").readlink() == Path("busybox")
    files = dict(entries(dpu.initramfs.read_bytes()))
    assert files["modules/order"] == b"rdma_rxe.ko"
    assert files["modules/rdma_rxe.ko"] == b"module"
    assert files["init"].startswith(b"#!/busybox sh\n")
    assert files["busybox"] == b"busybox"
    assert dpu.kernel.read_text() == "kernel"


def test_modules_are_found_below_a_path_with_a_space(tmp_path, monkeypatch):
    module = tmp_path / "a b/lib/modules/6.1/kernel/rdma_rxe.ko.xz"
    module.parent.mkdir(parents=True)
    for name, text in {"depmod": "true", "modprobe": f"echo 'insmod {module} option=1'"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert guest_kernel.modules(tmp_path / "a b") == [module]


def test_an_interrupted_image_leaves_nothing(machine, packages, monkeypatch):
    testbed.clean()

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(guest_kernel, "modules", interrupted)
    with pytest.raises(KeyboardInterrupt):
        testbed.up()
    assert not [path for path in images.cache().iterdir() if path.is_dir()]


def test_the_kernels_packages_are_found_by_the_meta_package(monkeypatch):
    known = {
        "linux-image-generic": ["linux-image-6.8-generic", "linux-firmware"],
        "linux-image-6.8-generic": ["linux-modules-6.8-generic", "kmod"],
    }
    monkeypatch.setattr(apt, "depends", lambda name, _: known.get(name, []))
    assert guest_kernel.packages("amd64") == [
        "linux-image-6.8-generic",
        "linux-modules-6.8-generic",
    ]
    known.clear()
    with pytest.raises(dgkit.TestbedError, match="`sudo apt update`"):
        guest_kernel.packages("amd64")


def test_what_apt_says_is_in_the_error(tmp_path, monkeypatch):
    script = tmp_path / "apt-get"
    script.write_text("#!/bin/sh\necho 'E: Unable to locate package x'; exit 100")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(dgkit.TestbedError, match="download x: E: Unable to locate package x"):
        apt.download(tmp_path / "packages", "x", alone=True)


def test_kvm_is_used_only_where_it_boots_a_kernel(tmp_path, monkeypatch):
    monkeypatch.setattr(qemu.os, "access", lambda *_: True)
    monkeypatch.setattr(qemu.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(qemu, "_INTERPRETER", tmp_path / "kvm_pvm")
    for text, boots in {"echo Kernel panic": True, "echo stuck": False, "exit 1": False}.items():
        script = tmp_path / "qemu-system-x86_64"
        script.write_text(f"#!/bin/sh\n{text}\n")
        script.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        assert qemu.kvm_boots("x86_64", tmp_path / "vmlinuz") is boots
    assert not qemu.kvm_boots("aarch64", tmp_path / "vmlinuz")
    script.write_text("#!/bin/sh\necho Kernel panic\n")
    assert qemu.kvm_boots("x86_64", tmp_path / "vmlinuz")
    (tmp_path / "kvm_pvm").mkdir()
    assert not qemu.kvm_boots("x86_64", tmp_path / "vmlinuz")


def test_what_reads_the_output_of_up_sees_its_end(machine):
    command = python("from dgkit.cli import main; raise SystemExit(main(['testbed', 'up']))")
    done = subprocess.run(
        command,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout
    assert "until `dgkit testbed down`" in done.stdout
    testbed.running().down()


def test_up_of_two_at_a_time_starts_one(machine):
    """Both find none running; the folder of the name decides."""
    ended = []

    def start():
        try:
            ended.append(testbed.up(detach=True))
        except dgkit.TestbedError as error:
            ended.append(error)

    threads = [threading.Thread(target=start) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(type(each).__name__ for each in ended) == ["Testbed", "TestbedError"]
    testbed.running().down()
    assert module.running() is None


@pytest.fixture
def wheelhouse(machine):
    """Wheels for the guest's Python 3.11, which the DPU's image has."""
    program = images.cache() / f"dpu-{images._version()}/root/usr/bin/python3.11"
    program.parent.mkdir(parents=True)
    program.touch()
    folder = machine / "wheels"
    folder.mkdir()
    for name in ("dgkit_dpu-0.1.0-cp310-abi3-manylinux_2_34_aarch64", "rich-15.0.0-py3-none-any"):
        with zipfile.ZipFile(folder / f"{name}.whl", "w") as archive:
            archive.writestr(f"{name.partition('-')[0]}/__init__.py", "")
    return folder


def test_an_agent_in_each_guest_answers_at_a_forwarded_port(machine, wheelhouse, capfd):
    """The first port is refused, as if another process had taken it."""
    with testbed.up(agents=wheelhouse) as bed:
        for address, role in ((bed.host, "host"), (bed.dpu, "dpu")):
            assert address.startswith("tcp://127.0.0.1:")
            welcome, counters = inspect(address)
            assert (welcome.role, counters["user_clients"]) == (role, 1)
            assert main(["info", "--address", address]) == 0
            assert "provider soft" in capfd.readouterr().out
        assert inspect(bed.host)[0].pid != inspect(bed.dpu)[0].pid
        sites = [*images.cache().glob("site-*")]
        assert [(each / "rich/__init__.py").exists() for each in sites] == [True]
        agents = [inspect(address)[0].pid for address in (bed.host, bed.dpu)]
    until(lambda: not any(map(alive, agents)), "the agents end with the testbed")
    assert (machine / "config/dgkit/keys/default.secret").exists()


def test_agents_leave_each_guest_as_many_commands_as_before(wheelhouse):
    with testbed.up(agents=wheelhouse) as bed:
        begun = [bed.start("dpu", "echo begun; sleep 1000") for _ in range(initramfs.CHANNELS)]
        assert [next(each) for each in begun] == [(b"o", b"begun\n")] * initramfs.CHANNELS
        for each in begun:
            each.close()


def test_an_agent_that_ends_is_named_with_the_reason(wheelhouse):
    with testbed.up(agents=wheelhouse) as bed:
        pid = inspect(bed.dpu)[0].pid
        os.kill(pid, signal.SIGKILL)
        until(lambda: "agent_ended" in bed.status()["guests"]["dpu"], "the end is known")
        with pytest.raises(dgkit.TestbedError, match="the agent in the dpu guest ended: killed by"):
            _ = bed.dpu
        assert inspect(bed.host)[0].role == "host"


def test_an_agent_that_does_not_start_is_named_and_nothing_is_left(
    machine, wheelhouse, monkeypatch
):
    broken = machine / "broken"
    (broken / "dgkit").mkdir(parents=True)
    (broken / "dgkit/__init__.py").write_text("raise ImportError('no dgkit here')")
    # the finder of an installation in place would find the other dgkit
    hooks = "import sys; sys.meta_path[:] = [f for f in sys.meta_path if 'Redirect' not in repr(f)]"
    (broken / "sitecustomize.py").write_text(hooks)
    monkeypatch.setenv("FAKE_AGENT_PATH", str(broken))
    with pytest.raises(
        dgkit.TestbedError, match=r"the agent in the dpu guest ended:(.|\n)*no dgkit here"
    ):
        testbed.up(agents=wheelhouse)
    assert not folders(machine)


def test_without_agents_their_addresses_are_refused_with_the_command(bed):
    with pytest.raises(dgkit.TestbedError, match="--agents FOLDER"):
        _ = bed.dpu


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("numpy-2.4.6-cp313-cp313-manylinux_2_28_aarch64", "not for Python 3.11 on aarch64"),
        ("cffi-2.1.1-cp311-cp311-manylinux_2_28_x86_64", "not for Python 3.11 on aarch64"),
        ("pyzmq-27.3.0-cp312-abi3-manylinux_2_28_aarch64", "native/wheelhouse.py FOLDER"),
        ("dgkit_dpu-0.1.0-cp310-abi3-manylinux_2_34_aarch64", "damaged"),
    ],
)
def test_a_wheel_that_does_not_fit_is_named(name, said, wheelhouse):
    (wheelhouse / f"{name}.whl").write_bytes(b"no archive")
    with pytest.raises(dgkit.TestbedError, match=rf"{name}.*{said}"):
        testbed.up(agents=wheelhouse)
    assert not [*images.cache().glob("site*")]


def test_wheels_without_dgkit_are_refused(wheelhouse):
    next(wheelhouse.glob("dgkit_dpu-*")).unlink()
    with pytest.raises(dgkit.TestbedError, match="has no wheel of dgkit"):
        testbed.up(agents=wheelhouse)


def test_what_a_wheel_has_for_pythons_prefix_is_found_beside_its_modules(wheelhouse):
    with zipfile.ZipFile(wheelhouse / "jupyterlab-4.5.0-py3-none-any.whl", "w") as archive:
        archive.writestr("jupyterlab/__init__.py", "")
        archive.writestr("jupyterlab-4.5.0.data/data/share/jupyter/lab/static/index.html", "page")
        archive.writestr("jupyterlab-4.5.0.data/scripts/jupyter-lab", "")
    with images.in_use():
        site = wheels.site(wheelhouse, images.cache() / f"dpu-{images._version()}/root")
    assert (site / "share/jupyter/lab/static/index.html").read_text() == "page"
    assert not [*site.glob("*.data")]
    same = sys.version_info[:2] == (3, 11)  # as the guest's: modules and library come compiled
    compiled = [*site.glob("pycache/run/site/jupyterlab/__init__.*.pyc")]
    assert len(compiled) == same


@pytest.fixture
def dropbear(machine):
    """Programs in the place of Dropbear's and ssh-keygen: they print a key, listen, make a pair."""
    folder = machine / "dropbear"
    folder.mkdir()
    keygen = machine / "bin/ssh-keygen"
    keygen.write_text(
        "#!/bin/sh\nfor key; do :; done; umask 077\n"
        'echo secret > "$key"; echo "ssh-ed25519 AAAB dgkit testbed" > "$key.pub"\n'
    )
    keygen.chmod(0o755)
    listen = "import socket, sys, time; at, port = sys.argv[-3].split(':'); "
    listen += "held = socket.create_server((at, int(port))); time.sleep(1000)"
    programs = {
        "dropbearkey": "[ $1 != -y ] || printf 'Public key:\\nssh-ed25519 AAAA root@guest\\n'",
        "dropbear": f'exec {sys.executable} -c "{listen}" "$@"',
    }
    for name, text in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    for name in ("x86_64", "aarch64"):
        (images.cache() / f"ssh-{name}-{images._version()}").mkdir()
    return folder


def configuration(command):
    """What ssh_config(5) says for a command of Testbed.ssh()."""
    lines = Path(command[2]).read_text().split("Host ")
    (own,) = (each for each in lines if each.startswith(f"{command[3]}\n"))
    return dict(line.split(maxsplit=1) for line in own.splitlines()[1:])


def test_each_guest_is_reached_by_the_ssh_command_with_keys_of_this_start(dropbear, machine, capfd):
    with testbed.up(ssh=True) as bed:
        ports = set()
        for guest in ("host", "dpu"):
            command = bed.ssh(guest)
            assert (command[:2], command[3]) == (["ssh", "-F"], guest)
            said = configuration(command)
            assert (said["HostName"], said["User"]) == ("127.0.0.1", "root")
            socket.create_connection((said["HostName"], int(said["Port"])), 10).close()
            ports.add(said["Port"])
            key, known = (
                Path(said[name].strip('"')) for name in ("IdentityFile", "UserKnownHostsFile")
            )
            assert stat.S_IMODE(key.stat().st_mode) == 0o600
            assert stat.S_IMODE(key.parent.stat().st_mode) == 0o700
            assert f"dgkit-{guest} ssh-ed25519 AAAA\n" in known.read_text()
        assert len(ports) == 2
        for agent in machine.glob("run-*/sshd/.ssh/authorized_keys"):
            assert agent.read_text() == key.with_suffix(".pub").read_text()
        with pytest.raises(dgkit.TestbedError, match="no agent runs in the dpu guest"):
            _ = bed.dpu
    assert not folders(machine)


def test_the_command_up_prints_how_each_guest_is_reached(dropbear, capfd):
    assert main(["testbed", "up", "--ssh"]) == 0
    out = capfd.readouterr().out
    assert main(["testbed", "status", "--json"]) == 0
    guests = json.loads(capfd.readouterr().out)["guests"]
    for guest in ("host", "dpu"):
        assert guests[guest]["ssh"].endswith(f"/ssh_config {guest}")
        assert f"ssh   {guests[guest]['ssh']}\n" in out


def test_an_ssh_server_that_does_not_start_is_named_with_the_reason(dropbear, machine):
    (dropbear / "dropbear").write_text("#!/bin/sh\necho no such library >&2; exit 1\n")
    with pytest.raises(
        dgkit.TestbedError, match=r"SSH server in the \w+ guest ended: .*no such lib"
    ):
        testbed.up(ssh=True)
    assert not folders(machine)


def test_without_an_ssh_client_its_package_is_named(monkeypatch):
    find = requirements.find
    monkeypatch.setattr(requirements, "find", lambda name: name != "ssh-keygen" and find(name))
    requirements.check()
    with pytest.raises(dgkit.TestbedError, match=f"{INSTALL} openssh-client`"):
        requirements.check(ssh=True)
    monkeypatch.setattr(requirements.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(dgkit.TestbedError, match=r"pip install .*\[lab\]"):
        requirements.check(lab=True)


def test_dropbear_is_collected_without_the_guests_c_library(machine, packages, monkeypatch):
    unpacked = []

    def unpack(paths, folder):
        unpacked.extend(path.name for path in paths)
        for name in ("usr/sbin/dropbear", "usr/bin/dropbearkey", "usr/lib/libtomcrypt.so.1"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).touch(mode=0o755)

    names = [Path("libc6_2.36_arm64.deb"), Path("dropbear-bin_2022_arm64.deb")]
    monkeypatch.setattr(apt, "download", lambda *_, **__: names)
    monkeypatch.setattr(apt, "unpack", unpack)
    with images.in_use():
        folder = images.ssh_server("aarch64", lambda _: None)
        assert images.ssh_server("aarch64", pytest.fail) == folder
    assert unpacked == ["dropbear-bin_2022_arm64.deb"]
    assert sorted(path.name for path in folder.iterdir()) == [
        *("dropbear", "dropbearkey", "libtomcrypt.so.1")
    ]


def test_pythons_of_the_host_guest_find_this_machines_bytecode(monkeypatch):
    monkeypatch.setattr(sys, "pycache_prefix", "/a b/pycache")
    assert "export PYTHONPYCACHEPREFIX='/a b/pycache'\n" in shell_environment("host", "/")
    assert "/a b" not in shell_environment("dpu", "/")
    monkeypatch.setattr(sys, "pycache_prefix", None)
    assert "PYCACHE" not in shell_environment("host", "/")


def test_servers_of_the_host_guest_start_from_a_path_with_a_space(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/a b/python")
    guest = SimpleNamespace(name="host")
    for server in (
        Agent("key", "/a b", guest, *[None] * 2),
        LabServer("/a b", True, guest, None, None),
    ):
        words = shlex.split(server.script([1, 2]))
        assert words[words.index("exec") + 1] == "/a b/python"
        assert "PYTHONPATH=/a b" in words


@pytest.mark.parametrize(
    "call",
    [
        testbed.connect,
        lambda: testbed.share("name", None),
        lambda: testbed.receive("name", None),
        lambda: testbed.gpu_queue("name", None, []),
        lambda: testbed.serve_gpu_queue("name", None, None),
    ],
)
def test_outside_a_guest_what_guests_call_is_refused(call):
    with pytest.raises(dgkit.TestbedError, match=r"no guest of a testbed: .*up --lab"):
        call()


def test_guests_import_what_was_shared_last(machine, monkeypatch):
    """A descriptor of a process that has ended is waited over; names cannot leave the folder."""
    monkeypatch.setenv("DGKIT_GUEST", "host")
    monkeypatch.setenv("DGKIT_EXCHANGE", str(machine))
    with dgkit.Device("soft") as device:
        with device.register(bytearray(8)) as closed:
            testbed.share("name", closed)
        with pytest.raises(dgkit.DgkitError, match="closed"):
            testbed.receive("name", device, timeout=0.2)
        memory = dgkit.empty(16)
        later = threading.Timer(0.3, lambda: testbed.share("name", kept))
        with device.register(memory) as kept:
            later.start()
            with testbed.receive("name", device, timeout=20) as remote:
                assert remote.size == 16
        later.join()
    with pytest.raises(dgkit.TestbedError, match="nothing was shared as 'other'"):
        testbed.receive("other", device, timeout=0)
    for name in ("../name", "", "x" * 65):
        with pytest.raises(ValueError, match="name must be 1 to 64"):
            testbed.receive(name, device)


def test_a_python_that_the_host_guest_does_not_see_is_named(machine, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/tmp/venv/bin/python")
    with pytest.raises(dgkit.TestbedError, match="/tmp/venv/bin/python is below /tmp, which"):
        testbed.up()
    (machine / "python").touch()
    (link := machine / "link").symlink_to(machine / "python")
    monkeypatch.setattr(sys, "executable", link)
    monkeypatch.setattr(initramfs, "OWN", [str(machine / "python")])
    with pytest.raises(dgkit.TestbedError, match=f"{machine}/python is below"):
        testbed.up()


def test_saved_notebooks_stay_and_down_says_what_goes(machine, wheelhouse, capfd):
    for name in ("host/host", "dpu/dpu", "tutorials/01"):
        (path := wheelhouse / f"notebooks/{name}.ipynb").parent.mkdir(parents=True)
        path.write_text("original")
    with zipfile.ZipFile(wheelhouse / "jupyterlab-4.5.0-py3-none-any.whl", "w") as archive:
        archive.writestr("elsewhere/__init__.py", "")
    kept = machine / "data/dgkit/testbed/dpu"
    for content in ("original", "changed"):
        assert main(["testbed", "up", "--lab", "--agents", str(wheelhouse)]) == 0
        assert f"saved {kept}\n" in capfd.readouterr().out
        command = Path(f"/proc/{pids(testbed.running())[2]}/cmdline").read_text()
        assert f"id=notebooks,path={kept},security_model=none,readonly=off" in command
        assert (kept / "dpu.ipynb").read_text() == content
        assert (kept / "tutorials/01.ipynb").read_text() == content
        for path in kept.rglob("*.ipynb"):
            path.write_text("changed")
        assert main(["testbed", "down"]) == 0
        said = capfd.readouterr().err
        assert "Discarded: what was written to the guests' /tmp, /run and /dev" in said
        assert f"kept: the notebooks in {kept.with_name('host')} and {kept}\n" in said


def test_jupyterlab_without_its_wheels_is_refused(wheelhouse, capfd):
    with pytest.raises(ValueError, match="lab needs agents"):
        testbed.up(lab=True)
    assert main(["testbed", "up", "--lab"]) == 2
    assert "lab needs agents" in capfd.readouterr().err
    with pytest.raises(dgkit.TestbedError, match=r"no wheel of jupyterlab: .*--extra lab"):
        testbed.up(lab=True, agents=wheelhouse)


def test_each_guest_has_jupyterlab_with_a_token_and_more_memory(machine, wheelhouse):
    with zipfile.ZipFile(wheelhouse / "jupyterlab-4.5.0-py3-none-any.whl", "w") as archive:
        archive.writestr("elsewhere/__init__.py", "")
    with testbed.up(lab=True, agents=wheelhouse) as bed:
        urls = [bed.lab(guest) for guest in ("host", "dpu")]
        for url in urls:
            base, token = url.split("/lab?token=")
            assert base.startswith("http://127.0.0.1:")
            with urllib.request.urlopen(f"{base}/api/contents?token={token}", timeout=30) as answer:
                assert json.load(answer)["type"] == "directory"
            with pytest.raises(urllib.error.HTTPError, match="403"):
                urllib.request.urlopen(f"{base}/api/contents?token=wrong", timeout=30)
        assert len({url.partition("=")[2] for url in urls}) == 2
        for pid in pids(bed)[1:]:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
            memory = 1600 if b"-object\0memory-backend-ram," in words else 1536  # with the PCI BAR
            assert f"\0-m\0{memory}M\0".encode() in words
            assert urls[0].partition("=")[2].encode() not in words


def test_modules_of_older_wheels_are_removed(machine):
    names = [images.site_name(digest) for digest in ("older", "newer")]
    for number, name in enumerate(names):
        (images.cache() / name).mkdir()
        os.utime(images.cache() / name, (number, number))
    images.sweep()
    assert [each.name for each in images.cache().glob("site-*")] == names[1:]


def test_a_hostile_guest_costs_this_machine_no_memory_and_no_service(wheelhouse, capfd):
    with testbed.up(agents=wheelhouse) as bed:
        address, pid = bed.dpu, bed.status()["pid"]

        def threads():
            return len([*Path(f"/proc/{pid}/task").iterdir()])

        before = threads()
        assert bed.run("dpu", "attack").returncode == 0
        assert bed.dpu == address  # another `ready` starts no other agent
        until(lambda: threads() <= before, "the command's thread ends")
        assert bed.status()["guests"]["dpu"]["state"] == "ready"
        assert 1 << 12 < len(bed.console("dpu")) <= 1 << 16
        for number in range(len(fake_qemu.ENDS)):
            with pytest.raises(dgkit.TestbedError, match="gave no exit status"):
                bed.run("dpu", f"attack {number}")
        peak = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
        assert int(peak[1]) < 96 << 10
        assert bed.run("host", "echo goes on").stdout == "goes on\n"
        state = bed.status()
        state["guests"]["dpu"] |= {"state": "\x1b]0;x", "agent_ended": "\x1b[2J\u202e"}
        _show(state)
        assert not {"\x1b", "\u202e"} & set(capfd.readouterr().out)
