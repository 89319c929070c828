# SPDX-License-Identifier: Apache-2.0
"""DOCA's enums: error codes, access flags, states, kinds of functions."""

from __future__ import annotations

from enum import IntEnum, IntFlag


class _Named(IntEnum):
    """Enum that prints as its name."""

    def __str__(self) -> str:
        return self.name


class Code(_Named):
    """Result of a DOCA call or a task (`doca_error_t`)."""

    SUCCESS = 0
    UNKNOWN = 1
    NOT_PERMITTED = 2
    IN_USE = 3
    NOT_SUPPORTED = 4
    AGAIN = 5
    INVALID_VALUE = 6
    NO_MEMORY = 7
    INITIALIZATION = 8
    TIME_OUT = 9
    SHUTDOWN = 10
    CONNECTION_RESET = 11
    CONNECTION_ABORTED = 12
    CONNECTION_INPROGRESS = 13
    NOT_CONNECTED = 14
    NO_LOCK = 15
    NOT_FOUND = 16
    IO_FAILED = 17
    BAD_STATE = 18
    UNSUPPORTED_VERSION = 19
    OPERATING_SYSTEM = 20
    DRIVER = 21
    UNEXPECTED = 22
    ALREADY_EXIST = 23
    FULL = 24
    EMPTY = 25
    IN_PROGRESS = 26
    TOO_BIG = 27
    AUTHENTICATION = 28
    BAD_CONFIG = 29
    SKIPPED = 30
    DEVICE_FATAL_ERROR = 31


class Access(IntFlag):
    """Permissions for the memory of a map (`doca_access_flag`).

    LOCAL_* apply to this process's devices, PCI_* to the DPU through an export, RDMA_* to the peers
    of an RDMA export. LOCAL_READ_ONLY is 0: none of the other flags.
    """

    LOCAL_READ_ONLY = 0
    LOCAL_READ_WRITE = 1
    RDMA_READ = 2
    RDMA_WRITE = 4
    RDMA_ATOMIC = 8
    PCI_READ_ONLY = 16
    PCI_READ_WRITE = 32
    PCI_RELAXED_ORDERING = 64

    def __str__(self) -> str:
        return " | ".join(flag.name or "" for flag in type(self) if flag and flag in self) or (
            "LOCAL_READ_ONLY"
        )


class State(_Named):
    """State of a context (`doca_ctx_states`)."""

    IDLE = 0
    STARTING = 1
    RUNNING = 2
    STOPPING = 3


class FunctionType(_Named):
    """Kind of PCIe function: physical, virtual or sub-function."""

    PF = 0
    VF = 1
    SF = 2


class RepresentorFilter(IntFlag):
    """Representors to list (`doca_devinfo_rep_filter`)."""

    ALL = 0
    NET = 2
    EMULATED = 4
