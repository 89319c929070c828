# SPDX-License-Identifier: Apache-2.0
"""`dgkit testbed` from `up` to `down`, and the provider verbs in and between its guests.

The guests are real kernels, emulated: what is measured there is no figure.
"""

import ast
import contextlib
import hashlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from support.processes.waiting import until

import dgkit
from dgkit import testbed
from dgkit.cli import main
from dgkit.errors import ClosedError, PeerLost, TestbedError, TransferError
from dgkit.gpu_initiated import emulate
from dgkit.session import inspect

ROOT = Path(__file__).resolve().parents[2]
NATIVE = ROOT / ".cache/build/plain/tests"
SUITE = [f"test_conformance_{part}" for part in ("atomic", "copy", "queue", "region")]
OVER_VERBS = "DG_ONLY_PROVIDER=verbs DG_NO_SKIP=1"
HOST, DPU = "10.9.0.1", "10.9.0.2"
PROGRAM = {"host": f"{NATIVE}/far_pair", "dpu": "/run/share/far_pair"}
FAR_RDMA = f"{NATIVE}/far_rdma"
NATIVE_S = 240  # for a native test in a guest

pytestmark = pytest.mark.timeout(400)


def alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def pids(state):
    return [state["pid"], *(guest["pid"] for guest in state["guests"].values())]


@pytest.fixture(scope="module")
def bed(programs, wheels):
    """What `dgkit testbed up` has started; `down` ends it."""
    up = ["testbed", "up", "--ssh", "--share", str(programs), "--host-memory", "3G"]
    assert main([*up, "--agents", str(wheels)]) == 0
    bed = testbed.running()
    state = bed.status()
    yield bed
    assert main(["testbed", "down"]) == 0
    assert not any(map(alive, pids(state)))
    assert testbed.running() is None


def passes(bed, guest, command, seconds=NATIVE_S):
    """Run a command in a guest, print what it prints; it must succeed."""
    done = bed.run(guest, command, timeout=seconds)
    print(f"{guest}: {command}\n{done.stdout}{done.stderr}", flush=True)
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{bed.console(guest)}"


def test_status_names_both_guests_and_their_state(bed, capsys):
    assert main(["testbed", "status", "--json"]) == 0
    state = json.loads(capsys.readouterr().out)
    assert state["up"]
    assert {name: guest["state"] for name, guest in state["guests"].items()} == {
        "host": "ready",
        "dpu": "ready",
    }
    assert state["guests"]["dpu"]["machine"] == "aarch64"
    assert state["guests"]["dpu"]["runs_by"] == "emulation"
    assert state["cache_bytes"] > 1 << 20


@pytest.mark.parametrize(("guest", "machine"), [("dpu", "aarch64"), ("host", "x86_64")])
def test_a_command_runs_in_a_guest_and_gives_its_streams_and_its_status(guest, machine, bed):
    script = "uname -m; rdma link; head -c 300000 /dev/zero | tr '\\0' x; echo wrong >&2; exit 7"
    done = bed.run(guest, script, timeout=60)
    out = done.stdout.splitlines()
    assert out[0] == machine
    assert "rxe0/1 state ACTIVE" in out[1]
    assert out[2] == "x" * 300_000
    assert (done.stderr, done.returncode) == ("wrong\n", 7)


@pytest.mark.parametrize(
    ("guest", "folder"), [("host", ""), ("host", "/run/share"), ("dpu", "/run/share")]
)
def test_a_script_that_is_edited_and_renamed_outside_is_what_a_guest_runs(
    guest, folder, bed, programs
):
    script, renamed = programs / "edited.sh", programs / "renamed.sh"
    folder = folder or str(programs)
    try:
        script.write_text("echo first\n")
        assert bed.run(guest, f"sh {folder}/edited.sh", timeout=60).stdout == "first\n"
        script.write_text("echo other\n")
        os.utime(script, (1, 1))  # of the same size; times are compared by seconds
        assert bed.run(guest, f"sh {folder}/edited.sh", timeout=60).stdout == "other\n"
        script.write_text("echo second, and longer\n")
        assert bed.run(guest, f"sh {folder}/edited.sh", timeout=60).stdout == "second, and longer\n"
        script.rename(renamed)
        script.write_text("echo third\n")
        command = f"sh {folder}/renamed.sh; sh {folder}/edited.sh"
        assert bed.run(guest, command, timeout=60).stdout == "second, and longer\nthird\n"
    finally:
        script.unlink(missing_ok=True)
        renamed.unlink(missing_ok=True)


@pytest.mark.parametrize(("guest", "machine"), [("dpu", "aarch64"), ("host", "x86_64")])
def test_ssh_opens_a_shell_in_a_guest(guest, machine, bed):
    command = [*bed.ssh(guest), "-tt", "uname -m; tty; rdma link; command -v dgkit; exit 7"]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=180, check=False
    )
    for said in (machine, "/dev/pts/0", "rxe0/1 state ACTIVE", "/dgkit"):
        assert said in done.stdout, done
    assert done.returncode == 7


def test_ssh_refuses_another_key(bed, tmp_path):
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    command = [*bed.ssh("dpu")[:-1], "-o", f"IdentityFile={key}", "-o", "BatchMode=yes", "dpu"]
    config = Path(command[2]).read_text()
    other = tmp_path / "ssh_config"
    other.write_text("".join(x for x in config.splitlines(True) if "IdentityFile" not in x))
    command[2] = str(other)
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert "Permission denied (publickey)" in done.stderr
    assert done.returncode == 255


def test_the_command_run_exits_with_the_status_of_the_guests_command(bed, capfdbinary):
    assert main(["testbed", "run", "dpu", "--", "sh", "-c", "printf 'a\\36b'; exit 5"]) == 5
    assert capfdbinary.readouterr().out == b"a\x1eb"


def test_a_command_that_takes_too_long_is_ended_with_its_children(bed):
    with pytest.raises(subprocess.TimeoutExpired):
        bed.run("dpu", "echo begun; sleep 1000 & sleep 1000", timeout=3)
    until(lambda: "sleep 1000" not in bed.run("dpu", "ps -o args").stdout, "sleep ends", 30.0)


def test_each_guest_reaches_the_other_and_nothing_else(bed):
    passes(bed, "dpu", f"ping -c 1 -W 20 {HOST}", 60)
    links = bed.run("host", "ls /sys/class/net").stdout.split()
    assert sorted(links) == ["eth0", "eth1", "lo"]
    for guest in ("host", "dpu"):
        assert "default" not in bed.run(guest, "ip route").stdout
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]  # QEMU's gateway is this machine, unless it is restricted
        source = f"import socket; socket.create_connection(('10.0.2.2', {port}), 5)"
        assert "Error" in bed.run("dpu", ["python3", "-c", source], timeout=60).stderr


@pytest.mark.parametrize("guest", ["host", "dpu"])
def test_the_agent_of_a_guest_answers(guest, bed, capsys):
    address = getattr(bed, guest)
    assert main(["info", "--address", address]) == 0
    assert f"provider verbs, pid {inspect(address)[0].pid} on {guest}" in capsys.readouterr().out


@pytest.fixture(scope="module")
def session(bed):
    with bed.session() as opened:
        yield opened


def test_a_session_of_the_two_guests_moves_bytes_by_rdma(session):
    data = os.urandom(1 << 18)
    region = session.empty(1 << 18)
    report = session.write(region, data)
    print(report)
    assert "without DMA" in repr(report)
    for shown in (session, report, session.start_read(region, 64)):
        assert "emulated" in repr(shown), shown
    assert "RDMA, emulated" in session._repr_html_() + report._repr_html_()
    assert (report.provider, report.size) == ("verbs", 1 << 18)
    copy = session.empty(1 << 18, on="dpu")
    assert not session.copy(region, copy).over_wire
    assert session.read(copy, 1 << 18) == data
    assert session.digest(region) == hashlib.sha256(data).hexdigest()
    assert "in software" in session.info["dpu"]["engine"]


def test_a_session_of_the_two_guests_measures_and_monitors(session):
    region = session.empty(4096)
    assert session.latency(region, size=64, count=20).provider == "verbs"
    with session.monitor(region, every_s=0.2, count=2) as monitor:
        until(monitor.read, "samples arrive", 30.0)
    region.close()
    with pytest.raises(ClosedError):
        session.read(region, 1)


def test_a_guest_that_stands_still_for_a_while_keeps_its_session(bed, session):
    """An emulated machine's own pauses are as this one, without a process that shows them."""
    assert bed.host.endswith("&heartbeat=20")
    region = session.empty(64)
    emulator = bed.status()["guests"]["host"]["pid"]
    os.kill(emulator, signal.SIGSTOP)
    try:
        time.sleep(1.5)  # two and a half times as long as a link without that heartbeat allows
    finally:
        os.kill(emulator, signal.SIGCONT)
    session.write(region, b"still here")
    assert session.read(region, 10) == b"still here"


def test_the_host_guest_alone_is_a_session_for_control_and_inspection(bed):
    with dgkit.connect(bed.host, timeout=60) as alone:
        region = alone.empty(4096, name="at the host")
        assert alone.stats()["allocated"] >= 4096
        with pytest.raises(dgkit.Unsupported, match=r"another machine.*connect\(DPU_ADDRESS"):
            alone.write(region, b"x")


def test_the_dpu_guest_has_dgkit(bed):
    found = json.loads(bed.run("dpu", ["dgkit", "info", "--json"], timeout=120).stdout)
    usable = {each["name"] for each in found["providers"] if each["usable"]}
    assert {"soft", "softdoca", "verbs"} <= usable, found  # side by side in a process


@contextlib.contextmanager
def meanwhile(bed, guest, command):
    """A command runs in a guest during the `with` statement, and must succeed."""
    ended = []

    def run():
        ended.append(bed.run(guest, command, timeout=NATIVE_S))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    assert ended[0].returncode == 0, ended[0].stdout + ended[0].stderr


def with_kernels(program, command):
    """Return a command of the host guest that finds the kernels of a program compiled."""
    texts = (each.value for each in ast.walk(ast.parse(program)) if isinstance(each, ast.Constant))
    emulate(next(text for text in texts if "__global__" in str(text)))
    return ["env", f"XDG_CACHE_HOME={os.environ['XDG_CACHE_HOME']}", *command]


def code_of(notebook):
    """Return the code of a notebook, without what needs the extra lab: dashboard and figure."""
    cells = json.loads(notebook.read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    code = [cell for cell in code if not cell.startswith("dgkit.dashboard(")]
    figure = "from IPython.display import"
    return "\n".join("draw = print" if cell.startswith(figure) else cell for cell in code)


@pytest.mark.parametrize("names", [("host", "dpu"), ("capstone", "capstone")], ids=lambda n: n[0])
def test_a_pair_of_notebooks_runs_on_both_sides(names, bed):
    host, dpu = (
        code_of(ROOT / f"notebooks/testbed/{guest}/{name}.ipynb")
        for guest, name in zip(("host", "dpu"), names, strict=True)
    )
    command = [sys.executable, "-B", "-c", host]
    if "__global__" in host:
        command = with_kernels(host, command)
    with meanwhile(bed, "host", command):
        passes(bed, "dpu", ["python3", "-c", dpu])


def test_a_capstones_feeder_that_is_paused_gets_all_points_of_that_run(bed):
    spec = importlib.util.spec_from_file_location(
        "grade", ROOT / "notebooks/labs/teaching/capstone/grade.py"
    )
    grade = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(grade)
    feeder = grade.feeder_of(ROOT / "notebooks/testbed/dpu/capstone.ipynb")
    assert grade.grade(bed, feeder, ["paused"]) == sum(grade.CHECKS["paused"].values())


@pytest.mark.parametrize("guest", ["dpu", "host"])
def test_after_a_link_went_down_below_a_session_another_one_moves_bytes(guest, bed):
    with bed.session() as opened:
        region = opened.empty(64)
        opened.write(region, b"before")
        bed.run(guest, "ip link set eth0 down", check=True, timeout=60)
        try:
            until(lambda: is_lost(opened, region), "the loss is seen", 60.0)
        finally:
            bed.run(guest, "ip link set eth0 up", check=True, timeout=60)
        until(lambda: moves_bytes(opened), "the session goes on with a new region", 60.0)
    with bed.session() as another:
        assert moves_bytes(another)


def is_lost(session, region):
    try:
        session.write(region, b"meanwhile")
    except TransferError as error:
        return error.completion.status.name == "PEER_LOST"
    return False


def moves_bytes(session):
    try:
        region = session.empty(64)
        session.write(region, b"afterwards")
    except dgkit.DgkitError as error:
        print(error)
        return False
    return session.read(region, 10) == b"afterwards"


def test_a_killed_agent_of_a_guest_ends_its_session_and_is_named(bed, session):
    """The last test that uses the agents: one that had a session goes on looking at its links."""
    region = session.empty(64)
    bed.run("host", ["kill", "-9", str(session.info["host"]["pid"])], check=True, timeout=60)

    def lost():
        try:
            session.read(region, 64)
        except TransferError:
            return False
        except PeerLost:
            return True
        return False

    until(lost, "the session is lost", 30.0)
    with pytest.raises(TestbedError, match="the agent in the host guest ended"):
        until(lambda: bed.host == "", "the testbed knows it", 30.0)
    other = inspect(bed.dpu)[0]
    assert other.role == "dpu"
    session.close()
    bed.run("dpu", ["kill", str(other.pid)], check=True, timeout=60)


@pytest.mark.parametrize(
    ("exporter", "importer", "address", "turns"),
    [("host", "dpu", HOST, ("export", "import")), ("dpu", "host", DPU, ("grant", "join"))],
)
def test_one_guest_moves_bytes_of_the_other_by_rdma(exporter, importer, address, turns, bed):
    """By a connection of the connection manager, and by queue pairs that both connect by hand.

    The Arm guest exports by the connection manager to the test that takes a link down below it.
    """
    with meanwhile(bed, exporter, [PROGRAM[exporter], turns[0], "7001"]):
        passes(bed, importer, [PROGRAM[importer], turns[1], address, "7001"])


def bar_part(guest, part):
    """Return the command that runs a part of bar_pair.py, which the DPU guest has no file of."""
    script = ROOT / "tests/testbed/bar_pair.py"
    if guest == "host":
        return [sys.executable, "-B", script, part]
    return ["python3", "-c", script.read_text(), part]


def test_the_dpu_moves_bytes_of_the_hosts_memory_in_its_pci_bar(bed):
    with meanwhile(bed, "host", bar_part("host", "host")):
        passes(bed, "dpu", bar_part("dpu", "dpu"))


def test_memory_in_the_bar_of_a_killed_process_is_lost_and_then_another_ones(bed):
    with meanwhile(bed, "dpu", bar_part("dpu", "lost")):
        killed = bed.run("host", bar_part("host", "killed"), timeout=NATIVE_S)
        assert killed.returncode == 128 + signal.SIGKILL, killed.stderr
        passes(bed, "host", bar_part("host", "next"))


def test_kernels_of_the_host_post_to_the_arm_cores(bed):
    """What they wrote before is read by RDMA and by the BAR."""
    program = (ROOT / "tests/testbed/bar_pair.py").read_text()
    with meanwhile(bed, "host", with_kernels(program, bar_part("host", "posts"))):
        passes(bed, "dpu", bar_part("dpu", "serves"))


def test_the_native_tests_of_the_bar_pass_on_arm(bed):
    passes(bed, "dpu", "./test_bar")


def test_a_device_and_a_session_work_on_the_host(bed):
    script = ROOT / "tests/testbed/in_guest.py"
    fake_cuda = f"LD_LIBRARY_PATH={NATIVE}/fake_cuda"
    passes(bed, "host", ["env", fake_cuda, sys.executable, "-u", "-B", script], seconds=480)


def test_doca_rdma_reaches_the_other_machine_and_notices_that_it_died(bed):
    """The host guest's process kills itself at the end."""
    passes(bed, "host", f"LD_LIBRARY_PATH={NATIVE}/fake_cuda {FAR_RDMA} alone")
    with meanwhile(bed, "host", f"{FAR_RDMA} serve 7004; test $? -eq 137"):
        passes(bed, "dpu", f"LD_LIBRARY_PATH=/run/share ./far_rdma join {HOST} 7004")


def test_queue_pairs_are_connected_by_hand_to_pyverbs_and_to_another_process(bed):
    script = ROOT / "tests/testbed/queue_pairs.py"
    passes(bed, "host", [sys.executable, "-u", "-B", script], seconds=480)


@pytest.mark.parametrize("program", ["test_verbs_qp", *SUITE])
def test_the_native_tests_pass_over_verbs_on_the_host(program, bed):
    passes(bed, "host", f"{OVER_VERBS} {NATIVE}/{program}")


# The suite runs on the host alone: of it, the Arm guest's far_pair above has atomic operations and
# queue pairs by hand, and the stage aarch64 runs all of it over soft. test_verbs takes as long in
# either guest: it runs where the Arm cores' own provider is.
def test_the_native_tests_pass_over_verbs_on_arm(bed):
    passes(bed, "dpu", f"{OVER_VERBS} ./test_verbs")


def test_a_device_without_a_link_is_named(bed):
    passes(bed, "host", [sys.executable, "-u", "-B", ROOT / "tests/testbed/bad_input.py"])


def test_an_idle_peer_whose_link_goes_down_is_lost_without_an_operation(bed):
    loses(bed, "idle", "host", "dpu", HOST)


@pytest.mark.parametrize(
    ("exporter", "importer", "address"), [("host", "dpu", HOST), ("dpu", "host", DPU)]
)
def test_a_peer_whose_link_goes_down_is_lost(exporter, importer, address, bed):
    loses(bed, "lose", exporter, importer, address)


def test_an_exporter_learns_of_an_idle_importer_whose_link_goes_down(bed):
    """Also then its region is closed at once."""
    said = []
    hold = bed.start("dpu", [PROGRAM["dpu"], "hold", HOST, "7003"], timeout=NATIVE_S)
    thread = threading.Thread(target=lambda: said.extend(hold))
    watched = bed.start("host", [PROGRAM["host"], "watch", "7003"], timeout=NATIVE_S)
    thread.start()
    try:
        assert next(watched) == (b"o", b"up\n")
        until(lambda: said, "the importer is up", 60.0)
        assert said == [(b"o", b"up\n")]
        bed.run("dpu", "ip link set eth0 down", check=True)
        began = time.monotonic()
        ended = [*watched]
    finally:
        bed.run("dpu", "ip link set eth0 up; killall far_pair || pkill far_pair", timeout=60)
        thread.join()
    assert ended[-1] == (b"d", b"0"), ended
    print(f"seen after {time.monotonic() - began:.1f} s")


def loses(bed, how, exporter, importer, address):
    """Soft-RoCE gives it up 3.8 s after the last acknowledgement, without the emulator's delays."""
    export = [PROGRAM[exporter], "export", "7002"]
    with contextlib.closing(bed.start(exporter, export, timeout=NATIVE_S)) as other:
        thread = threading.Thread(target=lambda: [*other])
        thread.start()
        printed = bed.start(importer, [PROGRAM[importer], how, address, "7002"], timeout=NATIVE_S)
        assert next(printed) == (b"o", b"up\n")
        bed.run(exporter, "ip link set eth0 down", check=True)
        began = time.monotonic()
        try:
            ended = [*printed]
        finally:
            bed.run(exporter, "ip link set eth0 up; killall far_pair || pkill far_pair", timeout=60)
        thread.join()
    assert ended[-1] == (b"d", b"0"), ended
    print(f"lost after {time.monotonic() - began:.1f} s")


def test_a_removed_device_is_named(bed):
    """The kernel ends the removal once no process has the device open: not the agent, either.

    It lists the device no more when the removal begins, and adds no other before it has ended.
    """
    bed.run("host", "killall python || pkill python", timeout=60)  # unless a test above ended it
    script = [sys.executable, "-u", "-B", ROOT / "tests/testbed/bad_input.py", "removal"]
    passes(bed, "host", script)
    add = "rdma link add rxe0 type rxe netdev eth0"
    until(lambda: bed.run("host", add, timeout=60).returncode == 0, "the removal ends", 60.0)


def test_the_dpu_finishes_the_hosts_job_after_its_kernel_hung_and_a_panic_is_named(bed):
    """The last test: no guest is left."""
    host, dpu = (
        code_of(ROOT / f"notebooks/testbed/{guest}/hang.ipynb") for guest in ("host", "dpu")
    )

    def work():
        with pytest.raises(TestbedError, match="the host guest ended"):
            bed.run("host", [sys.executable, "-B", "-c", host])

    thread = threading.Thread(target=work)
    thread.start()
    passes(bed, "dpu", ["python3", "-c", dpu])
    with pytest.raises(subprocess.TimeoutExpired):
        bed.run("host", "true", timeout=5)
    os.kill(bed.status()["guests"]["host"]["pid"], signal.SIGKILL)
    thread.join()
    with pytest.raises(TestbedError, match="the dpu guest ended"):
        bed.run("dpu", "echo c > /proc/sysrq-trigger", timeout=60)
