# SPDX-License-Identifier: Apache-2.0
"""A network namespace with a program that has the other end of a TAP device. Run as a script in it:

    unshare --map-root-user --net python ethernet.py ping COUNT PROGRAM...

It starts the program with SOFTDOCA_NET=tap:dg0, configures the interface once the program says that
it is ready, does what the first word says, and prints as JSON what it saw and how the program ends:

    ping      sends COUNT echo requests to 10.0.0.2, and compares the answers with a capture
    datagrams sends COUNT UDP datagrams to all, and adds up their bytes
    frames    presses Enter, and captures COUNT frames of the type 0x88b5
    damaged   sends COUNT damaged frames of each layer, runts and jumbo frames among them, then an
              echo request

`run` does so from a test.
"""

import contextlib
import fcntl
import json
import os
import random
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

INTERFACE, HOST, GPU = "dg0", "10.0.0.1", "10.0.0.2"
_WAIT = 20.0  # seconds for anything to happen
_WINDOW = 32  # requests without an answer
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _SIOCSIFADDR, _SIOCSIFNETMASK = 0x8913, 0x8914, 0x8916, 0x891C
_IFF_UP = 1
_SIOCSIFMTU = 0x8922
_SO_TIMESTAMPNS = 35
_ETHERNET = bytes([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 9])  # destination and source
_TUNSETIFF, _IFF_TAP = 0x400454CA, 2


def in_namespace(*command: object) -> list[str]:
    """Return the command that runs another one in a network namespace of its own."""
    user = [] if os.geteuid() == 0 and _may_unshare() else ["--map-root-user"]
    return ["unshare", *user, "--net", *map(str, command)]


def _may_unshare() -> bool:
    return subprocess.run(["unshare", "--net", "true"], check=False).returncode == 0


def has_network() -> bool:
    """Return whether there is a network namespace, and a TAP device in it."""
    probe = in_namespace(sys.executable, __file__, "probe")
    return subprocess.run(probe, check=False, capture_output=True).returncode == 0


def _probe() -> None:
    with open("/dev/net/tun", "r+b", buffering=0) as tun:  # noqa: PTH123 - a device
        fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH22x", INTERFACE.encode(), _IFF_TAP))


def run(
    kind: str, count: int, program: Path, *arguments: object, env: dict[str, str],
    timeout: float = 120,
) -> dict[str, object]:  # fmt: skip
    """Run the script in a namespace; return what it prints. The program ends with it."""
    command = in_namespace(sys.executable, __file__, kind, count, program, *arguments)
    assert shutil.which("unshare"), "unshare is not here: apt install util-linux"
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def _set(request: int, name: str, *fields: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, request, struct.pack("16s16s", name.encode(), b"".join(fields)))


def _address(text: str) -> bytes:
    return struct.pack("HH4s", socket.AF_INET, 0, socket.inet_aton(text))


def bring_up(name: str) -> None:
    """Bring an interface up once it is there."""
    end = time.monotonic() + _WAIT
    while name not in (n for _, n in socket.if_nameindex()):
        assert time.monotonic() < end, f"{name} does not appear"
        time.sleep(0.01)
    _set(_SIOCSIFFLAGS, name, struct.pack("H", _IFF_UP))


def configure(name: str, address: str) -> None:
    """Bring an interface up, and give it its address."""
    bring_up(name)
    _set(_SIOCSIFADDR, name, _address(address))
    _set(_SIOCSIFNETMASK, name, _address("255.255.255.0"))


def checksum(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071)."""
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _payload(number: int) -> bytes:
    return bytes((number + i) & 0xFF for i in range(8 + number % 1400))


def _request(number: int) -> bytes:
    head = struct.pack("!BBHHH", 8, 0, 0, 0xD6, number)
    data = head + _payload(number)
    return data[:2] + struct.pack("!H", checksum(data)) + data[4:]


@contextlib.contextmanager
def capture(name: str) -> Iterator[list[bytes]]:
    """Capture the frames of an interface; the list is complete when the context ends."""
    frames: list[bytes] = []
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as s:
        s.setsockopt(socket.SOL_SOCKET, 33, 1 << 26)  # SO_RCVBUFFORCE
        s.bind((name, 0))
        yield frames
        s.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                frames.append(s.recv(65536))


def ping(count: int) -> int:
    """Send echo requests, with at most _WINDOW of them unanswered; return the right answers."""
    right = sent = 0
    seen: set[int] = set()
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as s:
        s.settimeout(_WAIT)
        while len(seen) < count:
            while sent < count and sent - len(seen) < _WINDOW:
                s.sendto(_request(sent), (GPU, 0))
                sent += 1
            packet = s.recv(65536)
            data = packet[(packet[0] & 15) * 4 :]
            kind, code, _, ident, number = struct.unpack("!BBHHH", data[:8])
            if (kind, code, ident) == (0, 0, 0xD6) and number not in seen:
                seen.add(number)
                right += checksum(data) == 0 and data[8:] == _payload(number)
    return right


def echoes(frames: list[bytes]) -> dict[str, list[int]]:
    """Return the numbers of echo requests and replies in a capture, in order, if they are right."""
    found: dict[str, list[int]] = {"requests": [], "replies": [], "wrong": []}
    for frame in frames:
        if frame[12:14] != b"\x08\x00" or frame[23] != socket.IPPROTO_ICMP:
            continue
        data = frame[34:]
        number = struct.unpack("!H", data[6:8])[0]
        right = checksum(frame[14:34]) == 0 == checksum(data) and data[8:] == _payload(number)
        kind = {8: "requests", 0: "replies"}.get(data[0], "wrong")
        found[kind if right else "wrong"].append(number)
    return found


def _pinged(count: int, _: "subprocess.Popen[str]") -> dict[str, object]:
    with capture(INTERFACE) as frames:
        right = ping(count)
    arps = sum(frame[12:14] == b"\x08\x06" for frame in frames)
    return {"right": right, "arps": arps, **echoes(frames)}


def _datagrams(count: int, _: "subprocess.Popen[str]") -> dict[str, object]:
    """Send datagrams to the broadcast address, which needs no ARP; wait after each 100."""
    total = 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        for number in range(count):
            s.sendto(_payload(number), ("10.0.0.255", 9))
            total += sum(_payload(number))
            if number % 100 == 99:
                time.sleep(0.01)
    return {"sum": total}


def _frames(count: int, process: "subprocess.Popen[str]") -> dict[str, object]:
    """Capture frames with their times; return their texts, and the times in ns since the first."""
    frames: list[str] = []
    times: list[int] = []
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88B5)) as s:
        s.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        s.bind((INTERFACE, 0x88B5))
        s.settimeout(_WAIT)
        process.stdin.write("\n")
        process.stdin.flush()
        while len(frames) < count:
            frame, extra, _, _ = s.recvmsg(65536, 64)
            frames.append(frame.hex())
            seconds, ns = struct.unpack("qq", extra[0][2])
            times.append(seconds * 10**9 + ns)
    return {"frames": frames, "times": [t - times[0] for t in times]}


def _datagram(protocol: int, data: bytes, chance: random.Random) -> bytes:
    """Return a frame of IPv4 for the GPU."""
    source, size = f"10.0.0.{chance.randrange(3, 255)}", 20 + len(data)
    head = struct.pack("!BBHHHBBH", 0x45, 0, size, 1, 0, 64, protocol, 0)
    head += socket.inet_aton(source) + socket.inet_aton(GPU)
    head = head[:10] + struct.pack("!H", checksum(head)) + head[12:]
    return _ETHERNET + b"\x08\x00" + head + data


def _damaged_frame(chance: random.Random) -> bytes:
    arp = struct.pack("!HHBBH", 1, 0x800, 6, 4, 1) + bytes(6) + socket.inet_aton(HOST) + bytes(6)
    frame = chance.choice(
        [
            _ETHERNET + b"\x08\x06" + arp + socket.inet_aton(GPU),
            _datagram(1, _request(chance.getrandbits(16)), chance),
            _datagram(17, struct.pack("!HHHH", 9, 9, 8, 0), chance),
            _ETHERNET + b"\x86\xdd" + b"\x60" + chance.randbytes(60),
            _ETHERNET + b"\x81\x00" + chance.randbytes(40),
        ]
    )
    kind = chance.randrange(4)
    if kind == 0:
        return frame[: chance.randrange(14, len(frame))]
    if kind == 1:
        return frame + chance.randbytes(chance.choice([1, 60, 1400, 6000]))
    damaged = bytearray(frame)
    for _ in range(chance.choice([0, 1, 2, 8])):
        damaged[chance.randrange(12, len(damaged))] = chance.getrandbits(8)
    return bytes(damaged)


def _damaged(count: int, _: "subprocess.Popen[str]") -> dict[str, object]:
    chance = random.Random(int(os.environ.get("DGKIT_SEED", "35")))
    _set(_SIOCSIFMTU, INTERFACE, struct.pack("I", 9000))
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as s:
        s.settimeout(_WAIT)
        s.bind((INTERFACE, 0))
        for number in range(count):
            s.send(_damaged_frame(chance))
            if number % 64 == 63:
                time.sleep(0.001)
    return {"right": ping(1)}


_KINDS = {"ping": _pinged, "datagrams": _datagrams, "frames": _frames, "damaged": _damaged}


def main(kind: str, count: int, program: list[str]) -> None:
    """Do what the module says."""
    env = os.environ | {"SOFTDOCA_NET": f"tap:{INTERFACE}", "SOFTDOCA_LOG": "info"}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", *program],
        env=env, text=True, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        try:
            said = ""
            while f"{Path(program[0]).name}: " not in said:
                line = process.stdout.readline()
                assert line, said
                said += line
            configure(INTERFACE, HOST)
            result = _KINDS[kind](count, process)
            if kind in {"ping", "damaged"}:
                process.terminate()
            said += process.communicate(timeout=_WAIT)[0]
        finally:
            process.kill()
    print(json.dumps({"said": said, "code": process.returncode, **result}))


if __name__ == "__main__" and sys.argv[1] == "probe":
    _probe()
elif __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
