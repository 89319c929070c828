# SPDX-License-Identifier: Apache-2.0
"""ConnectX adapters in software, for programs that use rdma-core's libibverbs and libmlx5.

The libraries are the distribution's. What they read of an adapter in /sys is in a folder of ours,
and what they ask of the kernel is answered by a library that is preloaded (native/mlx5).
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import shutil
import stat
import struct
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from .errors import DeviceUnavailable, NativeError
from .files import beside_core
from .runtime_folder import runtime_dir

DEVICE = "mlx5_0"
MAX_ADAPTERS = 8  # functions of a PCI device; as in native/mlx5/mlx5.h
TRACE_VARIABLE = "DGKIT_MLX5_TRACE"
_GID = "0000:0000:0000:0000:0000:ffff:7f00:000"  # RoCE v2 of 127.0.0.1, and on
GID = f"{_GID}1"

_LIBRARIES = "libibverbs.so.1", "libmlx5.so.1"
_PCI = "devices/pci00ff:00/00ff:03:00.0"
_CHOICES = {  # unless the user has made another
    # The adapter copies GPU memory by CUDA. A program that loads a kernel while another kernel
    # waits for such a copy (NCCL's) holds the driver's lock until that one ends: a deadlock.
    "CUDA_MODULE_LOADING": "EAGER",
    # Streams share the channels of a copy engine, 8 by default: the adapter's copy waits for one of
    # the program's that is behind NCCL's kernel, which waits for the adapter's.
    "CUDA_DEVICE_MAX_COPY_CONNECTIONS": "32",
    "UCX_IB_MLX5_DEVX": "n",  # its shared receive queues are of a kind that DEVX lacks here
}
_GUID = "0200:0000:0000:000"
_OF_MLX5_0 = "00ff:03:00.0", DEVICE, "uverbs0"
_MODALIAS = "pci:v000015B3d00001021sv000015B3sd00000041bc02sc00i00"
_FILES = {
    "class/infiniband_verbs/abi_version": "6",
    "class/misc/rdma_cm/abi_version": "4",
    f"{_PCI}/vendor": "0x15b3",
    f"{_PCI}/device": "0x1021",
    f"{_PCI}/subsystem_vendor": "0x15b3",
    f"{_PCI}/subsystem_device": "0x0041",
    f"{_PCI}/class": "0x020000",
    f"{_PCI}/modalias": _MODALIAS,
    f"{_PCI}/numa_node": "0",
    f"{_PCI}/local_cpus": "ffffffff",
    f"{_PCI}/local_cpulist": "0-31",
    f"{_PCI}/max_link_speed": "32.0 GT/s PCIe",
    f"{_PCI}/max_link_width": "16",
    f"{_PCI}/current_link_speed": "32.0 GT/s PCIe",
    f"{_PCI}/current_link_width": "16",
    f"{_PCI}/infiniband_verbs/uverbs0/abi_version": "1",
    f"{_PCI}/infiniband_verbs/uverbs0/dev": "1:5",  # of /dev/zero, which the library opens
    f"{_PCI}/infiniband_verbs/uverbs0/ibdev": DEVICE,
    f"{_PCI}/infiniband/{DEVICE}/node_guid": f"{_GUID}1",
    f"{_PCI}/infiniband/{DEVICE}/sys_image_guid": f"{_GUID}1",
    f"{_PCI}/infiniband/{DEVICE}/node_type": "1: CA",
    f"{_PCI}/infiniband/{DEVICE}/fw_ver": "28.43.1000",
    f"{_PCI}/infiniband/{DEVICE}/board_id": "MT_0000000838",
    f"{_PCI}/infiniband/{DEVICE}/hca_type": "MT4129",
    f"{_PCI}/infiniband/{DEVICE}/node_desc": "dgkit software adapter",
    f"{_PCI}/infiniband/{DEVICE}/ports/1/gids/0": GID,
    f"{_PCI}/infiniband/{DEVICE}/ports/1/gid_attrs/types/0": "RoCE v2",
    f"{_PCI}/infiniband/{DEVICE}/ports/1/gid_attrs/ndevs/0": "lo",
    f"{_PCI}/infiniband/{DEVICE}/ports/1/pkeys/0": "0xffff",
    f"{_PCI}/infiniband/{DEVICE}/ports/1/link_layer": "Ethernet",
    f"{_PCI}/infiniband/{DEVICE}/ports/1/state": "4: ACTIVE",
    f"{_PCI}/infiniband/{DEVICE}/ports/1/phys_state": "5: LinkUp",
    f"{_PCI}/infiniband/{DEVICE}/ports/1/rate": "400 Gb/sec (4X NDR)",
    f"{_PCI}/infiniband/{DEVICE}/ports/1/lid": "0x0",
}
# Of a port; the library writes a file anew when a program opens it: native/mlx5/counters.c.
_COUNTERS = [
    *(f"counters/{name}" for name in (
        "port_xmit_data", "port_rcv_data", "port_xmit_packets", "port_rcv_packets",
        "unicast_xmit_packets", "unicast_rcv_packets",
    )),
    *(f"hw_counters/{name}" for name in (
        "rx_write_requests", "rx_read_requests", "rx_atomic_requests", "out_of_buffer",
        "rnr_nak_retry_err", "local_ack_timeout_err", "req_cqe_error", "req_cqe_flush_error",
        "req_remote_access_errors", "req_remote_invalid_request", "resp_cqe_error",
        "resp_cqe_flush_error", "resp_local_length_error", "resp_remote_access_errors",
    )),
]  # fmt: skip
_LINKS = {
    f"{_PCI}/infiniband/{DEVICE}/device": "../../../00ff:03:00.0",
    f"{_PCI}/infiniband_verbs/uverbs0/device": "../../../00ff:03:00.0",
    f"class/infiniband/{DEVICE}": f"../../{_PCI}/infiniband/{DEVICE}",
    "class/infiniband_verbs/uverbs0": f"../../{_PCI}/infiniband_verbs/uverbs0",
    f"{_PCI}/net/lo": "/sys/class/net/lo",
    "bus/pci/devices/00ff:03:00.0": f"../../../{_PCI}",
    "class/pci_bus/00ff:03": "../../devices/pci00ff:00/pci_bus/00ff:03",
    "devices/pci00ff:00/pci_bus/00ff:03/subsystem": "/sys/class/pci_bus",
    "dev/infiniband/uverbs0": "/dev/zero",
    "dev/infiniband/rdma_cm": "/dev/zero",
}


def library_path() -> Path:
    """Return the path of the library that is preloaded.

    Raises:
        FileNotFoundError: It is not installed.
    """
    path = beside_core("_mlx5") / "libdgkit-mlx5.so"
    if not path.exists():
        raise FileNotFoundError(
            f"{path} is not installed: `pip install .` builds it, with headers of Linux 5.9 on"
        )
    return path


def rdma_core() -> dict[str, Path]:
    """Return the paths of the libraries of rdma-core by their names.

    Raises:
        DeviceUnavailable: libibverbs or libmlx5 is not installed.
    """
    for name in _LIBRARIES:
        try:
            ctypes.CDLL(name)
        except OSError as exc:
            raise DeviceUnavailable(
                errno.ENODEV,
                f"{name} is not installed, which programs for RDMA use. Install rdma-core: "
                "`apt install ibverbs-providers` (Debian, Ubuntu) or `dnf install libibverbs` "
                "(Fedora, RHEL); perftest has ib_write_bw",
                check="rdma-core",
            ) from exc
    mapped = re.findall(r" (/.*)$", Path("/proc/self/maps").read_text(), re.MULTILINE)
    paths = {Path(path) for path in mapped}
    stems = {name: name.removesuffix(".1") for name in _LIBRARIES}
    return {
        name: next(path for path in paths if path.name.startswith(stem))
        for name, stem in stems.items()
    }


def rdma_core_version() -> str:
    """Return the version of rdma-core by the name of its library; "" if that has none.

    Raises:
        DeviceUnavailable: libibverbs or libmlx5 is not installed.
    """
    found = re.search(r"\.so\.1\.\d+\.(\d+\.\d+)$", rdma_core()[_LIBRARIES[0]].name)
    return found[1] if found else ""


def folders(adapters: int = 1) -> dict[str, Path]:
    """Return the folders of the runtime folder with the adapters' files, by what they hold."""
    sysfs = "mlx5-sysfs" if adapters == 1 else f"mlx5-sysfs-{adapters}"
    return {"sysfs": runtime_dir() / sysfs, "network": runtime_dir() / "nic"}


def adapters_of(pid: int) -> int:
    """Return how many adapters a process of this user sees; 0 if it has ended, or sees none."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        paths = [os.fsdecode(each[11:]) for each in variables if each.startswith(b"SYSFS_PATH=")]
        return len(list(Path(paths[0], "class/infiniband").iterdir())) if paths else 0
    except OSError:
        return 0


def environment(adapters: int = 1) -> dict[str, str]:
    """Return the environment variables with which a program sees the adapters.

    The sysfs tree is written into the runtime folder.

    Args:
        adapters: Their number, from 1 to 8.

    Raises:
        DeviceUnavailable: libibverbs or libmlx5 is not installed.
        FileNotFoundError: The library is not installed.
        NativeError: The paths of both the library and the runtime folder have a space or colon.
    """
    rdma_core()
    preloaded = filter(None, (str(_path_to_preload()), os.environ.get("LD_PRELOAD")))
    return {
        "LD_PRELOAD": ":".join(preloaded),
        "SYSFS_PATH": str(_write_sysfs(adapters)),
        "IBV_DRIVERS": "mlx5",
        **{name: os.environ.get(name, choice) for name, choice in _CHOICES.items()},
    }


def why_hidden(program: str) -> str | None:
    """Return why a program will not see the adapter, or None if nothing is in the way."""
    path = shutil.which(program)
    if path is None:
        return None
    try:
        found = Path(path).stat()
        as_user = found.st_mode & stat.S_ISUID and found.st_uid != os.getuid()
        as_group = found.st_mode & stat.S_ISGID and found.st_gid != os.getgid()
        if as_user or as_group:
            return "it runs with the rights of another user (setuid), so nothing is preloaded"
        with Path(path).open("rb") as file:
            if _is_static(file) and not Path(path).name.startswith("ld-"):  # the loader itself
                return "it is linked statically; programs that it starts see the adapter"
    except OSError:
        pass  # a program that may be executed need not be readable
    return None


def _is_static(file: BinaryIO) -> bool:
    """Return whether this is a program (ELF, 64 bits) that no loader is named for: elf(5)."""
    header = file.read(64)
    if len(header) < 64 or header[:6] != b"\x7fELF\x02\x01":
        return False
    start, size, count = struct.unpack_from("<Q14xHH", header, 32)
    if not size or not count:
        return False
    file.seek(start)
    table = file.read(size * count)
    types = [table[at : at + 4] for at in range(0, len(table), size)]
    return struct.pack("<I", 3) not in types  # PT_INTERP


def _path_to_preload() -> Path:
    """Return a path of the library that LD_PRELOAD can name: a space or a colon would end it."""
    path = library_path()
    if not _separates(path):
        return path
    link = runtime_dir() / path.name
    if _separates(link):
        raise NativeError(
            errno.EINVAL,
            f"neither {path} nor {link} can be preloaded, as both have a space or colon: set "
            "XDG_RUNTIME_DIR to a folder without",
        )
    draft = link.with_name(f".{link.name}.{os.getpid()}")
    draft.symlink_to(path)
    draft.rename(link)  # another process may be loading it, or doing the same
    return link


def _separates(path: Path) -> bool:
    return any(separator in str(path) for separator in " :")


def device(number: int) -> str:
    """Return the name of an adapter by its number."""
    return f"mlx5_{number}"


def gid(number: int) -> str:
    """Return the GID of an adapter by its number."""
    return f"{_GID}{number + 1}"


def _of(number: int, text: str) -> str:
    """Return a path or text of the tree of mlx5_0 as it is in that of another adapter."""
    for name in _OF_MLX5_0:
        text = text.replace(name, f"{name[:-1]}{number}")
    return f"{text[:-1]}{number + 1}" if text[:-1] in {_GID, _GUID} else text


def _write_sysfs(adapters: int) -> Path:
    """Write the sysfs tree, or what is missing of it; return its folder."""
    folder = folders(adapters)["sysfs"]
    for number in range(adapters):
        for name, text in _FILES.items():
            _write_file(folder / _of(number, name), _of(number, text))
        for name in _COUNTERS:
            path = _counter(folder, number, name)
            if not path.exists():
                _write_file(path, "0")
        for name, target in _LINKS.items():
            path = folder / _of(number, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                path.symlink_to(_of(number, target))
    return folder


def _counter(folder: Path, number: int, name: str) -> Path:
    return folder / _of(number, f"{_PCI}/infiniband/{DEVICE}/ports/1/{name}")


def counters(number: int, adapters: int) -> dict[str, int]:
    """Return the counters of an adapter's port by their names, as a program sees them in /sys.

    Args:
        number: The adapter's number.
        adapters: How many adapters the program sees.
    """
    sysfs = Path("/sys")
    paths = [_counter(sysfs, number, name) for name in _COUNTERS]
    read = ["cat", *map(str, paths)]
    values = subprocess.check_output(read, env=os.environ | environment(adapters), text=True)
    return {path.name: int(value) for path, value in zip(paths, values.split(), strict=True)}


def _write_file(path: Path, text: str) -> None:
    if path.exists() and path.read_text() == f"{text}\n":
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(f"{text}\n")
    draft.rename(path)  # another process may be reading, or doing the same
