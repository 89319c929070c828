# SPDX-License-Identifier: Apache-2.0
"""DEVX: commands in the adapter's own format; entries and doorbells that the program writes."""

import subprocess
from pathlib import Path

import pytest
from support.fake_cuda.build import build
from support.processes import cli

ROOT = Path(__file__).parents[2]
# The kernel refuses with an errno, the adapter with a status and the first bit of the wrong field.
REFUSED = """\
another opcode than the method's: Invalid argument
CREATE_MKEY: Operation not supported
an unknown opcode: Invalid argument
8 bytes: Invalid argument
an answer at address 8: Bad address
capabilities of an unknown kind: Remote I/O error, status 0x3, syndrome 0xd6000030
capabilities: done
RC 1, port type 1, WQEs of 1008 bytes
a short CREATE_CQ: Remote I/O error, status 0x50, syndrome 0xd6000000
a CQ of 2^31: Remote I/O error, status 0x3, syndrome 0xd60000e3
a CQ beyond its umem: Remote I/O error, status 0x3, syndrome 0xd6000280
a CQ in no umem: Remote I/O error, status 0x5, syndrome 0xd60002c0
a CQ at byte 4: Remote I/O error, status 0x3, syndrome 0xd6000280
a CQ without UAR: Remote I/O error, status 0x5, syndrome 0xd60000e8
a QP of an unknown service: Remote I/O error, status 0x3, syndrome 0xd60000c8
a QP in no PD: Remote I/O error, status 0x5, syndrome 0xd60000e8
a QP without CQ: Remote I/O error, status 0x5, syndrome 0xd60004a8
a QP without SRQ: Remote I/O error, status 0x5, syndrome 0xd6000628
a QP beyond its umem: Remote I/O error, status 0x3, syndrome 0xd6000800
a QP without records: Remote I/O error, status 0x5, syndrome 0xd60007e0
a PD: done
a PD with a short answer: Invalid argument
RESET to RTR, RTS: Remote I/O error, status 0x10, syndrome 0xd6000000
RESET to RTR, RTS: Remote I/O error, status 0x10, syndrome 0xd6000000
another QP: Invalid argument
port 2: Remote I/O error, status 0x3, syndrome 0xd60002a8
a short RST2INIT: Remote I/O error, status 0x50, syndrome 0xd6000000
a modify by query: Invalid argument
a QP by its CQ: Invalid argument
a peer that is nowhere: Remote I/O error, status 0x5, syndrome 0xd6000168
a umem in use: Device or resource busy
a CQ in use: Device or resource busy
a umem of nothing: Invalid argument
a umem that is not mapped: Bad address
a umem with unknown access: Invalid argument
an EQ of vector 7: Invalid argument
"""
ONE = """\
500 writes by hand, 0 wrong
a wrong rkey: opcode 13, syndrome 0x13
then the state is 6
"""
EVENTS = """\
an unknown type after a known one: Invalid argument
by another file: Invalid argument
a completion: 72 bytes, cookie 0xabcd, type 0, its object
by eventfd: 1
a wrong doorbell: 72 bytes, cookie 0xef, type 5, its object
of another kind of object: Invalid argument
a query: wr_id 77, state 3
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    made = str(tmp_path_factory.mktemp("devx") / "devx")
    source = str(ROOT / "tests/support/devx.c")
    flags = ["-O1", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["cc", *flags, "-o", made, source, "-libverbs", "-lmlx5", "-ldl"], check=True)
    return made


def run(program, home, mode, **environment):
    done = subprocess.run(
        cli.command("mlx5", "run", "--", program, mode),
        env=cli.environment(home) | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_entries_by_hand_move_bytes_between_queue_pairs_of_a_process(program, home):
    assert run(program, home, "one") == ONE


def test_rings_on_a_gpu_are_read_and_written_there(program, home, tmp_path):
    assert run(program, home, "gpu", LD_LIBRARY_PATH=str(build(tmp_path))) == ONE


def test_two_processes_exchange_messages_by_hand(program, home):
    output = run(program, home, "two")
    assert output == "500 messages each way, 0 wrong here, 0 there\n"


def test_events_reach_those_who_subscribed(program, home):
    assert run(program, home, "events") == EVENTS


def test_wrong_commands_get_the_kernels_errors_and_the_adapters_statuses(program, home):
    assert run(program, home, "refusals") == REFUSED
