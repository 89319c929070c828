# SPDX-License-Identifier: Apache-2.0
"""`dgkit bluefield` over a real SSH server of this user: set-up, faults, and going on from them.

FAULTS has a case for each fault of the set-up; those of time have tests of their own: the link lost
in each step and Ctrl-C, two users at once, a killed agent, a slow or lost link in a report.
"""

import contextlib
import getpass
import io
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.doctor.bluefield import AT, BF2, BF3, DPU, OTHER, cards, settings
from support.doctor.machines import machine
from support.processes.ssh_server import CUT, SshServer, stub_wheels
from support.processes.waiting import until

from dgkit.bluefield import archive, card, setup
from dgkit.bluefield.arm import Arm
from dgkit.bluefield.card import HostView, view
from dgkit.bluefield.transfers import Transfer
from dgkit.cli import main
from dgkit.cli.bluefield_command import _offer_ssh_key
from dgkit.doca import guesses
from dgkit.doctor import api as doctor
from dgkit.doctor.api import load_machine
from dgkit.errors import DgkitError, PeerLost
from dgkit.wire import keys, saved
from dgkit.wire.host_id import host_name

MACHINES = Path(__file__).parents[2] / "notebooks/tutorials/machines"
H200 = Path(__file__).parents[1] / "doctor/machines/h200.snap"
CONNECT = """\
import dgkit
with dgkit.connect("bluefield") as session:
    region = session.empty(64)
    session.write(region, b"from the Arm side")
    print(bytes(region.array[:17]).decode(), session.dpu.provider)
"""
QUICK = """\
from dgkit.bluefield import archive
archive._SIZES, archive._SECONDS, archive._LATENCY_S = (64, 4096), 0.02, 0.02
from dgkit.cli import main
main(["bluefield", "report", {file!r}])
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    return stub_wheels(tmp_path_factory.mktemp("wheels") / "wheels")


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(prefix="dg-", dir="/tmp") as short:  # names of sockets are
        yield Path(short)


@pytest.fixture
def arm(folder):
    server = SshServer(folder)
    yield server
    pid = server.home / ".dgkit-bluefield/pid"
    if pid.exists():
        os.kill(int(pid.read_text()), signal.SIGKILL)
    server.close()


class Host:
    """A user of the host."""

    def __init__(self, folder, arm, wheels):
        self.folder, self._arm, self._wheels = folder, arm, wheels
        for name in ("home", "run"):
            (folder / name).mkdir(mode=0o700, parents=True)
        self.environment = os.environ | {
            "HOME": str(folder / "home"), "XDG_RUNTIME_DIR": str(folder / "run"),
            "XDG_CONFIG_HOME": str(folder / "home/config"), "XDG_CACHE_HOME": str(folder / "cache"),
        }  # fmt: skip

    def run(self, *words):
        command = [sys.executable, *words]
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=False,
            stdin=subprocess.DEVNULL, timeout=120,
        )  # fmt: skip

    def bluefield(self, *words):
        return self.run("-m", "dgkit", "bluefield", *words)

    def up_words(self, ssh=None):
        return (
            "up",
            "--arm",
            "arm",
            "--ssh",
            ssh or self._arm.ssh,
            "--wheels",
            self._wheels,
            "--yes",
        )

    def up(self, ssh=None):
        return self.bluefield(*self.up_words(ssh))

    def start_up(self):
        """Start `up` in the background."""
        command = [sys.executable, "-m", "dgkit", "bluefield", *self.up_words()]
        pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, env=self.environment, **pipes)

    def down(self, *words):
        return self.bluefield("down", "--ssh", self._arm.ssh, "--yes", *words)


@pytest.fixture
def host(folder, arm, wheels):
    return Host(folder / "host", arm, wheels)


@dataclass(frozen=True)
class Fault:
    """What is wrong, and what `up` says of it.

    Attributes:
        said: A part of its message.
        card: What this host sees of its cards, for `up` without --arm.
        client: Arguments of SshServer.client().
        says: What ssh prints, where no server can be made to cause it.
        programs: Scripts in the place of programs of the Arm side.
    """

    said: str
    card: Callable[[], HostView] | None = None
    client: Mapping[str, Any] = field(default_factory=dict)
    says: str | None = None
    programs: Mapping[str, str] = field(default_factory=dict)


def card_with(**readings):
    return lambda: view(machine({**cards((AT, BF3)), **settings(DPU), **readings}))


def python_is(script):
    return dict.fromkeys(("python3", *(f"python3.{x}" for x in range(10, 15))), script)


NO_NET = {"names /sys/class/net": ["lo"]}
ACTIVE = {"run systemctl is-active rshim": "active\n"}
NO_KEY = "it accepts neither the password nor a key"
NO_ANSWER = "`ping arm`; over rshim"
FAULTS = {
    "no card": Fault("there is no BlueField in this machine", lambda: view(load_machine(H200))),
    "two cards": Fault(
        "there are 2 BlueFields", lambda: view(machine(cards((AT, BF3), (OTHER, BF2))))
    ),
    "NIC mode": Fault("NIC mode", lambda: view(load_machine(MACHINES / "machine-c.snap"))),
    "rshim stopped": Fault("tmfifo", card_with(**NO_NET)),
    "rshim held by another host": Fault("no device", card_with(**NO_NET, **ACTIVE)),
    "tmfifo down": Fault("tmfifo", card_with(**NO_NET, **{"names /dev": ["rshim0"]})),
    "wrong password": Fault(NO_KEY, client={"password": True}),
    "wrong key": Fault(NO_KEY, client={"key": "other_key"}),
    "too many keys": Fault(NO_KEY, says="Received disconnect: Too many authentication failures"),
    "expired password": Fault(
        "the password has expired, as on a new image: log in once",
        says="Your password has expired.\nPassword change required but no TTY available.",
    ),
    "unknown host key": Fault(
        "its host key is not known and was not accepted", client={"known": "empty"}
    ),
    "changed host key": Fault(
        "its host key is not the one that is known", client={"known": "changed"}
    ),
    "no SSH server": Fault("no SSH server listens there", client={"port": 1}),
    "no route": Fault(NO_ANSWER, says="ssh: connect to host arm port 22: No route to host"),
    "no answer": Fault(NO_ANSWER, says="ssh: connect to host arm port 22: Connection timed out"),
    "unknown name": Fault(
        "the name is not known", says="Could not resolve hostname arm: Name or service not known"
    ),
    "ssh without a word": Fault("ssh ended without a message", says=""),
    "Python 3.8": Fault(
        "has Python 3.8; dgkit needs 3.10", programs=python_is("echo 3.8 2.31 4096")
    ),
    "no Python": Fault("has no Python with its module venv", programs=python_is("exit 127")),
    "no glibc": Fault("has no glibc", programs=python_is("echo 3.12 none 4096")),
    "little space": Fault("has 20 KiB free", programs={"df": "echo; echo / 9 9 20 9% /"}),
    "full disk": Fault(
        "the disk at arm is full (step 'install'): free some",
        programs={"tar": "echo 'tar: No space left on device' >&2; exit 2"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_and_the_next_run_goes_on(name, host, arm, monkeypatch, capsys):
    fault = FAULTS[name]
    other = (arm.folder / "other_key.pub").read_text().split()[:2]
    (arm.folder / "changed").write_text(f"[127.0.0.1]:{arm.port} {' '.join(other)}\n")
    for variable, value in host.environment.items():
        monkeypatch.setenv(variable, value)
    ssh = arm.client(**fault.client)
    if fault.says is not None:
        ssh = str(arm.bin / "ssh")
        arm.replace(
            "ssh",
            'while [ "$1" != -E ]; do shift; done\n'
            f"printf '%s\\n' {shlex.quote(fault.says)} >> \"$2\"\nexit 255",
        )
    for program, script in fault.programs.items():
        arm.replace(program, script)
    words = list(map(str, host.up_words(ssh)))
    with monkeypatch.context() as patch:
        if fault.card is not None:
            patch.setattr(card, "this_host", fault.card)
            del words[1:3]  # --arm arm
        patch.setenv("SSH_ASKPASS", shutil.which("hostname"))  # a wrong password
        patch.setenv("SSH_ASKPASS_REQUIRE", "force")
        assert main(["bluefield", *words]) == 1
    said = capsys.readouterr().err
    assert fault.said in said
    if fault.card is not None:
        assert "--arm USER@ADDRESS" in said
    if name != "full disk":
        assert not list(arm.home.iterdir())
    arm.restore()
    again = list(map(str, host.up_words()))
    if name != "full disk":  # as far as the plan, which takes --yes
        again.remove("--yes")
        assert main(["bluefield", *again]) == 2
        assert "In this order:" in capsys.readouterr().out
    else:
        assert main(["bluefield", *again]) == 0


def test_a_clock_of_1970_is_named_with_the_command_that_sets_it(host, arm):
    arm.replace("date", "echo 1000")
    planned = host.bluefield(*host.up_words()[:-1])  # shown, and not agreed to
    assert "The clock there shows 1970-01-01" in planned.stdout
    assert "sudo date -u -s" in planned.stdout


def test_a_report_names_nobody():
    name = socket.gethostname()
    text = (
        f"cannot reach {name}: /home/alice/x, 10.1.2.3, 0c:42:a1:00:11:22, fe80::e42:a1ff:fe00:1122"
    )
    found = {"why": [text], "figures": [{"size": 4096, "p50_ns": 1234}]}
    redacted = archive._redacted(found, "alice@my-card.example.com")
    (said,) = redacted["why"]
    for secret in ("alice", "10.1.2.3", "0c:42", "e42:a1ff", "my-card"):
        assert secret not in said
    assert redacted["figures"] == found["figures"]
    for arm in ("me@bfhost7", "ssh://me@bfhost7:2222"):
        assert "bfhost7" not in str(archive._redacted({"why": ["bfhost7: refused"]}, arm))


@pytest.mark.parametrize("arm", ["ubuntu@192.168.100.2", "ssh://ubuntu@10.9.0.2:22"])
def test_the_end_of_an_address_is_no_name_to_hide(arm):
    text = "0.2.0 took 100.2 us"
    redacted = archive._redacted({"why": [f"{text}; {arm.split('@')[-1]} refused"]}, arm)
    (said,) = redacted["why"]
    assert said.startswith(text)
    assert "10.9.0.2" not in said


def test_a_damaged_address_is_named_and_foreign_keys_stay(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("bluefield", "bluefield.lab"):
        keys.make(name)
    for text in ("[]", '{"arm": "me@there", "address": "tcp://there:1"}'):
        saved.path().write_text(text)
        for words in (["report", str(tmp_path / "a.zip")], ["status"], ["down", "--yes"]):
            assert main(["bluefield", *words]) == 1
            assert f"{saved.path()} is damaged: delete it, then" in capsys.readouterr().err
    assert main(["bluefield", "report", str(tmp_path / "none/a.zip")]) != 0
    assert f"{tmp_path / 'none'}: No such file" in capsys.readouterr().err
    setup.forget(print)
    assert [pair.name for pair in keys.listing()] == ["bluefield.lab"]
    keys.discard("bluefield.lab")
    setup.forget(print)
    assert not (tmp_path / "dgkit").exists()


REPORT = {"format": 1, "taken": "", "dgkit": "", "provider": "", "figures": [], "transfers": []}


@pytest.mark.parametrize(
    ("provider", "gpu", "answers"),
    [
        ("verbs", {"works": False, "text": "no peer memory", "way": ""}, "- no peer no peer"),
        ("verbs", {"works": True, "text": "", "way": "dma-buf"}, "- works -"),
        ("doca", {"works": False, "text": "no peer memory", "way": ""}, "no peer - -"),
    ],
)
def test_a_report_says_of_each_way_whether_it_was_tried(provider, gpu, answers):
    transfers = [gpu | {"place": "gpu"}]
    lines = archive.page(REPORT | {"provider": provider, "transfers": transfers}, [], "")
    ways = ("  DOCA DMA with", "  RDMA with")
    said = [line.partition(": ")[2] for line in lines if line.startswith(ways)]
    short = {"not tried: another way was taken": "-", "does not: no peer memory": "no peer"}
    assert " ".join(short.get(line, line) for line in said) == answers


class SlowSession(contextlib.nullcontext):
    """Session whose link is too slow, and then gone."""

    def empty(self, *_, **__):
        return contextlib.nullcontext()

    def latency(self, *_, **__):
        raise DgkitError("no answer")

    def bandwidth(self, *_, size, **__):
        if size == 8:
            raise DgkitError("16 operations did not complete within 1 s")
        raise PeerLost("the other side is gone")


def test_a_figure_that_could_not_be_measured_has_its_row_and_reason(monkeypatch):
    session = SlowSession()
    monkeypatch.setattr(archive, "connect", lambda address: contextlib.nullcontext(session))
    figures = archive._measure([Transfer("host", True, "")], [].append)
    assert [(row["size"], row["why"]) for row in figures] == [
        (8, ["no latency: no answer", "no rate: 16 operations did not complete within 1 s"]),
        (0, ["the other side is gone"]),
    ]
    lines = archive.page(REPORT | {"figures": figures}, [], "")
    at = next(i for i, line in enumerate(lines) if line.startswith("  host    write"))
    assert "16 operations did not complete within 1 s" in lines[at + 2]
    assert "    the other side is gone" in lines


def test_what_only_hardware_settles_is_asked_in_other_processes_and_compared():
    asked = {text: guesses.answer("softdoca", text) for text in ("0 DMA tasks", "no such question")}
    assert asked == {"0 DMA tasks": "INVALID_VALUE", "no such question": "not asked"}
    found = {
        "doca": {"doca": [{"ibdev": "mlx5_0"}], "softdoca": [{"ibdev": "soft"}]},
        "guesses": {
            "0 DMA tasks": {"doca": "INVALID_VALUE", "softdoca": "INVALID_VALUE"},
            "close no device": {"doca": "ended by signal 11", "softdoca": "SUCCESS"},
        },
    }
    lines = archive.page(REPORT | found, [], "")
    assert "  0 DMA tasks: INVALID_VALUE, as softdoca" in lines
    assert "  close no device: ended by signal 11; softdoca: SUCCESS" in lines


def test_each_question_has_the_answer_that_softdoca_gives_today():
    library = "from dgkit.doca.guesses import *\n"
    library += (
        "print([QUESTIONS[text](Asked('softdoca')) for text in QUESTIONS])\nimport os; os._exit(0)"
    )
    ran = subprocess.run(
        [sys.executable, "-u", "-c", library],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert json.loads(ran.stdout) == [0, 6, 6, 6, 0, 18, 18, 18, 0, 3], ran.stderr


def test_commands_stand_once_on_a_page(tmp_path):
    diagnosed = [doctor.examine(snapshots=MACHINES / "machine-a.snap")]
    page = archive.full_page(REPORT, diagnosed, "")
    commands = [line.strip() for one in diagnosed[0].findings for line in one.remedy]
    assert commands
    assert all(page.count(f" {command}\n") <= 1 for command in commands)


def _zip(**members):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in members.items():
            made.writestr(name.replace("_", "."), data)
    return content.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK\x03\x04 not an archive",
        _zip(report_json="{}"),
        _zip(report_json="[" * 100_000, host_snap="", dpu_snap=""),
        _zip(report_json='{"format": 1}', host_snap="", dpu_snap=""),
        _zip(
            report_json='{"format": 1, "figures": [{}], "transfers": []}', host_snap="", dpu_snap=""
        ),
        _zip(report_json=b"0" * 30_000_000, host_snap="", dpu_snap=""),
        *(
            _zip(report_json=json.dumps(REPORT | wrong), host_snap="", dpu_snap="")
            for wrong in (
                {"cards": 5},
                {"why": 5},
                {"doca": "x"},
                {"doca": {"doca": [5], "softdoca": [5]}},
                {"figures": [{"latency": "x", "rate": {}}]},
                {"transfers": [{"place": "gpu", "text": "", "way": ""}]},
            )
        ),
        bytes(255 if 40 < i < 60 else byte for i, byte in enumerate(_zip(report_json="{}" * 99))),
    ],
)
def test_show_refuses_what_is_no_report(content, tmp_path, capsys):
    file = tmp_path / "a.zip"
    file.write_bytes(content)
    assert main(["bluefield", "show", str(file)]) == 2
    assert "is no file of `dgkit bluefield report`" in capsys.readouterr().err


def stored(folder):
    """Return the files of a home folder."""
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


@pytest.mark.timeout(300)  # several installations; 120 s were too few on two busy cores
def test_up_moves_bytes_and_down_leaves_nothing_on_either_side(host, arm, folder, wheels):
    nothing = host.bluefield("status", "--json")
    assert json.loads(nothing.stdout)["set_up"] is False
    assert "run `dgkit bluefield up` first" in host.run("-c", CONNECT).stderr
    assert "--yes agrees" in host.bluefield(*host.up_words()[:-1]).stderr  # there is no terminal
    assert not list(arm.home.iterdir())
    assert not stored(host.folder / "home")

    reached, other = folder / "reached", Host(folder / "other", arm, wheels)
    arm.at_step(1, f"touch {reached}; while [ -e {reached} ]; do sleep 0.1; done")
    first = host.start_up()
    until(reached.exists, "the first step", 60.0)
    assert "somebody else sets up dgkit at arm now" in other.up().stderr
    reached.unlink()
    said = first.communicate(timeout=120)[1]
    assert first.returncode == 0, said
    assert "host memory: 1 MiB there and back are equal" in said
    assert "software DPU" in said  # a figure of software never stands without its label
    assert "not doca: on both sides, " in said
    assert "GPU memory: no: " in said
    assert host.run("-c", CONNECT).stdout.split("\n")[0] == "from the Arm side soft"
    found = json.loads(host.bluefield("status", "--json").stdout)
    assert (found["answers"], found["provider"], found["arm"]) == (True, "soft", "arm")

    file = folder / "report.zip"
    assert "shows it" in host.run("-c", QUICK.format(file=str(file))).stdout
    page = host.bluefield("show", file).stdout
    assert "gpu memory: no. " in page
    assert "host memory: not shown: a software DPU moved the bytes" in page
    rows = [line.split() for line in page.splitlines() if line.startswith("  host    ")]
    assert [(row[1], row[2], row[-2:]) for row in rows] == [
        (op, size, ["software", "DPU"]) for op in ("write", "read") for size in ("64", "4")
    ]
    assert "3.87 M/s at 4 KiB" in page  # what others published
    with zipfile.ZipFile(file) as files:
        content = b"".join(files.read(name) for name in files.namelist())
    for secret in ("127.0.0.1", str(folder), found["address"], getpass.getuser() + "@"):
        assert secret.encode() not in content

    joined = other.up()
    assert joined.returncode == 0
    assert "is there already" in joined.stderr
    assert "agent: runs" in joined.stderr
    assert 'dgkit.connect("bluefield")' in joined.stdout

    os.kill(int((arm.home / ".dgkit-bluefield/pid").read_text()), signal.SIGKILL)
    lost = host.bluefield("status")
    assert lost.returncode == 4
    assert "`dgkit bluefield up` starts it again" in lost.stdout
    assert "agent: started" in host.up().stderr

    assert "1 other keys use the agent, which stays" in host.down().stderr
    left = [*stored(host.folder / "home"), *stored(host.folder / "cache")]
    assert not (host.folder / "cache/dgkit/bluefield").exists()
    assert not [name for name in left if "bluefield" in name or name.endswith(".snap")]
    assert "no BlueField is set up here" in host.down().stderr
    assert other.down().returncode == 0
    assert not list(arm.home.iterdir())


def test_an_arm_side_has_pages_of_64_kib_and_this_host_has_others(folder, wheels, pages_64k):
    server = SshServer(folder, LD_PRELOAD=str(pages_64k))
    host = Host(folder / "host", server, wheels)
    try:
        up = host.up()
        assert "pages of 64 KiB" in up.stdout
        assert "host memory: 1 MiB there and back are equal" in up.stderr
        assert host.run("-c", CONNECT).stdout.split("\n")[0] == "from the Arm side soft"
        assert host.down().returncode == 0
        assert not list(server.home.iterdir())
    finally:
        server.close()


def test_softdoca_stands_in_for_doca_and_its_trace_is_replayed(host, folder):
    up = host.bluefield(*host.up_words(), "--provider", "softdoca")
    assert "lines of the DMA sample's calls" in up.stderr
    file = folder / "report.zip"
    assert "shows it" in host.run("-c", QUICK.format(file=str(file))).stdout
    with zipfile.ZipFile(file) as files:
        first = json.loads(files.read("dma.jsonl").split(b"\n")[0])
        names = [json.loads(line).get("f") for line in files.read("dma.jsonl").splitlines()]
    assert first["softdoca"] is True
    assert "doca_task_submit" in names
    page = host.bluefield("show", file).stdout
    assert "calls of softdoca 3.3.0, replayed: 0 differences" in page
    host.down()
    assert not [name for name in stored(host.folder / "cache") if name == "dma.jsonl"]


def test_a_key_is_offered_after_a_password_and_goes_as_it_came(host, arm, monkeypatch, capsys):
    home = host.folder / "home"
    (home / ".ssh").mkdir()
    public = home / ".ssh/id_ed25519.pub"
    public.write_text("ssh-ed25519 AAAAkey+/= me@here\n")
    monkeypatch.setenv("HOME", str(home))
    known = arm.home / ".ssh/authorized_keys"
    known.parent.mkdir()
    known.write_text("ssh-rsa other")  # without a newline
    with Arm("arm", arm.ssh) as there:
        assert not there.by_password
        _offer_ssh_key(there, yes=False)
        with there._log.open("a") as log:
            log.write('Authenticated to arm ([127.0.0.1]:22) using "password".\n')
        assert there.by_password
        _offer_ssh_key(there, yes=True)
        assert f"ssh-copy-id -i {public} arm" in capsys.readouterr().err
        for answer, lines in ((False, 1), (True, 2), (True, 2)):
            monkeypatch.setattr("click.confirm", lambda text, answer=answer, **_: answer)
            _offer_ssh_key(there, yes=False)
            assert len(known.read_text().splitlines()) == lines
        assert known.read_text().splitlines()[1] == (
            f"ssh-ed25519 AAAAkey+/= dgkit-bluefield-{getpass.getuser()}@{host_name()}"
        )
        public.write_text("")  # replaced since
        assert setup.own_ssh_key() is None
        elsewhere = f"ssh-rsa its dgkit-bluefield-{getpass.getuser()}@{host_name()}0\n"
        with known.open("a") as file:
            file.write(elsewhere)  # of a host whose name is longer
        setup.down(there, print)
    assert known.read_text() == f"ssh-rsa other\n{elsewhere}"


def test_up_goes_on_after_a_link_that_was_lost_in_the_middle_of_a_step(host, arm):
    for program in ("sha256sum", "tar", "setsid"):
        arm.replace(program, CUT)
        assert "was lost in the step" in host.up().stderr
        arm.restore()
    assert "host memory: 1 MiB there and back are equal" in host.up().stderr


def test_up_goes_on_after_a_lost_link_and_ctrl_c_at_the_begin_of_each_step(host, arm):
    step, reached = 0, arm.folder / "reached"
    while True:
        arm.at_step(step := step + 1, CUT)
        up = host.up()
        if up.returncode == 0:
            break
        assert "was lost in the step" in up.stderr
        assert "it goes on from there" in up.stderr
        arm.at_step(step, f"touch {reached}; sleep 0.2")
        interrupted = host.start_up()
        until(lambda up=interrupted: reached.exists() or up.poll() is not None, "the step", 60.0)
        interrupted.send_signal(signal.SIGINT)
        said = interrupted.communicate(timeout=60)[1]
        if reached.exists():  # the step may have had more calls in the run that was cut
            assert interrupted.returncode == 130, said
            assert "Traceback" not in said
            reached.unlink()
    assert step > 5
    assert arm.steps() < step
    assert "host memory: 1 MiB there and back are equal" in up.stderr
