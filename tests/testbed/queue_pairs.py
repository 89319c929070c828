# SPDX-License-Identifier: Apache-2.0
"""Runs in the host guest of the stage `testbed`: queue pairs that are connected by hand.

The peer is pyverbs, in a process of the distribution's Python (pyverbs_peer.py), or another process
of dgkit. Exits with 1 if a check fails.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from in_guest import check, run

import dgkit
from dgkit import errors
from dgkit.dma import QueuePair, RdmaMemory

SIZE = 4096
SUCCESS, REM_ACCESS_ERR = 0, 10  # enum ibv_wc_status
PEER = Path(__file__).with_name("pyverbs_peer.py")


class Asked:
    """Process that answers requests in JSON."""

    def __init__(self, *command: str) -> None:
        own = {key: value for key, value in os.environ.items() if key != "PYTHONPYCACHEPREFIX"}
        self.process = subprocess.Popen(  # the distribution's .pyc files are beside their sources
            command, env=own if command[0].startswith("/usr/bin/") else None,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def __call__(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Send a request and return the reply."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        check(line, f"the peer ended at {do}")
        return json.loads(line)  # type: ignore[no-any-return]

    def end(self) -> None:
        """End the process; it must have had no error."""
        assert self.process.stdin
        self.process.stdin.close()
        check(self.process.wait(60) == 0, f"the peer ended with {self.process.returncode}")


def numbers(made: QueuePair) -> dict[str, Any]:
    """Return what the other side's `connect` takes."""
    own = made.address
    return {
        "qpn": own.qpn, "psn": own.psn, "gid": own.gid_text, "mtu": own.mtu,
        "max_reads": own.max_reads,
    }  # fmt: skip


class Pair:
    """Queue pair of this process, connected to one of another."""

    def __init__(self, device: dgkit.Device, queue: dgkit.Queue, peer: Asked) -> None:
        self.peer, self.queue = peer, queue
        self.qp = queue.queue_pair()
        self.local = device.register(np.zeros(SIZE, dtype=np.uint8), access="rw")
        self.bytes = self.local.memory
        self.shared = np.zeros(SIZE, dtype=np.uint8)
        self.region = device.register(self.shared, access="rw")
        theirs = peer("address")
        peer("connect", **numbers(self.qp))
        self.qp.connect(**theirs["place"])
        self.remote = self.qp.import_memory(**theirs["memory"])

    def moves(self, op: str, memory: RdmaMemory, size: int = SIZE) -> int:
        """Have the peer read or write this side's memory, and return the status."""
        status = self.peer("move", op=op, address=memory.address, rkey=memory.rkey, size=size)
        return int(status["status"])


@contextlib.contextmanager
def connected(*command: str) -> Iterator[Pair]:
    """Yield a queue pair that is connected to the process of a command."""
    peer = Asked(*command)
    with dgkit.Device("verbs") as device, device.queue(depth=64) as queue:
        yield Pair(device, queue, peer)
    peer.end()


def pyverbs() -> contextlib.AbstractContextManager[Pair]:
    """Return a queue pair that is connected to one of pyverbs."""
    return connected("/usr/bin/python3", "-B", str(PEER), "rxe0")


def expect(kind: type[Exception], text: str, call: Any) -> None:
    """Call; it must raise that class with this text."""
    try:
        call()
    except kind as error:
        check(text in str(error), f"{text!r} is not in {error}")
        check(type(error) is kind, f"{type(error)}: {error}")
    else:
        raise AssertionError(f"no {kind.__name__}")


def dgkit_writes_and_reads_the_memory_of_pyverbs() -> None:
    """Single operations, a batch and a prepared one."""
    with pyverbs() as pair:
        check("queue pair" in repr(pair.remote), repr(pair.remote))
        data = os.urandom(SIZE)
        pair.bytes[:] = np.frombuffer(data, dtype=np.uint8)
        pair.queue.write(pair.local, pair.remote, size=SIZE).wait(timeout=20)
        check(pair.peer("show", buffer="shared", size=SIZE)["data"] == data.hex(), "a write")
        pair.peer("fill", buffer="shared", data=os.urandom(SIZE).hex())
        pair.queue.read(pair.local, pair.remote, size=SIZE).wait(timeout=20)
        shown = pair.peer("show", buffer="shared", size=SIZE)["data"]
        check(pair.bytes.tobytes().hex() == shown, "a read")
        batch = np.zeros(64, dtype=dgkit.WR_DTYPE)
        batch["local"], batch["remote"], batch["size"] = pair.local.id, pair.remote.id, 8
        batch["local_offset"] = batch["remote_offset"] = np.arange(64) * 8
        batch["op"] = np.arange(64) % 2
        with pair.queue.prepare(batch) as prepared:
            prepared.run()
            completions = prepared.run()
        check(len(completions) == 64, f"{completions}")


def pyverbs_writes_and_reads_the_memory_of_dgkit_until_it_is_closed() -> None:
    """After close() the adapter refuses it, and this side learns of it at its next operation."""
    with pyverbs() as pair:
        memory = pair.qp.grant(pair.region)
        data = os.urandom(SIZE)
        pair.peer("fill", buffer="own", data=data.hex())
        check(pair.moves("write", memory) == SUCCESS, "a write of pyverbs")
        check(pair.shared.tobytes() == data, "the bytes that pyverbs wrote differ")
        pair.shared[:] = 7
        check(pair.moves("read", memory) == SUCCESS, "a read of pyverbs")
        check(pair.peer("show", buffer="own", size=SIZE)["data"] == "07" * SIZE, "bytes read")
        pair.region.close()
        pair.region.close()
        check(pair.moves("write", memory) == REM_ACCESS_ERR, "a write after the close")
        check(bool((pair.shared == 7).all()), "a closed region was written")


def a_grant_to_be_read_refuses_a_write() -> None:
    """By the adapter: the rkey has only that right."""
    with pyverbs() as pair:
        memory = pair.qp.grant(pair.region, access="r")
        check(str(memory.access) == "r", f"{memory}")
        check(pair.moves("read", memory) == SUCCESS, "a read")
        check(pair.moves("write", memory) == REM_ACCESS_ERR, "a write to a region to be read")


def an_rkey_is_of_no_use_to_the_peer_of_another_queue_pair() -> None:
    """Each has a protection domain."""
    with pyverbs() as first, pyverbs() as second:
        memory = first.qp.grant(first.region)
        check(second.moves("read", memory) == REM_ACCESS_ERR, "another peer read it")
        check(first.moves("read", memory) == SUCCESS, "its own peer")


def a_refused_operation_ends_the_queue_pair_and_says_how_to_go_on() -> None:
    """The status of the refused one, of those behind it, and the error of the next ones."""
    with pyverbs() as pair:
        theirs = pair.peer("address")["memory"]
        wrong = pair.qp.import_memory(**{**theirs, "rkey": theirs["rkey"] ^ 0xFF00})
        before = pair.queue.write(pair.local, pair.remote, size=64)
        refused = pair.queue.write(pair.local, wrong, size=64)
        behind = pair.queue.write(pair.local, pair.remote, size=64)
        before.wait(timeout=20)
        expect(errors.TransferError, "REMOTE_ACCESS_ERROR", lambda: refused.wait(timeout=20))
        expect(errors.TransferError, "FLUSHED", lambda: behind.wait(timeout=20))
        expect(
            errors.PeerLost,
            "make another one on both sides",
            lambda: pair.queue.write(pair.local, pair.remote, size=64),
        )
        check(pair.remote.lost, "its imports are not lost")


def a_peer_that_is_gone_is_lost() -> None:
    """The adapter gives up after its retries."""
    with pyverbs() as pair:
        pair.peer.end()
        write = pair.queue.write(pair.local, pair.remote, size=64)
        expect(errors.TransferError, "PEER_LOST", lambda: write.wait(timeout=30))


def two_processes_of_dgkit_are_joined_by_hand() -> None:
    """The other one runs this file with the argument `peer`."""
    with connected(sys.executable, "-B", __file__, "peer") as pair:
        data = os.urandom(SIZE)
        pair.bytes[:] = np.frombuffer(data, dtype=np.uint8)
        pair.queue.write(pair.local, pair.remote, size=SIZE).wait(timeout=20)
        check(pair.peer("show", size=SIZE)["data"] == data.hex(), "a write")
        memory = pair.qp.grant(pair.region)
        pair.shared[:] = 9
        check(pair.moves("read", memory) == SUCCESS, "the peer's read")
        check(pair.peer("show", size=SIZE)["data"] == "09" * SIZE, "the bytes that it read")


def wrong_numbers_are_named_before_anything_changes() -> None:
    """Each is refused with its value and the limit; then the queue pair is connected."""
    with dgkit.Device("verbs", rdma="rxe0") as device, device.queue(depth=16) as queue:
        made, other = queue.queue_pair(), queue.queue_pair()
        local = device.register(np.zeros(64, dtype=np.uint8), access="rw")
        good = numbers(other)
        for kind, text, change in (
            (errors.BoundsError, "qpn is 16777216; it has 24 bits", {"qpn": 1 << 24}),
            (errors.BoundsError, "psn is 16777216; it has 24 bits", {"psn": 1 << 24}),
            (errors.BoundsError, "lid is 65536; it has 16 bits", {"lid": 1 << 16}),
            (ValueError, "mtu is 300 bytes; it is one of 256", {"mtu": 300}),
            (errors.BoundsError, "the limit is that of port 1, 1024", {"mtu": 4096}),
            (ValueError, "gid is 'nowhere'; it must be 16 bytes", {"gid": "nowhere"}),
            (ValueError, "gid is b'short'; it must be 16 bytes", {"gid": b"short"}),
            (ValueError, "gid is ::; it must be the address", {"gid": bytes(16)}),
            (errors.Unsupported, "192.0.2.1 is not on the network", {"gid": "::ffff:192.0.2.1"}),
            (errors.Unsupported, "one is an IPv4 address", {"gid": "2001:db8::1"}),
            (errors.PeerLost, "10.9.0.77 does not answer", {"gid": "::ffff:10.9.0.77"}),
        ):  # fmt: skip
            expect(kind, text, lambda change=change: made.connect(**{**good, **change}))
        memory = {"address": 4096, "size": 64, "rkey": 1}
        for text, change in (
            ("rkey is 4294967296; it has 32 bits", {"rkey": 1 << 32}),
            ("size is 0; it must be 1 or more", {"size": 0}),
            ("+ size 4096 exceeds 2^64", {"address": (1 << 64) - 64, "size": 4096}),
        ):
            expect(
                errors.BoundsError,
                text,
                lambda change=change: made.import_memory(**{**memory, **change}),
            )
        remote = made.import_memory(**memory)
        expect(ValueError, "is not connected", lambda: queue.write(local, remote, size=8))
        made.connect(**good)
        other.connect(**numbers(made))
        expect(
            ValueError,
            f"is connected to queue pair {other.address.qpn}",
            lambda: made.connect(**good),
        )
        with device.queue(depth=16) as another:
            expect(ValueError, "of another queue", lambda: another.write(local, remote, size=8))
        expect(ValueError, "cannot be granted", lambda: made.grant(remote))
        granted = other.grant(local)
        queue.write(local, made.import_memory(**asdict(granted)), size=8).wait(timeout=20)
        made.close()
        made.close()
        expect(errors.ClosedError, "closed", lambda: queue.write(local, remote, size=8))
        expect(errors.ClosedError, "closed", lambda: made.connect(**good))


def answer() -> None:
    """Be the peer: a queue pair of dgkit, with the requests of pyverbs_peer.py that are used."""
    with dgkit.Device("verbs") as device, device.queue(depth=16) as queue:
        made, shared = queue.queue_pair(), np.zeros(SIZE, dtype=np.uint8)
        region = device.register(shared, access="rw")
        for line in sys.stdin:
            request = json.loads(line)
            do, reply = request.pop("do"), {}
            if do == "address":
                memory = made.grant(region)
                reply = {"place": numbers(made), "memory": asdict(memory) | {"access": "rw"}}
            elif do == "connect":
                made.connect(**request)
            elif do == "move":
                op = getattr(queue, request.pop("op"))
                moved = op(region, made.import_memory(**request), size=request["size"])
                reply = {"status": moved.wait(timeout=20).status}
            else:
                reply = {"data": shared.tobytes()[: request["size"]].hex()}
            print(json.dumps(reply), flush=True)


CHECKS = (
    dgkit_writes_and_reads_the_memory_of_pyverbs,
    pyverbs_writes_and_reads_the_memory_of_dgkit_until_it_is_closed,
    a_grant_to_be_read_refuses_a_write,
    an_rkey_is_of_no_use_to_the_peer_of_another_queue_pair,
    a_refused_operation_ends_the_queue_pair_and_says_how_to_go_on,
    a_peer_that_is_gone_is_lost,
    two_processes_of_dgkit_are_joined_by_hand,
    wrong_numbers_are_named_before_anything_changes,
)


def main() -> int:
    """Run everything, or be the peer; 1 if something failed."""
    if sys.argv[1:] == ["peer"]:
        answer()
        return 0
    ok = [run(each.__name__, each) for each in CHECKS]
    return 0 if all(ok) else 1


if __name__ == "__main__":
    sys.exit(main())
