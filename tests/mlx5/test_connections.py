# SPDX-License-Identifier: Apache-2.0
"""Programs of librdmacm, unmodified, which connect by addresses and ports."""

import os
import signal
import sys

import pytest
from support.processes import cli
from support.processes.rdma_pair import pair

# Commands of librdmacm, written to the device, as a server and a client in one process.
COMMANDS = """
import ctypes, errno, fcntl, os, resource, select, socket, stat, struct, sys, threading
import time

room = ctypes.create_string_buffer(512)
at = ctypes.addressof(room)
CREATE, DESTROY, BIND, ADDRESS, ROUTE, QUERY, CONNECT, LISTEN, ACCEPT, REJECT = range(10)
DISCONNECT, ATTRIBUTES, EVENT, _, OPTION, _, _, _, MIGRATE = range(10, 19)
TCP, UDP = 0x106, 0x111

def channel():
    fd = os.open("/dev/infiniband/rdma_cm", os.O_RDWR)
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_NONBLOCK)
    return fd

def send(fd, command, layout, *values, out=400, more=0):
    body = struct.pack("<" + layout, *values)
    try:
        os.write(fd, struct.pack("<IHH", command, len(body) + more, out) + body)
    except OSError as error:
        return errno.errorcode[error.errno]
    return 0

def create(fd, uid, ps=TCP):
    assert send(fd, CREATE, "QQHB5x", uid, at, ps, 0) == 0
    return struct.unpack_from("<I", room)[0]

def ip(port, address="127.0.0.1"):
    return struct.pack("<H", socket.AF_INET) + struct.pack(">H", port) + socket.inet_aton(address)

def bind(fd, number, address):
    return send(fd, BIND, "Q28sI", at, address, number)

def resolve(fd, number, to):
    return send(fd, ADDRESS, "28s28sII", b"", to, number, 100)

def parameters(valid=1, data=b"hello", length=None):
    size = len(data) if length is None else length
    return struct.pack("<II256s8B", 77, 0, data, size, 0, 3, 2, 0, 7, 7, valid)

def connect(fd, number, **options):
    return send(fd, CONNECT, "272sII8x", parameters(**options), number, 0)

def accept(fd, number, uid=9, **options):
    return send(fd, ACCEPT, "Q272sII8x", uid, parameters(**options), number, 0)

def of(fd, command, number):
    return send(fd, command, "QII", at, number, 0)

def events(fd):
    found = []
    while select.select([fd], [], [], 0)[0]:
        assert send(fd, EVENT, "Q", at) == 0
        found.append(struct.unpack_from("<QIII", room))
    assert send(fd, EVENT, "Q", at) == "EAGAIN"
    return found

def client(fd, uid, port, ps=TCP):
    number = create(fd, uid, ps)
    assert resolve(fd, number, ip(port)) == 0
    assert [each[2] for each in events(fd)] == [0]
    assert send(fd, ROUTE, "II", number, 100) == 0
    assert [each[2] for each in events(fd)] == [2]
    return number

near, far = channel(), channel()
print("device", stat.S_ISCHR(os.fstat(near).st_mode), send(near, EVENT, "Q", at))
print("unknown", send(near, 99, "Q", at), send(near, 13, "Q", at), send(near, 20, "Q", at))
print("length", send(near, CREATE, "QQHB5x", 1, at, TCP, 0, out=3),
      send(near, CREATE, "QQHB5x", 1, at, TCP, 0, more=1), send(near, EVENT, "Q", 8))
print("port space", send(near, CREATE, "QQHB5x", 1, at, 5, 0))
listener = create(near, 1)
print("handles", of(near, DESTROY, 9999), of(far, DESTROY, listener), bind(near, 16385, ip(0)))
print("addresses", bind(near, listener, b"\\1\\0"), bind(near, listener, ip(0, "192.0.2.77")))
print("states", send(near, ROUTE, "II", listener, 1), connect(near, listener),
      accept(near, listener), of(near, ATTRIBUTES, listener),
      send(near, REJECT, "IBBH256s", listener, 0, 0, 0, b""), send(near, DISCONNECT, "I", listener))
print("bind", bind(near, listener, ip(0, "0.0.0.0")), bind(near, listener, ip(0)))
assert of(near, QUERY, listener) == 0
port = struct.unpack_from(">H", room, 8 + 2 * 64 + 2)[0]
other = create(near, 2)
print("port in use", bind(near, other, ip(port, "0.0.0.0")), of(near, DESTROY, other),
      of(near, DESTROY, other))
print("listen", send(near, LISTEN, "II", listener, 2), send(near, LISTEN, "II", listener, 2))
number = client(far, 3, port)
print("too long", connect(far, number, length=57), connect(far, number, valid=0))
print("connect", connect(far, number), connect(far, number), events(far))
(uid, request, *kind), = events(near)
print("request", uid, kind, room[28:33], *room[284:288])
print("accept", accept(near, request, valid=0), accept(near, request), accept(near, request))
print("reply", [each[0:1] + each[2:] for each in events(far)], accept(far, number, valid=0))
print("established", [each[0:1] + each[2:] for each in events(near)])
for state in 1, 2, 3, 4, 7:
    print(state, send(far, ATTRIBUTES, "QII", at, number, state),
          hex(struct.unpack_from("<I", room)[0]))
print("disconnect", send(near, DISCONNECT, "I", request), events(near)[0][2:], events(far)[0][2:],
      send(far, DISCONNECT, "I", number), events(far))
print("reported", of(far, DESTROY, number), struct.unpack_from("<I", room)[0])
number = client(far, 4, port)
connect(far, number)
request = events(near)[0][1]
print("reject", send(near, REJECT, "IBBH256s", request, 3, 1, 0, b"no!"),
      send(near, REJECT, "IBBH256s", request, 3, 0, 0, b"no!"), events(far)[0][2:], room[28:31])
number = client(far, 5, port)
connect(far, number)
request = events(near)[0][1]
os.close(far)  # as if its process had been killed
print("client has gone", accept(near, request), events(near))
far = channel()
number = client(far, 6, port)
connect(far, number)
request = events(near)[0][1]
accept(near, request)
third = channel()
print("migrate", send(third, MIGRATE, "QII", at, number, 0),
      send(third, MIGRATE, "QII", at, number, far), events(far),
      [each[2] for each in events(third)], accept(third, number, valid=0))
print("server", [each[2] for each in events(near)])
numbers = [client(third, 7, port) for _ in range(5)]
print("backlog", [connect(third, each) for each in numbers], [each[2:] for each in events(third)])
os.close(near)
print("server has gone", sorted(each[2:] for each in events(third)))
number = client(third, 8, port)
print("no listener", connect(third, number), events(third)[0][2:])
number = create(third, 10)
print("elsewhere", resolve(third, number, ip(1, "192.0.2.77")), events(third)[0][2:])
listener = create(third, 11, UDP)
print("datagrams", bind(third, listener, ip(port)), send(third, LISTEN, "II", listener, 0))
number = client(third, 12, port, UDP)
connect(third, number)
request = events(third)[0][1]
print(accept(third, request), [each[0:1] + each[2:] for each in events(third)],
      [hex(each) for each in struct.unpack_from("<II", room, 20)])
os.close(third)

def wait(fd):
    own = ctypes.create_string_buffer(400)
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))  # runs when the other pauses
    try:
        os.write(fd, struct.pack("<IHHQ", EVENT, 8, 400, ctypes.addressof(own)))
    except OSError as error:
        failed.append(errno.errorcode[error.errno])

def in_poll(thread):
    words = open(f"/proc/self/task/{thread.native_id}/syscall").read().split()
    return words[0] in ("7", "73")  # poll of x86-64, ppoll of AArch64

failed = []
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
for _ in range(40):  # the event that wakes the thread is gone before it runs
    fd = os.open("/dev/infiniband/rdma_cm", os.O_RDWR)
    thread = threading.Thread(target=wait, args=(fd,), daemon=True)
    thread.start()
    while not in_poll(thread):
        time.sleep(0.001)
    number = create(fd, 1)
    resolve(fd, number, ip(1))
    of(fd, DESTROY, number)
    os.close(fd)
time.sleep(0.1)
print("closed during a command", failed)
near = channel()
listener = create(near, 1)
assert bind(near, listener, ip(0)) == 0
assert of(near, QUERY, listener) == 0
port = struct.unpack_from(">H", room, 8 + 2 * 64 + 2)[0]
assert send(near, LISTEN, "II", listener, 1) == 0
number = client(near, 2, port)
assert connect(near, number) == 0
limits = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (near, limits[1]))
failed = send(near, EVENT, "Q", at)
resource.setrlimit(resource.RLIMIT_NOFILE, limits)
print("no free descriptor", failed, [each[2] for each in events(near)])
"""
ANSWERS = """\
device True EAGAIN
unknown EINVAL ENOSYS ENOSYS
length ENOSPC EINVAL EFAULT
port space EINVAL
handles ENOENT EINVAL ENOENT
addresses EINVAL EADDRNOTAVAIL
states EINVAL EINVAL EINVAL EINVAL EINVAL EINVAL
bind 0 EINVAL
port in use EADDRINUSE 0 ENOENT
listen 0 EINVAL
too long EINVAL EINVAL
connect 0 EINVAL []
request 1 [4, 0] b'hello' 56 0 2 3
accept EINVAL 0 EINVAL
reply [(3, 5, 0)] 0
established [(9, 9, 0)]
1 0 0x39
2 0 0x129181
3 0 0x12e01
4 EINVAL 0x12e01
7 EINVAL 0x12e01
disconnect 0 (10, 0) (10, 0) 0 []
reported 0 4
reject EINVAL 0 (8, 28) b'no!'
client has gone EINVAL []
migrate EINVAL 0 [] [5] 0
server [9]
backlog [0, 0, 0, 0, 0] [(8, 28), (8, 28)]
server has gone [(8, 28), (8, 28), (8, 28), (10, 0)]
no listener 0 (8, 8)
elsewhere 0 (1, 4294967183)
datagrams 0 0
0 [(12, 9, 0)] ['0x4d', '0x1234567']
closed during a command []
no free descriptor EMFILE [4]
"""


@pytest.mark.parametrize(
    ("program", "server", "client"),
    [
        ("rping -v -V -C 5 -S 2000", "-sp", ["-c", "-a"]),
        ("ib_send_bw -R -c UD -s 1024 -n 50", "-p", []),
        ("ucmatose -c 3", "-p", ["-s"]),
        ("ib_write_bw -R -n 50", "-p", []),
    ],
)
def test_programs_connect(program, server, client, home):
    with pair(home, *program.split(), ports=(server, "-p"), arguments=client) as both:
        outputs = [each.communicate(timeout=60)[0] for each in both]
    assert both[1].returncode == 0, outputs
    if "rping" in program:
        assert "ping data: rdma-ping-4" in outputs[1]
    else:
        assert both[0].returncode == 0, outputs


def test_a_client_that_is_killed_ends_its_server(home):
    program = "rping", "-v", "-C", "100000000"
    with pair(home, *program, ports=("-sp", "-p"), arguments=["-c", "-a"]) as (server, client):
        for line in client.stdout:
            if "rdma-ping-3" in line:
                break
        os.kill(client.pid, signal.SIGKILL)
        # Its request fails, or the event comes first: in both cases it ends.
        output = server.communicate(timeout=60)[0]
    assert "server ping data: rdma-ping-3" in output


def test_wrong_commands_get_the_errors_of_the_kernel(home):
    done = cli.run(home, "mlx5", "run", "--", sys.executable, "-c", COMMANDS)
    assert done.stdout == ANSWERS, done.stderr
