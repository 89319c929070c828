# SPDX-License-Identifier: Apache-2.0
"""Steps of `dgkit bluefield up`, `down` and `status`.

Each step looks at what is there and does what is missing, so that a second run goes on where the
first ended, wherever that was.
"""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import json
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

from .._version import DISTRIBUTION, __version__
from ..doctor import api as doctor
from ..doctor.diagnosis import Diagnosis
from ..errors import BluefieldError, DgkitError
from ..units import size_text
from ..wire import keys, saved
from ..wire.host_id import host_name
from .arm import FOLDER, Arm
from .card import HostView
from .pack import cache, default_folder, pack, wheels

Say = Callable[[str], None]

_OLDEST = (3, 10)  # Python, as in pyproject.toml
_CLOCK_S = 86_400  # a difference that confuses logs and certificates
_UNPACKED = 5  # bytes that a byte of a wheel becomes, with its bytecode
_SPARE = 32 << 20  # an environment and logs
_AGENT_S = 30  # until the agent has written its address
_HEARTBEAT_S = 5  # the Arm cores and the network over rshim are slow under load
TRACE = "dma.jsonl"  # of the DMA sample's DOCA calls
_PROVIDERS = ("doca", "verbs", "soft")  # from the best
_PROBE = """\
value() { printf '%s=%s\\n' "$1" "$2"; }
value machine "$(uname -m)"; value time "$(date +%s)"
value system "$(. /etc/os-release 2>/dev/null; echo "$PRETTY_NAME")"
value free "$(df -Pk "$HOME" | awk 'NR == 2 {print $4}')"
[ -w "$HOME" ] && value home "$HOME"
[ -d "$HOME/@" ] && value there yes
set -- $SSH_CONNECTION; value server "$3"
for name in python3 python3.14 python3.13 python3.12 python3.11 python3.10; do
    found="$("$name" -c '
import mmap, platform, sys, venv
print("%d.%d" % sys.version_info[:2], platform.libc_ver()[1] or "none", mmap.PAGESIZE)
' 2>/dev/null)" && value python "$found $(command -v "$name")"
done
:
""".replace("@", FOLDER)


@dataclass(frozen=True, slots=True)
class Probe:
    """The Arm side before anything is changed there.

    Attributes:
        facts: What the shell there printed, by name.
        python: Its Python's version, such as "3.10".
        program: The program of that Python.
        glibc: x of its glibc 2.x.
        page: Size of a page of memory, in bytes.
        free: Free bytes in the home folder.
        late_s: How far its clock is behind.
    """

    facts: Mapping[str, str]
    python: str
    program: str
    glibc: int
    page: int
    free: int
    late_s: float

    def describe(self) -> str:
        """Return one line about it."""
        of = self.facts
        pages = f"pages of {size_text(self.page)}"
        return (
            f"{of.get('system') or 'Linux'}, {of.get('machine')}, Python {self.python}, {pages}, "
            f"{size_text(self.free)} free"
        )


def probe(arm: Arm) -> Probe:
    """Look at the Arm side.

    Raises:
        BluefieldError: dgkit cannot be installed there; the message says what is needed.
    """
    arm.step = "look at the Arm side"
    rows = [line.partition("=") for line in arm.read(_PROBE).splitlines()]
    facts = {name: value for name, equals, value in rows if equals and name != "python"}
    found = [value.split(None, 3) for name, _, value in rows if name == "python"]
    fit = [row for row in found if tuple(map(int, row[0].split("."))) >= _OLDEST]
    if not fit:
        text = f"Python {found[0][0]}" if found else "no Python with its module venv"
        raise BluefieldError(
            f"{arm.destination} ({facts.get('system') or 'Linux'}) has {text}; dgkit needs 3.10: "
            "install it there (`sudo apt install python3-venv`), or an image with Ubuntu 22.04 or "
            "24.04 on the card"
        )
    if "home" not in facts:
        raise BluefieldError(f"{arm.destination}: its user cannot write to the home folder there")
    python, library, page, program = fit[0]
    glibc = library.removeprefix("2.")
    if not glibc.isdecimal():
        raise BluefieldError(f"{arm.destination} has no glibc: dgkit's wheels need it")
    late, free = time.time() - float(facts.get("time") or 0), int(facts.get("free") or 0) << 10
    return Probe(facts, python, program, int(glibc), int(page), free, late)


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps that `up` will take, and on what.

    Attributes:
        destination: The Arm side, for SSH.
        host: The host's view of the card.
        probe: The Arm side.
        folder: Where the wheels are or will be.
        wheels: The wheels; [] if they are still to be made.
        provider: The only provider to try; "" for the best that works.
    """

    destination: str
    host: HostView
    probe: Probe
    folder: Path
    wheels: list[Path]
    provider: str

    @property
    def needed(self) -> int:
        """Bytes that the installation needs there."""
        return _SPARE + _UNPACKED * sum(wheel.stat().st_size for wheel in self.wheels)

    def lines(self) -> list[str]:
        """Return the screen that is shown before anything is changed."""
        there, cards = self.probe, "; ".join(self.host.cards) or "none in this machine"
        if self.wheels:
            wheels = f"{len(self.wheels)} wheels are in {self.folder}"
        else:
            wheels = f"pip downloads wheels for aarch64 into {self.folder}"
        rows = [
            f"BlueField  {cards}",
            *(f"           {line}" for line in self.host.lines),
            f"Arm side   {self.destination}: {there.describe()}",
            "",
            "In this order:",
            f"  here     {wheels}",
            (
                f"  there    ~/{FOLDER}: wheels, an environment of {there.program} with dgkit "
                f"{__version__}, keys, a log"
            ),
            f"  here     key pair {saved.BLUEFIELD!r} in {keys.folder_path()}",
            f"  both     `dgkit doctor` reads what stands in the way; recordings in {cache()}",
            (
                "  there    `dgkit serve` with the best provider that works on both sides "
                f"({self.provider or ', else '.join(_PROVIDERS)}), on {there.facts.get('server')}"
            ),
            f"  here     its address in {saved.path()}, for dgkit.connect({saved.BLUEFIELD!r})",
            "  both     a first transfer: host memory, then GPU memory",
            (
                "Nothing needs root; no reboot, no flashing, no mlxconfig. `dgkit bluefield down` "
                "removes it all."
            ),
        ]
        if abs(there.late_s) > _CLOCK_S:
            then = time.strftime("%Y-%m-%d", time.gmtime(time.time() - there.late_s))
            now = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
            rows.append(
                f"The clock there shows {then}, and so will logs: `ssh {self.destination} sudo "
                f"date -u -s '{now}'` sets it."
            )
        return rows


def plan(arm: Arm, host: HostView, *, folder: Path | None = None, provider: str = "") -> Plan:
    """Return what `up` would do.

    Args:
        arm: Connection to the Arm side.
        host: The host's view of the card.
        folder: Folder that `pack` has filled; None: one in the user's cache.
        provider: The only provider to try; "" for the best that works.

    Raises:
        BluefieldError: dgkit cannot be installed there, or `folder` has no wheels.
    """
    found = probe(arm)
    where = folder or default_folder(found.python, found.glibc)
    packed = wheels(where)
    command = f"`dgkit bluefield pack FOLDER --python {found.python} --glibc 2.{found.glibc}`"
    if folder is not None and not packed:
        raise BluefieldError(f"{folder} lacks wheels of dgkit {__version__} and pip: {command}")
    if not packed and found.facts.get("machine") != "aarch64":
        text = f"{arm.destination} is {found.facts.get('machine')}, not aarch64"
        raise BluefieldError(f"{text}: --wheels FOLDER names the wheels for it")
    plan = Plan(arm.destination, host, found, where, packed, provider)
    if found.free < plan.needed and "there" not in found.facts:
        raise BluefieldError(
            f"{arm.destination} has {size_text(found.free)} free in {found.facts['home']}; dgkit "
            f"needs {size_text(plan.needed)}: free some, then run this again"
        )
    return plan


def up(arm: Arm, planned: Plan, say: Say) -> dict[str, Any]:
    """Do what the plan says; return what `saved.load()` returns from now on.

    Args:
        arm: Connection to the Arm side.
        say: Called with a line for each step.

    Raises:
        BluefieldError: A step failed; the message says which, and how to go on.
    """
    arm.step = "wheels"
    found = planned.wheels
    if not found:
        say(f"wheels: downloading to {planned.folder}")
        found = pack(planned.folder, python=planned.probe.python, glibc=planned.probe.glibc)
    _install_wheels(arm, planned, found, say)
    _exchange_keys(arm, say)
    snapshots = _record(arm, cache(), say)
    arm.step = "provider"
    info = json.loads(arm.run("dgkit info --json"))
    provider, why = _provider(info, planned)
    doca = {kind: library.get("devices", []) for kind, library in info.get("doca", {}).items()}
    asked: dict[str, Any] = {}
    if doca.get("doca"):
        arm.step = "questions"
        asked = json.loads(arm.run("venv/bin/python -m dgkit.doca.guesses"))
        say(f"questions: {len(asked)} that no source answers, asked of DOCA and of softdoca")
    kind = "softdoca" if provider == "softdoca" else "doca"
    (cache() / TRACE).unlink(missing_ok=True)
    if doca.get(kind):
        say(f"trace: {_record_sample(arm, kind, cache() / TRACE)}")
    address = _serve(arm, planned, provider, _digest(found), say)
    for line in why:
        say(f"          {line}")
    values = {
        "arm": arm.destination, "ssh": arm.ssh, "address": address, "provider": provider,
        "why": why, "version": __version__, "cards": list(planned.host.cards), "doca": doca,
        "guesses": asked,
    }  # fmt: skip
    saved.store(values)
    return values | {"snapshots": snapshots}


def own_ssh_key() -> tuple[Path, str] | None:
    """Return the file and the type and text of this user's public key for SSH, if there is one."""
    for kind in ("ed25519", "ecdsa", "rsa"):
        path = Path.home() / f".ssh/id_{kind}.pub"
        with contextlib.suppress(OSError, ValueError):
            kind, key, *_ = path.read_text("utf-8").split()
            return path, f"{kind} {key}"
    return None


def _mark() -> str:
    """Return the comment of a key that install_ssh_key() has added, from this user and host."""
    return f"dgkit-bluefield-{getpass.getuser()}@{host_name()}"


def install_ssh_key(arm: Arm, key: str) -> None:
    """Let this user log in at the Arm side with a key; `down` removes it again."""
    arm.step = "SSH key"
    arm.run(
        f"""mkdir -p ~/.ssh && cd ~/.ssh && touch authorized_keys || exit
        grep -qF {shlex.quote(key)} authorized_keys && exit
        [ -z "$(tail -c 1 authorized_keys)" ] || echo >> authorized_keys
        echo {shlex.quote(f"{key} {_mark()}")} >> authorized_keys"""
    )


def _digest(found: list[Path]) -> str:
    content = [(wheel.name, hashlib.sha256(wheel.read_bytes()).hexdigest()) for wheel in found]
    return hashlib.sha256(repr(content).encode()).hexdigest()[:16]


def _install_wheels(arm: Arm, planned: Plan, found: list[Path], say: Say) -> None:
    """Install the wheels on the Arm side, unless venv/installed has the digest of these."""
    arm.step = "install"
    digest = _digest(found)
    if arm.run("cat venv/installed 2>/dev/null || :").strip() == digest:
        say(f"install: dgkit {__version__} is there already")
        return
    sums = arm.run("mkdir -p wheels && cd wheels && sha256sum -- *.whl 2>/dev/null || :")
    there = {name: sum_ for sum_, _, name in (line.partition("  ") for line in sums.split("\n"))}
    missing = [
        wheel for wheel in found
        if there.get(wheel.name) != hashlib.sha256(wheel.read_bytes()).hexdigest()
    ]  # fmt: skip
    size = sum(wheel.stat().st_size for wheel in missing)
    say(f"install: copying {len(missing)} of {len(found)} wheels, {size_text(size)}")
    if missing:
        arm.send(missing, "wheels")
    # Without ensurepip, which Debian and Ubuntu package apart: pip runs from its wheel.
    arm.run(
        f"""rm -rf venv cache && {shlex.quote(planned.probe.program)} -m venv --without-pip venv &&
        HOME="$PWD/cache" venv/bin/python "$(echo wheels/pip-*.whl)/pip" install --quiet \\
            --disable-pip-version-check --no-compile --no-cache-dir --no-index \\
            --find-links wheels {DISTRIBUTION}=={__version__} >&2 &&
        dgkit --version >/dev/null && echo {digest} > venv/installed"""
    )
    say(f"install: dgkit {__version__} in ~/{FOLDER}/venv")


def _exchange_keys(arm: Arm, say: Say) -> None:
    """Make a key pair on each side, and have the Arm side allow this one."""
    arm.step = "keys"
    with contextlib.suppress(FileExistsError):
        keys.make(saved.BLUEFIELD)
    own = keys.load(saved.BLUEFIELD).public
    name = shlex.quote(f"{getpass.getuser()} on {host_name()}"[:64])
    arm.run(
        f"""[ -e config/dgkit/keys/{saved.BLUEFIELD}.secret ] ||
            dgkit keys make {saved.BLUEFIELD} >/dev/null
        dgkit keys allow {own} --name {name}"""
    )
    say("keys: each side knows the other's")


def _record(arm: Arm, folder: Path, say: Say) -> tuple[Path, Path]:
    """Have the doctor read both sides; return the two recordings."""
    arm.step, word = "doctor", token_hex(16)
    folder.mkdir(parents=True, exist_ok=True)
    host, there = folder / "host.snap", folder / "dpu.snap"
    for path in (host, there):
        path.unlink(missing_ok=True)
    say("doctor: reading both sides")
    text = arm.run(
        f"rm -f doctor.snap; dgkit doctor --record doctor.snap --word {word} >/dev/null && "
        "cat doctor.snap && rm -f doctor.snap"
    )
    there.write_text(text, encoding="utf-8")
    doctor.record(host, word=word)
    return host, there


def _record_sample(arm: Arm, kind: str, trace: Path) -> str:
    """Record the DOCA calls of dgkit's DMA sample there; return what there is now.

    A sample that fails has a trace, too: the one that is worth most.
    """
    arm.step = "trace"
    text = arm.run(
        f"""rm -f {TRACE}
        said=$(timeout -k 5 60 venv/bin/python -m dgkit.cli softdoca record -o {TRACE} -- \
            venv/bin/python -m dgkit.doca.local_copy {kind} 2>&1)
        [ -s {TRACE} ] && cat {TRACE} || printf %s "$said" | tail -n 1
        rm -f {TRACE}"""
    )
    if not text.startswith("{"):
        return f"not recorded: {text.strip()}"
    trace.write_text(text, encoding="utf-8")
    return f"{text.count(chr(10)) - 1} lines of the DMA sample's calls"


def diagnoses(snapshots: tuple[Path, Path]) -> list[Diagnosis]:
    """Return what the doctor says of a host and its DPU, or of each if they are no pair."""
    try:
        return [doctor.examine(snapshots=list(snapshots))]
    except ValueError:  # both are hosts
        return [doctor.examine(snapshots=path) for path in snapshots]


def _provider(info: Mapping[str, Any], planned: Plan) -> tuple[str, list[str]]:
    """Return the best provider that both sides can use, and why each better one is not."""
    from ..dma import providers

    here = {found.name: found for found in providers()}
    there = {row["name"]: row for row in info["providers"]}
    why: list[str] = []
    for name in [planned.provider] if planned.provider else _PROVIDERS:
        reasons = {} if here[name].usable else {"here": here[name].why}
        if not there[name]["usable"]:
            reasons["there"] = there[name]["why"]
        if not reasons:
            return name, why
        texts = set(reasons.values())
        where = "on both sides, " if len(reasons) == 2 and len(texts) == 1 else ""
        rows = texts if where else {f"{side}: {text}" for side, text in reasons.items()}
        why.append(f"not {name}: {where}{'; '.join(sorted(rows))}")
    raise BluefieldError(f"no provider works on both sides: {'. '.join(why)}")


def _serve(arm: Arm, planned: Plan, provider: str, digest: str, say: Say) -> str:
    """Start the agent, unless it runs as wanted; return its address."""
    arm.step = "agent"
    server = planned.probe.facts.get("server") or "0.0.0.0"
    listen = f"tcp://{f'[{server}]' if ':' in server else server}:0"
    command = f"serve --address {listen} --keys {saved.BLUEFIELD} --provider {provider}"
    command += f" --heartbeat {_HEARTBEAT_S}"
    wanted = f"{digest} {command}"
    text = arm.run(
        f"""{_RUNNING}
        if running && [ "$(cat wanted 2>/dev/null)" = {shlex.quote(wanted)} ] && [ -s address ]
        then echo runs; cat address; exit; fi
        stop && rm -f address && : > log
        setsid venv/bin/python -m dgkit.cli {command} > address 2> log < /dev/null 8<&- &
        echo $! > pid
        i=0
        while [ ! -s address ] && kill -0 "$(cat pid)" 2>/dev/null && [ $i -lt {10 * _AGENT_S} ]
        do i=$((i + 1)); sleep 0.1; done
        [ -s address ] || {{ tail -n 3 log >&2; stop; exit 1; }}
        printf %s {shlex.quote(wanted)} > wanted
        echo started; cat address"""
    )
    *_, state, address = text.split()
    say(f"agent: {state} with the provider {provider}")
    return address


# The agent's pid may be another program's after a reboot.
_RUNNING = """\
running() {
    [ -s pid ] && tr '\\0' ' ' 2>/dev/null < "/proc/$(cat pid)/cmdline" | grep -q 'dgkit.cli serve'
}
stop() {
    running || return 0
    kill "$(cat pid)"; i=0
    while running && [ $i -lt 100 ]; do i=$((i + 1)); sleep 0.1; done
    ! running || kill -9 "$(cat pid)"
}
"""


def down(arm: Arm, say: Say, *, everybody: bool = False) -> None:
    """Remove what `up` has put on both sides.

    Args:
        arm: Connection to the Arm side.
        say: Called with a line for each step.
        everybody: Remove it also if others use it.
    """
    arm.step = "down"
    own = ""
    with contextlib.suppress(DgkitError, ValueError, OSError):
        own = keys.load(saved.BLUEFIELD).public
    others = "0"
    mark = shlex.quote(f" {_mark()}")
    arm.read(
        f"""cd ~/.ssh 2>/dev/null && grep -qF {mark} authorized_keys || exit 0
        kept=$(while IFS= read -r line || [ -n "$line" ]; do
            case $line in (*{mark}) ;; (*) printf '%s\\n' "$line" ;; esac
        done < authorized_keys; echo .) && printf %s "${{kept%.}}" > authorized_keys"""
    )
    if arm.read(f'[ ! -d "$HOME/{FOLDER}" ] || echo there').strip():
        others = arm.run(
            f"""{_RUNNING}
            allowed=config/dgkit/keys/allowed
            [ ! -e $allowed ] || sed -i '/^{own or "none"}/d' $allowed
            others=$(grep -c . $allowed 2>/dev/null)
            echo "${{others:-0}}"
            [ "${{others:-0}}" = 0 ] || {str(not everybody).lower()} || others=0
            [ "${{others:-0}}" = 0 ] || exit 0
            stop; rm -rf "$HOME/{FOLDER}" """
        ).strip()
    if others != "0" and not everybody:
        say(f"there: {others} other keys use the agent, which stays (--everybody removes it)")
    else:
        say(f"there: the agent has ended, ~/{FOLDER} is gone")
    forget(say)


def forget(say: Say) -> None:
    """Remove what `up` has put on this side, but not the wheels."""
    for path in (saved.path(), *(cache() / name for name in ("host.snap", "dpu.snap", TRACE))):
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # it has wheels, or was never made
        cache().rmdir()
    keys.discard(saved.BLUEFIELD)
    say(f"here: {saved.path().name} and the key pair {saved.BLUEFIELD!r} are gone")


def status() -> dict[str, Any]:
    """Return what is set up: what `up` stored, and whether its agent answers."""
    found = saved.load()
    if not found:
        return {"set_up": False}
    from ..session.connect import inspect

    state: dict[str, Any] = {"set_up": True, **found, "answers": True, "why_not": ""}
    try:
        welcome, counters = inspect(saved.BLUEFIELD)
        state |= {"agent_version": welcome.package, "counters": counters}
    except DgkitError as error:
        state |= {"answers": False, "why_not": str(error)}
    return state
