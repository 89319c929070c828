# SPDX-License-Identifier: Apache-2.0
"""Init program of a guest, in an initramfs: it sets the guest up and runs commands.

A guest and its supervisor communicate over virtio-serial ports, which no network reaches. On the
port `control`, the guest sends `ready` or `failed: REASON`, and receives `kill MARK`. On each pair
of ports `output.N` and `errors.N`, the guest receives `MARK SCRIPT` (SCRIPT in Base64) and sends
what the script prints; then, on both ports, the byte 0x1e, MARK and the exit status.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable
from pathlib import Path

CHANNELS = 4  # maximum number of commands that run at the same time
OWN = ("/dev", "/proc", "/run", "/sys", "/tmp")  # not this machine's in the host guest
END = b"\x1e"  # precedes the mark that ends a command's output

INIT = r"""#!/busybox sh
/busybox mkdir -p /bin /dev /proc /sys /root /marks
/busybox --install -s /bin
export PATH=/bin
for name in $(cat /modules/order); do insmod /modules/$name || echo "cannot load $name"; done
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
value() { sed -n "s/.*dgkit\.$1=\([^ ]*\).*/\1/p" /proc/cmdline; }
port() {
    until found=$(grep -lx "dgkit\.$1" /sys/class/virtio-ports/*/name); do usleep 10000; done
    found=${found%/name} && echo /dev/${found##*/}
}
exec 5<>$(port control)
stop() { echo "failed: $*" >&5; sleep 1000; }
options=trans=virtio,version=9p2000.L,msize=262144
over_9p() { mount -t 9p -o $options,${3:-ro,cache=loose} $1 $2; }
over_9p files /root || stop "its files cannot be mounted"
mount -t proc proc /root/proc && mount -t sysfs sysfs /root/sys || stop "no /proc or no /sys"
mount -t devtmpfs devtmpfs /root/dev && mkdir -p /root/dev/shm /root/dev/pts || stop "no /dev"
for at in dev/shm tmp run; do mount -t tmpfs tmpfs /root/$at || stop "no /$at"; done
mount -t devpts -o ptmxmode=0666 devpts /root/dev/pts || stop "no /dev/pts"
[ -e /root/dev/fd ] || ln -s /proc/self/fd /root/dev/fd
mkdir -p /root/run/testbed
for device in /sys/bus/pci/devices/*; do # the BAR of the host's memory
    [ "$(echo $(cat $device/vendor $device/device))" = "0x1af4 0x1110" ] &&
        echo 1 > $device/enable
done
for name in share site ssh notebooks exchange; do
    [ -z "$(value $name)" ] && continue
    mkdir -p /root/run/$name
    case $name in
        share) how=ro,cache=none ;;
        exchange | notebooks) how=rw,cache=none ;;
        *) how=ro,cache=loose ;;
    esac
    over_9p $name /root/run/$name $how || stop "the folder $name cannot be mounted"
done
cp /setup /root/run/testbed/setup
chroot /root /bin/sh /run/testbed/setup $(value address) $(value name) $(value management) ||
    stop "no Soft-RoCE"

# `cache=loose` never asks whether a file of a known name has changed outside, and is four times as
# fast as none. A command looks all names up anew; a file of the same size and the same second of
# change keeps its pages (v9fs_test_inode_dotl of the kernel, stat_to_qid of QEMU).
run() {
    [ "$(value name)" = dpu ] || echo 2 > /proc/sys/vm/drop_caches
    echo "$3" | base64 -d > /root/run/testbed/$1
    setsid chroot /root /bin/sh /run/testbed/$1 </dev/null >&3 2>&4 3>&- 4>&- 5>&- &
    pid=$! && echo $pid > /marks/$2
    wait $pid
    status=$?
    kill -KILL -$pid 2>/dev/null
    rm /marks/$2
    printf '\036%s %d\n' $2 $status >&3
    printf '\036%s %d\n' $2 $status >&4
}
channel() {
    exec 3<>$(port output.$1) 4<>$(port errors.$1)
    while read -r mark script <&3; do run $1 $mark $script; done
}
end() {
    for try in 1 2 3 4 5 6 7 8 9 10; do
        [ -s /marks/$1 ] && kill -KILL -$(cat /marks/$1) && return
        usleep 100000
    done
}
control() {
    while read -r word mark <&5; do [ $word = kill ] && end $mark & done
}
ulimit -l unlimited
for number in $(seq 0 $(($(value channels) - 1))); do channel $number & done
control &
echo ready >&5
wait
"""
SETUP = r"""export PATH=/usr/sbin:/usr/bin:/sbin:/bin
hostname $2 2>/dev/null || echo $2 > /proc/sys/kernel/hostname
if [ -x /bin/busybox ]; then mkdir /run/applets && /bin/busybox --install -s /run/applets; fi
if [ -d /run/site ]; then
    printf '#!/bin/sh\nexec python3 -m dgkit "$@"\n' > /run/applets/dgkit
    chmod +x /run/applets/dgkit
fi
ip link set lo up
if [ "$3" ]; then ip addr add $3/24 dev eth1 && ip link set eth1 up || exit; fi
ip addr add $1/24 dev eth0 && ip link set eth0 up && rdma link add rxe0 type rxe netdev eth0
"""


def write(path: Path, busybox: Path, modules: Iterable[tuple[str, bytes]]) -> None:
    """Write an initramfs.

    Args:
        path: The file.
        busybox: Statically linked busybox.
        modules: Names and bytes of kernel modules, in the order of loading.
    """
    loaded = list(modules)
    files = {f"modules/{name}": content for name, content in loaded}
    files["modules/order"] = "\n".join(name for name, _ in loaded).encode()
    files["setup"] = SETUP.encode()
    with path.open("wb") as out:
        out.write(_entry("modules", stat.S_IFDIR | 0o755, b""))
        out.write(_entry("busybox", stat.S_IFREG | 0o755, busybox.read_bytes()))
        out.write(_entry("init", stat.S_IFREG | 0o755, INIT.encode()))
        for name, content in files.items():
            out.write(_entry(name, stat.S_IFREG | 0o644, content))
        out.write(_entry("TRAILER!!!", 0, b""))


def _entry(name: str, mode: int, content: bytes) -> bytes:
    """Return a file in the format of an initramfs.

    Source: the kernel's Documentation/driver-api/early-userspace/buffer-format.rst, `newc`.
    """
    fields = (0, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
    return _padded(head) + _padded(content)


def _padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % 4)
