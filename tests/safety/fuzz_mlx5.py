# SPDX-License-Identifier: Apache-2.0
"""Commands of a program that does not use libibverbs, to the adapter of `dgkit mlx5 run`.

Commands as libibverbs, libmlx5 and librdmacm give them, with some words changed: lengths, handles,
addresses, unknown commands and attributes. Each is done, or refused with an error that the kernel
has; the process lives, memory beside its buffers stays, and closing leaves no descriptor.
"""

import subprocess
import sys
import tempfile

from support.processes import cli

COMMANDS = r"""
import ctypes, errno, fcntl, mmap, os, random, struct, sys, time

libc = ctypes.CDLL(None, use_errno=True)
chance = random.Random(int(sys.argv[1]))
PAGE, SIZE = mmap.PAGESIZE, 1 << 20
pages = mmap.mmap(-1, SIZE + 2 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
base = ctypes.addressof(ctypes.c_char.from_buffer(pages)) + PAGE
for guard in base - PAGE, base + SIZE:
    assert libc.mprotect(ctypes.c_void_p(guard), PAGE, 0) == 0
command, response, RINGS = base, base + PAGE, range(base + 2 * PAGE, base + SIZE // 2, PAGE)
KNOWN = "EINVAL ENOSPC EFAULT EOPNOTSUPP ENOENT EBADF EBUSY ENOMEM EMFILE ENOTTY EREMOTEIO"
KNOWN += " ETIMEDOUT EPROTONOSUPPORT ENOSYS EADDRINUSE EADDRNOTAVAIL EAGAIN EACCES EAFNOSUPPORT"
KNOWN = {getattr(errno, name) for name in KNOWN.split()}
BAD = [0, 8, 4096, base - 8, base - PAGE, base + SIZE - 4, base + SIZE, 1 << 47, 2**64 - 8]
EDGES = 0, 2, 16, 64, 255, 4096, 32768, 1 << 22, 1 << 31
NUMBERS = [n + d for n in EDGES for d in (-1, 0, 1) if n + d >= 0]
NUMBERS += [2**32 - 1]
handles, counts, done, made = {}, [], {}, {}


def ring():
    return chance.choice(RINGS)


def handle(kind):
    return chance.choice(handles.get(kind) or [0])


def dest():
    return bytes(24) + bytes([0, 0, 0, 0, 0, 0, 1, 1])


# Number, what the response's first word names, and the body.
def plain():
    pd, cq = handle("pd"), handle("cq")
    state = chance.choice([0, 1, 2, 3, 6])
    mask = {0: 1, 1: 0x39, 2: 0x12A181, 3: 0x32E01 | 1 << 13, 6: 1}[state]
    qp, kind = handle("qp"), chance.choice([2, 3, 4, 9, 10])
    return chance.choice(
        [
            (1, 0, struct.pack("<Q", response)),
            (2, 0, struct.pack("<QB7x", response, 1)),
            (3, "pd", struct.pack("<Q", response)),
            (4, 0, struct.pack("<I", pd)),
            (5, "ah", struct.pack("<QQII20xB3x4xBBBx", response, 0, pd, 0, 0, 0, 1, 1)),
            (8, 0, struct.pack("<I", handle("ah"))),
            (9, "mr", struct.pack("<QQQQII", response, ring(), 512, base, pd, 7)),
            (11, 0, struct.pack("<QIIQQQII", response, handle("mr"), 7, ring(), 64, base, pd, 1)),
            (13, 0, struct.pack("<I", handle("mr"))),
            (14, "mw", struct.pack("<QIB3x", response, pd, chance.choice([1, 2, 3]))),
            (16, 0, struct.pack("<I", handle("mw"))),
            (17, "channel", struct.pack("<Q", response)),
            (
                18,
                "cq",
                struct.pack("<QQIIiIQQII16x", response, 9, 15, 0, -1, 0, ring(), ring(), 64, 0),
            ),
            (19, 0, struct.pack("<QIIQQ", response, cq, 31, ring(), 64)),
            (20, 0, struct.pack("<QII", response, cq, 0)),
            (
                24,
                "qp",
                struct.pack(
                    "<QQ9IBBBxQQ4IIIQIIQ", response, 9, handle("xrcd") if kind == 10 else pd, cq,
                    cq, handle("srq"), 4, 4, 1, 1, 0, 0, kind, chance.choice([0, 0, 1]), ring(),
                    ring(), 4, chance.choice([0, 4]), 4, 0, 0, 0, 0, 0, 0, 0,
                ),
            ),
            (25, 0, struct.pack("<QII", response, qp, 0)),
            (
                26,
                0,
                dest() * 2
                + struct.pack("<7IHH", qp, mask, 7, 0, 0, 1024 + qp, 7, 0, 0)
                + bytes([state, 0, 3, 0, 0, 1, 1, 12, 1, 10, 1, 1, 0, 0, 0, 0]),
            ),
            (27, 0, struct.pack("<QII", response, qp, 0)),
            (
                32,
                "srq",
                struct.pack("<QQ4IQQ4I", response, 9, pd, 15, 1, 0, ring(), ring(), 0, 0, 0, 0),
            ),
            (33, 0, struct.pack("<4I", handle("srq"), 2, 0, 8)),
            (34, 0, struct.pack("<QII", response, handle("srq"), 0)),
            (35, 0, struct.pack("<QII", response, handle("srq"), 0)),
            (37, "xrcd", struct.pack("<QiI", response, chance.choice([-1, 0]), 0o100)),
            (38, 0, struct.pack("<I", handle("xrcd"))),
            (
                39,
                "srq",
                struct.pack(
                    "<QQ8IQQ4I", response, 9, 1, pd, 15, 1, 0, 0, handle("xrcd"), cq, ring(),
                    ring(), 0, 0, 0, 0,
                ),
            ),
        ]
    )


def value():
    return chance.choice(
        [chance.choice(NUMBERS), handle(chance.choice(["pd", "cq", "qp", "mr", "srq", "xrcd"]))]
    )


def is_anothers(word):
    # Memory of the interpreter: the NIC writes where the program says, as an adapter does.
    page, is_there = ctypes.c_void_p(word & -PAGE), ctypes.create_string_buffer(1)
    return not base <= word < base + SIZE and libc.mincore(page, 1, is_there) == 0


def change(original):
    body = bytearray(original)
    for _ in range(chance.choice([0, 0, 0, 1, 1, 2, 5])):
        if len(body) >= 8 and chance.random() < 0.4:
            struct.pack_into(
                "<Q", body, 8 * chance.randrange(len(body) // 8), chance.choice([*BAD, ring()])
            )
        elif len(body) >= 4:
            struct.pack_into("<I", body, 4 * chance.randrange(len(body) // 4), value())
    words = (int.from_bytes(body[at : at + 8], "little") for at in range(0, len(body) - 7, 4))
    return original if any(map(is_anothers, words)) else bytes(body)


def call(function, *arguments):
    rc = function(*map(ctypes.c_void_p, arguments))
    key = errno.errorcode[ctypes.get_errno()] if rc < 0 else "ok"
    done[key] = done.get(key, 0) + 1
    if rc >= 0:
        return True
    assert ctypes.get_errno() in KNOWN, (errno.errorcode[ctypes.get_errno()], arguments)
    return False


def write(number, body, wrong=True, extended=False):
    words, room = (8 + len(body)) // 4, 128
    at, size = command, 8 + len(body)
    if extended:
        body = struct.pack("<QHHI", response, 0, 64, 0) + body
        words, size, number = len(body[16:]) // 8, 8 + len(body), number | 1 << 31
    if wrong:
        words, room, size, number = (
            new if chance.random() < 0.03 else old
            for old, new in (
                (words, value() & 0xFFFF),
                (room, value() & 0xFFFF),
                (size, chance.choice([0, 7, 8, 12, size + 4])),
                (number, value() & 0x7F | chance.choice([0, 1 << 31, 1 << 24])),
            )
        )
        at = chance.choice(BAD) if chance.random() < 0.02 else at
    ctypes.memmove(command, struct.pack("<IHH", number, words, room) + body, 8 + len(body))
    return call(libc.write, fd, at, size)


def ioctl():
    count = chance.randrange(6)
    attributes = b"".join(
        struct.pack(
            "<HHHHQ", 0x1000 + chance.randrange(7), chance.choice([0, 4, 8, 16]), 0, 0,
            chance.choice([*BAD, response]),
        )
        for _ in range(count)
    )
    header = struct.pack(
        "<4HQII", 24 + 16 * count, chance.choice([0, 7, 0x1008, 0x1002, 0xFFFF]),
        chance.choice([0, 0x1000, 0x1001]), count, 0, 0, 0,
    )
    body = header + attributes
    if chance.random() < 0.5:
        body = change(body)
    ctypes.memmove(command, body, len(body))
    request = chance.choice([0xC0181B01] * 9 + [0x5401])
    call(libc.ioctl, fd, request, chance.choice([*BAD, *[command] * 20]))


def put(mailbox, *fields):
    for at, width, number in fields:
        for bit in range(at + width - 1, at - 1, -1):
            mailbox[bit // 8] = mailbox[bit // 8] & ~(128 >> bit % 8) | (number & 1) << 7 - bit % 8
            number >>= 1


# A command of DEVX, as the method, the kind of what it makes, the mailbox.
def mailbox():
    pick, pd = handle, handle("pd")
    umem, cq, qp = pick("umem"), pick("devx cq number"), pick("devx qp number")
    mail = bytearray(272)
    opcodes = [0x100, 0x760, 0x800, *[0x400, 0x500] * 2, 0x50B, 0x502, 0x503, 0x504, 0x507, 0x50A]
    opcode = chance.choice(opcodes)
    put(mail, (0, 16, opcode))
    if opcode == 0x400:
        put(mail, (227, 5, 3), (232, 24, pick("uar")), (160, 32, umem), (576, 64, 4088))
        put(mail, (704, 32, umem))
        return 0, "devx cq", mail
    if opcode == 0x500:
        put(mail, (232, 24, pd), (265, 4, 2), (273, 4, 2), (296, 24, pick("uar")), (1192, 24, cq))
        put(mail, (1448, 24, cq), (1472, 64, 4080), (2016, 32, umem), (2112, 32, umem))
        return 0, "devx qp", mail
    if opcode in (0x100, 0x760, 0x800):
        put(mail, (48, 16, chance.choice([0, 1, 6, 8, 64, 65, 66])))
        return (0, "devx pd", mail[:16]) if opcode == 0x800 else (None, "", mail[:16])
    peer = pick("devx qp number")
    put(mail, (72, 24, qp), (680, 8, 1), (1360, 3, 7), (256, 3, 3), (360, 24, peer))
    return 3 if opcode == 0x50B else 2, "devx qp", mail


def devx():
    at, out = base + SIZE // 2, base + SIZE // 2 + 1024
    what = chance.randrange(12)
    kind, number, method = "", None, 0x1000
    if what == 0:
        kind, number, space = "umem", response, 0x1002
        attributes = [(0, 0, 0), (1, 8, ring()), (2, 8, PAGE), (3, 4, 1), (4, 4, response)]
    elif what == 1:
        kind, number, space = "uar", response, 0x1008
        attributes = [(0, 0, 0), (1, 8, 1), (2, 8, response + 8), (3, 8, response + 16)]
        attributes += [(4, 4, response)]
    elif what == 2:
        kind = chance.choice(["umem", "uar", "devx cq", "devx qp", "devx pd"])
        space, method = {"umem": 0x1002, "uar": 0x1008}.get(kind, 0x1001), 0x1001
        attributes = [(0, 0, handle(kind + " handle"))]
        kind = ""
    else:
        way, kind, mail = mailbox()
        mail = bytes(change(mail) if chance.random() < 0.3 else mail)
        ctypes.memmove(at, mail, len(mail))
        sizes = len(mail), chance.choice([272] * 8 + [16, 8, 1024])
        mails = [(1, sizes[0], at), (2, sizes[1], out)]
        space, method = 0x1001, 0x1000 + (way or 0)
        attributes = [(0, 0, 0 if way == 0 else handle(kind + " handle")), *mails]
        if way is None:
            space, attributes = 0x1000, [(0, *mails[0][1:]), (1, *mails[1][1:])]
        number = out + 8
    packed = [struct.pack("<HHHHQ", 0x1000 + i, size, 1, 0, data) for i, size, data in attributes]
    if chance.random() < 0.1:
        packed.remove(chance.choice(packed))
    body = struct.pack("<4HQII", 24 + 16 * len(packed), space, method, len(packed), 0, 0, 0)
    body += b"".join(packed)
    if chance.random() < 0.2:
        body = change(body)
    ctypes.memmove(command, body, len(body))
    ctypes.c_uint32.from_address(response).value = 0
    if call(libc.ioctl, fd, 0xC0181B01, command) and kind and method == 0x1000 and what != 2:
        found = ctypes.c_uint64.from_address(command + 32).value
        if len(packed) == len(attributes) and found < 1 << 16:
            handles.setdefault(kind + " handle", []).append(found)
            name = kind if number == response else kind + " number"
            word = ctypes.string_at(number, 4)
            handles.setdefault(name, []).append(
                int.from_bytes(word, "little" if number == response else "big") & 0xFFFFFF
            )
            made[kind] = made.get(kind, 0) + 1


PARAMETERS = struct.pack("<II256s8B", 7, 0, b"", 8, 0, 3, 2, 0, 7, 7, 1)


def manage(channel, number, body, at=command, size=None, room=400):
    size = 8 + len(body) if size is None else size
    ctypes.memmove(command, struct.pack("<IHH", number, len(body), room) + body, 8 + len(body))
    ctypes.c_uint32.from_address(response).value = 0
    if call(libc.write, channel, at, size) and number in (0, 12):
        found = ctypes.c_uint32.from_address(response + (8 if number else 0)).value
        numbers.append(found)
        made["id"] = made.get("id", 0) + 1
    del numbers[:-8]


# A listener, or a client that has sent its request.
def begin(channel, space, ip, listens):
    manage(channel, 0, struct.pack("<QQHB5x", 9, response, space, 0))
    one = numbers[-1]
    if listens:
        manage(channel, 2, struct.pack("<Q28sI", response, ip, one))
        manage(channel, 7, struct.pack("<II", one, 3))
        return
    manage(channel, 3, struct.pack("<28s28sII", b"", ip, one, 9))
    manage(channel, 4, struct.pack("<II", one, 9))
    manage(channel, 6, struct.pack("<272sII8x", PARAMETERS, one, 0))
    for _ in range(3):
        for each in channels:
            manage(each, 12, struct.pack("<Q", response))
            if chance.random() < 0.5:
                body = struct.pack("<Q272sII8x", 9, PARAMETERS, numbers[-1], 0)
                manage(each, 8, body)


# Of librdmacm: listeners and clients of one process, over two channels.
def connect():
    channel = chance.choice(channels)
    of, far = chance.choice(numbers or [0]), chance.choice(channels)
    ip = struct.pack("<H", 2) + struct.pack(">H", chance.choice([0, port])) + bytes([127, 0, 0, 1])
    space = chance.choice([0x106, 0x106, 0x111])
    if chance.random() < 0.05:
        begin(channel, space, ip[:2] + struct.pack(">H", port) + ip[4:], chance.random() < 0.3)
        return
    parameters = PARAMETERS[:-1] + bytes([chance.choice([0, 1])])
    number, body = chance.choice(
        [
            (0, struct.pack("<QQHB5x", 1 + of, response, space, 0)),
            (0, struct.pack("<QQHB5x", 1 + of, response, space, 0)),
            (1, struct.pack("<QII", response, of, 0)),
            (2, struct.pack("<Q28sI", response, ip, of)),
            (3, struct.pack("<28s28sII", b"", ip, of, 9)),
            (3, struct.pack("<28s28sII", b"", ip, of, 9)),
            (4, struct.pack("<II", of, 9)),
            (4, struct.pack("<II", of, 9)),
            (5, struct.pack("<QII", response, of, 0)),
            (6, struct.pack("<272sII8x", parameters, of, 0)),
            (7, struct.pack("<II", of, 3)),
            (7, struct.pack("<II", of, 3)),
            (8, struct.pack("<Q272sII8x", 1 + of, parameters, of, 0)),
            (9, struct.pack("<IBBH256s", of, 3, 0, 0, b"")),
            (10, struct.pack("<I", of)),
            (11, struct.pack("<QII", response, of, chance.randrange(8))),
            (12, struct.pack("<Q", response)),
            (12, struct.pack("<Q", response)),
            (14, struct.pack("<Q4I", response, of, 0, chance.randrange(4), chance.choice([1, 4]))),
            (18, struct.pack("<QII", response, of, far)),
        ]
    )
    body = change(body)
    size = 8 + len(body)
    if chance.random() < 0.05:
        size = chance.choice([0, 7, 8, size - 4, size + 4])
    if chance.random() < 0.05:
        number = value() & 31
    at = chance.choice(BAD) if chance.random() < 0.03 else command
    manage(channel, number, body, at, size, chance.choice([400] * 9 + [0, 4, 0xFFFF]))


port = 20000 + os.getpid() % 10000
for _ in range(int(sys.argv[2])):
    fd = os.open("/dev/infiniband/uverbs0", os.O_RDWR)
    channels, numbers = [], []
    for _ in range(2):
        channels.append(os.open("/dev/infiniband/rdma_cm", os.O_RDWR))
        fcntl.fcntl(channels[-1], fcntl.F_SETFL, os.O_NONBLOCK)
    for _ in range(300):
        connect()
    for channel in channels:
        os.close(channel)
    handles.clear()
    assert write(0, struct.pack("<QIIIIBBHIQ", response, 16, 4, 1, 0, 1, 0, 0, 0, 3), wrong=False)
    for _ in range(600):
        if chance.random() < 0.55:
            chance.choice([ioctl, devx, devx, devx, devx])()
            continue
        number, kind, body = plain()
        body = change(body)
        extended = chance.random() < 0.1
        ctypes.c_uint32.from_address(response).value = 0
        if (
            write(
                number,
                body.ljust(-len(body) % 8 + len(body), b"\0") if extended else body,
                extended=extended,
            )
            and kind
        ):
            found = ctypes.c_uint32.from_address(response).value
            handles.setdefault(kind, []).append(found)
            made[kind] = made.get(kind, 0) + 1
    assert write(3, struct.pack("<Q", response), wrong=False)
    os.close(fd)
    for name in os.listdir("/proc/self/fd"):  # channels: the program closes its ends
        link = f"/proc/self/fd/{name}"
        if (
            os.path.lexists(link)
            and os.readlink(link).startswith("pipe:")
            and int(name) > 2
            and fcntl.fcntl(int(name), fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
        ):
            os.close(int(name))
    end = time.monotonic() + 10
    while len(os.listdir("/proc/self/fd")) > (counts[1:] or [99])[0] and time.monotonic() < end:
        time.sleep(0.01)  # the share server closes a connection of its own a little later
    counts.append(len(os.listdir("/proc/self/fd")))
names = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
left = [os.readlink(name) for name in names if os.path.lexists(name)]
assert len(set(counts[1:])) <= 1, (counts, left)  # the first opening is also the NIC's
print("done", done, made)
"""


def batch(seed: int, examples: int, library: str = "") -> None:
    """Open the device `examples` / 10 times, and send 300 commands each time.

    library: of the adapter, built with AddressSanitizer, in the place of the installed one.
    """
    sanitized = []
    if library:
        runtime = subprocess.check_output(["cc", "-print-file-name=libasan.so"], text=True)
        sanitized = ["env", f"LD_PRELOAD={runtime.strip()}:{library}"]
    program = [*sanitized, sys.executable, "-c", COMMANDS, seed, max(1, examples // 10)]
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(
            cli.command("mlx5", "run", "--", *map(str, program)),
            env={**cli.environment(home), "ASAN_OPTIONS": "detect_leaks=0"},
            capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
    assert done.returncode == 0, f"{done.returncode}: {done.stderr}"
    assert done.stdout.startswith("done"), done.stdout


if __name__ == "__main__":
    batch(1, 50, *sys.argv[1:])
