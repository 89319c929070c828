# SPDX-License-Identifier: Apache-2.0
"""softdoca's README, call by call: its two programs run, and each error of its table occurs."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.doca.binding import Copy
from support.doca.gpunetio_samples import environment
from support.processes import cli

from dgkit import doca
from dgkit.doca import Access
from dgkit.doca._library import library

README = (Path(__file__).resolve().parents[2] / "native/softdoca/README.md").read_text("utf-8")
PAGE = README.partition("\n## The API, call by call\n")[2].partition("\n## ")[0]

# ---- the programs ----


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The commands of the page's programs, by their languages."""
    folder = tmp_path_factory.mktemp("programs")
    for language, name in (("c", "program.c"), ("python", "program.py")):
        (source,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
        (folder / name).write_text(source)
    (compiler,) = re.findall(r"^(cc .*)$", PAGE, re.MULTILINE)
    subprocess.run(
        compiler.replace("cc ", "cc -Wall -Wextra -Werror ", 1), shell=True, cwd=folder,
        env=environment(), check=True,
    )  # fmt: skip
    return {"c": [str(folder / "program")], "python": [sys.executable, str(folder / "program.py")]}


@pytest.mark.parametrize(("host", "dpu"), [("c", "c"), ("python", "python"), ("c", "python")])
def test_the_dpu_reads_the_hosts_memory_and_writes_it_back(
    host: str, dpu: str, programs: dict[str, list[str]], tmp_path: Path
) -> None:
    def command(side: str, language: str) -> list[str]:
        run = cli.command("softdoca", "run", "--side", side, "--")
        return [*run, *programs[language], side]

    with subprocess.Popen(
        command("host", host), cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True,
    ) as exporter:  # fmt: skip
        assert exporter.stdout is not None
        assert exporter.stdout.readline() == "Run the DPU's program, then press Enter.\n"
        subprocess.run(command("dpu", dpu), cwd=tmp_path, check=True, timeout=60)
        assert exporter.communicate("\n", timeout=60)[0] == "THE HOST'S MEMORY\n"
    assert exporter.returncode == 0


# ---- the errors ----

C = library().call
FFI = library().ffi
NULL = FFI.NULL


class Calls(Copy):
    """A running copy with room for one task, and what a C program would pass to each call."""

    def __init__(self) -> None:
        super().__init__(tasks=1, bufs=2)
        self.dev, self.map = self.device._handle(), self.source_map._handle()
        self.at = FFI.cast("void *", self.source_map.address)
        self.raw = ExitStack()  # destroys what the methods below create

    def create(self, what: str, *args: Any) -> Any:
        made = library().get(f"doca_{what}_create", f"struct doca_{what} **", *args)
        self.raw.callback(library().function(f"doca_{what}_destroy"), made)
        return made

    def new_map(self) -> Any:
        made = self.create("mmap")
        C("doca_mmap_set_memrange", made, self.at, 4096)
        C("doca_mmap_add_dev", made, self.dev)
        C("doca_mmap_set_permissions", made, int(Access.PCI_READ_WRITE))
        return made

    def export(self, mapped: Any) -> None:
        C("doca_mmap_export_pci", mapped, self.dev, FFI.new("void **"), FFI.new("size_t *"))

    def take(self, inventory: Any, mapped: Any, size: int = 16) -> None:
        name, kind = "doca_buf_inventory_buf_get_by_args", "struct doca_buf **"
        library().get(name, kind, inventory, mapped, self.at, size, self.at, 0)

    def new_context(self, *, tasks: int = 0, engine: bool = False) -> Any:
        made = self.create("dma", self.dev)
        if tasks:
            self.configure(made, tasks)
        if engine:
            self.connect(made)
        return made

    def configure(self, dma: Any, tasks: int) -> None:
        function = library().completion_callback
        C("doca_dma_task_memcpy_set_conf", dma, function, function, tasks)

    def connect(self, dma: Any) -> None:
        C("doca_pe_connect_ctx", self.pe._handle(), library().dma.doca_dma_as_ctx(dma))

    def start_context(self, dma: Any) -> None:
        C("doca_ctx_start", library().dma.doca_dma_as_ctx(dma))

    def new_task(self, dma: Any) -> None:
        name, kind = "doca_dma_task_memcpy_alloc_init", "struct doca_dma_task_memcpy **"
        library().get(name, kind, dma, self.src._handle(), self.dst._handle(), 0)

    def submitted(self) -> doca.MemcpyTask:
        return self.dma.memcpy(self.src, self.dst).submit()

    def submit(self, task: doca.MemcpyTask) -> None:
        C("doca_task_submit", library().dma.doca_dma_task_memcpy_as_task(task._handle()))

    def failed(self) -> doca.MemcpyTask:
        task = self.dma.memcpy(self.dst, self.src).submit()
        self.pe.wait(10)
        return task


@pytest.fixture
def calls() -> Iterator[Calls]:
    made = Calls()
    yield made
    made.raw.close()
    for root in made.roots:
        root.close()


# Each error of the table: what a C program, then a Python program, does wrong.
WRONG: dict[tuple[str, str], list[Callable[[Calls], object]]] = {
    ("doca_dev_open", "INVALID_VALUE"): [
        lambda c: library().get("doca_dev_open", "struct doca_dev **", NULL)
    ],
    ("doca_dev_open", "NOT_FOUND"): [lambda c: doca.Device("mlx5_9")],
    ("doca_mmap_set_memrange", "BAD_STATE"): [
        lambda c: C("doca_mmap_set_memrange", c.map, c.at, 8)
    ],
    ("doca_mmap_set_memrange", "INVALID_VALUE"): [
        lambda c: C("doca_mmap_set_memrange", c.create("mmap"), c.at, 0),
        lambda c: doca.Mmap((0, 4096), c.device),
    ],
    ("doca_mmap_set_permissions", "BAD_STATE"): [
        lambda c: C("doca_mmap_set_permissions", c.map, 1),
        lambda c: setattr(c.source_map, "permissions", Access.PCI_READ_ONLY),
    ],
    ("doca_mmap_set_permissions", "INVALID_VALUE"): [
        lambda c: C("doca_mmap_set_permissions", c.create("mmap"), 1 << 20),
        lambda c: doca.Mmap(bytearray(8), c.device, permissions=Access(1 << 20)),
    ],
    ("doca_mmap_add_dev", "NOT_PERMITTED"): [lambda c: C("doca_mmap_add_dev", c.map, c.dev)],
    ("doca_mmap_add_dev", "ALREADY_EXIST"): [lambda c: C("doca_mmap_add_dev", c.new_map(), c.dev)],
    ("doca_mmap_start", "BAD_STATE"): [
        lambda c: C("doca_mmap_start", c.map),
        lambda c: c.source_map.start(),
    ],
    ("doca_mmap_start", "INVALID_VALUE"): [lambda c: C("doca_mmap_start", c.create("mmap"))],
    ("doca_mmap_export_pci", "NOT_PERMITTED"): [
        lambda c: c.export(c.map),  # for local access only
        lambda c: c.export(c.new_map()),  # not started
        lambda c: c.source_map.export_pci(),
    ],
    ("doca_mmap_create_from_export", "INVALID_VALUE"): [
        lambda c: C(
            "doca_mmap_create_from_export", NULL, c.at, 64, c.dev, FFI.new("struct doca_mmap **")
        ),
        lambda c: doca.Mmap.from_export(bytes(64), c.device),
    ],
    ("doca_buf_inventory_start", "INVALID_VALUE"): [lambda c: C("doca_buf_inventory_start", NULL)],
    ("doca_buf_inventory_buf_get_by_args", "BAD_STATE"): [
        lambda c: c.take(c.create("buf_inventory", 1), c.map),
        lambda c: c.take(c.inventory._handle(), c.new_map()),
    ],
    ("doca_buf_inventory_buf_get_by_args", "INVALID_VALUE"): [
        lambda c: c.take(c.inventory._handle(), c.map, 4097),
    ],
    ("doca_buf_inventory_buf_get_by_args", "NO_MEMORY"): [
        lambda c: c.take(c.inventory._handle(), c.map),
        lambda c: c.inventory.buf_by_data(c.source_map),
    ],
    ("doca_dma_task_memcpy_set_conf", "BAD_STATE"): [lambda c: c.configure(c.dma._handle(), 1)],
    ("doca_dma_task_memcpy_set_conf", "INVALID_VALUE"): [
        lambda c: c.configure(c.new_context(), 0),
        lambda c: doca.Dma(c.device, tasks=c.dma.max_tasks + 1),
    ],
    ("doca_pe_connect_ctx", "BAD_STATE"): [
        lambda c: c.connect(c.dma._handle()),
        lambda c: c.pe.connect(c.dma),
    ],
    ("doca_pe_connect_ctx", "NOT_PERMITTED"): [lambda c: c.connect(c.new_context(engine=True))],
    ("doca_ctx_start", "BAD_STATE"): [
        lambda c: c.start_context(c.dma._handle()),
        lambda c: c.start_context(c.new_context(engine=True)),  # no tasks configured
        lambda c: c.dma.start(),
    ],
    ("doca_ctx_start", "NOT_CONNECTED"): [
        lambda c: c.start_context(c.new_context(tasks=1)),
        lambda c: doca.Dma(c.device).start(),
    ],
    ("doca_dma_task_memcpy_alloc_init", "BAD_STATE"): [
        lambda c: c.new_task(c.new_context(tasks=1)),
        lambda c: doca.Dma(c.device).memcpy(c.src, c.dst),
    ],
    ("doca_dma_task_memcpy_alloc_init", "NO_MEMORY"): [
        lambda c: [c.submitted(), c.new_task(c.dma._handle())],
        lambda c: [c.submitted(), c.dma.memcpy(c.src, c.dst)],
    ],
    ("doca_task_submit", "BAD_STATE"): [
        lambda c: c.submit(c.submitted()),
        lambda c: c.submit(c.failed()),  # which stopped the context
        lambda c: c.failed().submit(),
    ],
    ("doca_task_submit", "IN_USE"): [lambda c: c.submitted().submit()],
    ("doca_pe_progress", "IO_FAILED"): [lambda c: c.failed().wait(10)],
    ("doca_ctx_stop", "IN_PROGRESS"): [
        lambda c: [c.submitted(), C("doca_ctx_stop", c.dma._context())]
    ],
    ("doca_dma_destroy", "IN_USE"): [lambda c: C("doca_dma_destroy", c.dma._handle())],
    ("doca_mmap_destroy", "NOT_PERMITTED"): [lambda c: C("doca_mmap_destroy", c.map)],
    ("doca_buf_inventory_destroy", "IN_USE"): [
        lambda c: C("doca_buf_inventory_destroy", c.inventory._handle())
    ],
    ("doca_pe_destroy", "IN_USE"): [lambda c: C("doca_pe_destroy", c.pe._handle())],
    ("doca_dev_close", "IN_USE"): [lambda c: C("doca_dev_close", c.dev)],
}


def test_the_table_has_exactly_the_errors_below() -> None:
    table = PAGE.partition("| C | Python |")[2]
    rows = re.findall(r"^\| \d+ \| `(\w+)` \|.*\|([^|]*)\|$", table, re.MULTILINE)
    found = {(call, code) for call, cell in rows for code in re.findall(r"`([A-Z_]+)`", cell)}
    assert found == set(WRONG)
    assert {call for call, _ in found} - {"doca_buf_inventory_buf_get_by_args"} <= set(
        re.findall(r"\bdoca_\w+(?=\()", PAGE)  # in the program; get_by_args by its inline forms
    )


@pytest.mark.parametrize(
    ("call", "code", "wrong"), [(*key, wrong) for key, each in WRONG.items() for wrong in each]
)
def test_a_call_without_what_it_needs_has_the_error_of_the_table(
    call: str, code: str, wrong: Callable[[Calls], object], calls: Calls
) -> None:
    with pytest.raises(doca.DocaError) as caught:
        wrong(calls)
    assert caught.value.code == doca.Code[code], call
