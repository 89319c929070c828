# SPDX-License-Identifier: Apache-2.0
"""Questions to libraries, asked of small libraries that stand in for the real ones."""

import ctypes
import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dgkit
from dgkit.doctor.collect import live, probes
from dgkit.doctor.collect.live import LiveReader

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
FAKE_CUDA = Path(__file__).parents[1] / "support" / "fake_cuda" / "build.py"

VERBS = """
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
struct device { const char *name; };
static struct device devices[] = { { "mlx5_0" }, { "mlx5_1" }, { "broken" }, { "no_pd" } };
static int held; /* every object that was given out and not taken back */
struct device **ibv_get_device_list(int *count) {
	struct device **list = calloc(5, sizeof(*list));
	for (int i = 0; i < 4; i++)
		list[i] = &devices[i];
	*count = 4;
	held++;
	return list;
}
void ibv_free_device_list(struct device **list) { free(list); held--; }
const char *ibv_get_device_name(struct device *device) { return device->name; }
void *ibv_open_device(struct device *device) {
	if (device == &devices[2]) {
		errno = ENODEV;
		return NULL;
	}
	held++;
	return device;
}
int ibv_close_device(void *context) { (void)context; held--; return 0; }
void *ibv_alloc_pd(void *context) {
	if (context == &devices[3]) {
		errno = ENOMEM;
		return NULL;
	}
	held++;
	return context;
}
int ibv_dealloc_pd(void *domain) { (void)domain; held--; return 0; }
#ifdef SAYS
void *ibv_reg_dmabuf_mr(void *pd, uint64_t offset, size_t size, uint64_t iova, int fd, int access) {
	errno = (pd && !offset && !size && !iova && fd == -1 && !access) ? SAYS : EFAULT;
	return NULL;
}
#endif
__attribute__((destructor)) static void end(void) {
	if (held)
		fprintf(stderr, "%d objects were not freed\\n", held);
}
"""
CRASH = "__attribute__((constructor)) static void begin(void) { __builtin_trap(); }"
HANG = "#include <unistd.h>\n__attribute__((constructor)) static void begin(void) { pause(); }"
NOISE = (
    "#include <stdio.h>\n"
    '__attribute__((constructor)) static void begin(void) { puts("hello"); fflush(stdout); }'
)


def _library(folder: Path, name: str, text: str, *flags: str) -> Path:
    source = folder / f"{name}.c"
    source.write_text(text, "ascii")
    made = folder / name
    subprocess.run(["cc", "-shared", "-fPIC", *flags, "-o", made, source], check=True)
    source.unlink()
    return made


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    """Asks, with the libraries in tmp_path."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))

    def asked(*question: str) -> Any:
        with LiveReader(60.0) as reader:
            return reader.probe(*question)

    return asked


@pytest.fixture(scope="module")
def cuda_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cuda")
    subprocess.run([sys.executable, FAKE_CUDA, folder], check=True)
    return folder


@pytest.fixture
def ask_cuda(monkeypatch: pytest.MonkeyPatch, cuda_folder: Path, ask: Any) -> Callable[..., Any]:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(cuda_folder))

    def asked(orders: str = "") -> Any:
        monkeypatch.setenv("DGKIT_FAKE_CUDA", orders)
        return ask("cuda").data

    return asked


def test_cuda_tells_of_the_driver_and_of_each_gpu(ask_cuda: Any, cuda_folder: Path) -> None:
    said = ask_cuda("gpus=2")
    assert said["library"] == str(cuda_folder / "libcuda.so.1")
    assert (said["why"], said["init"], said["driver"]) == (
        "",
        {"code": 0, "name": "CUDA_SUCCESS"},
        13000,
    )
    assert [one["address"] for one in said["devices"]] == ["0000:41:00.0", "0000:42:00.0"]
    first = said["devices"][0]
    assert first["capability"] == [9, 0]
    assert first["uuid"] == "GPU-64676b69-7420-6661-6b65-204750552030"
    assert first["attributes"]["DMA_BUF_SUPPORTED"] == 1
    assert first["attributes"]["GPU_DIRECT_RDMA_WRITES_ORDERING"] == 100
    assert first["attributes"]["HOST_ALLOC_DMA_BUF_SUPPORTED"] == 0


def test_an_attribute_that_the_driver_does_not_know_is_none(ask_cuda: Any) -> None:
    assert ask_cuda()["devices"][0]["attributes"]["DMA_BUF_MMAP_SUPPORTED"] is None
    known = ask_cuda("attr152=1")["devices"][0]["attributes"]
    assert known["DMA_BUF_MMAP_SUPPORTED"] == 1


@pytest.mark.parametrize(
    ("orders", "code", "name"),
    [
        ("gpus=0", 100, "CUDA_ERROR_NO_DEVICE"),
        ("cuInit=802", 802, "CUDA_ERROR_SYSTEM_NOT_READY"),
        ("cuInit=999", 999, "CUDA_ERROR_UNKNOWN"),
    ],
)
def test_a_driver_that_does_not_start_says_its_code(
    ask_cuda: Any, orders: str, code: int, name: str
) -> None:
    said = ask_cuda(orders)
    assert said["init"] == {"code": code, "name": name}
    assert said["devices"] == []


def test_the_numbers_of_attributes_are_the_drivers() -> None:
    driver = pytest.importorskip("cuda.bindings.driver")
    known = driver.CUdevice_attribute
    for name, number in probes._ATTRIBUTES.items():
        its = getattr(known, f"CU_DEVICE_ATTRIBUTE_{name}", None)
        assert its is None or int(its) == number, name


def test_without_the_library_each_answer_says_so(ask: Any) -> None:
    cuda, verbs = ask("cuda").data, ask("rdma-dmabuf", "mlx5_0").data
    if not cuda["library"]:
        assert "libcuda.so.1" in cuda["why"]
        assert cuda["devices"] == []
    if not verbs["library"]:
        assert "libibverbs.so.1" in verbs["why"]
        assert verbs["takes"] is None


@pytest.mark.parametrize(
    ("says", "takes"),
    [
        ("EBADF", True),
        ("EOPNOTSUPP", False),
        ("EPROTONOSUPPORT", False),
        ("ENOMEM", None),
    ],
)
def test_a_device_says_whether_it_takes_dma_bufs(
    ask: Any, tmp_path: Path, says: str, takes: bool | None
) -> None:
    _library(tmp_path, "libibverbs.so.1.14.44.0", VERBS, f"-DSAYS={says}")
    (tmp_path / "libibverbs.so.1").symlink_to("libibverbs.so.1.14.44.0")
    said = ask("rdma-dmabuf", "mlx5_1").data
    assert (said["takes"], errno.errorcode[getattr(errno, says)]) == (takes, said["errno"])
    assert (said["symbol"], said["version"], said["why"]) == (True, "1.14.44.0", "")


@pytest.mark.parametrize(
    ("device", "why"),
    [
        ("mlx5_7", "libibverbs does not list mlx5_7"),
        ("broken", "ibv_open_device: No such device"),
        ("no_pd", "ibv_alloc_pd: Cannot allocate memory"),
    ],
)
def test_a_device_that_cannot_be_asked_says_why(
    ask: Any, tmp_path: Path, device: str, why: str
) -> None:
    _library(tmp_path, "libibverbs.so.1", VERBS, "-DSAYS=EBADF")
    said = ask("rdma-dmabuf", device).data
    assert (said["takes"], said["why"]) == (None, why)


@pytest.mark.parametrize("device", ["mlx5_0", "mlx5_7", "broken", "no_pd"])
def test_all_that_was_opened_is_closed(tmp_path: Path, device: str) -> None:
    _library(tmp_path, "libibverbs.so.1", VERBS, "-DSAYS=EBADF")
    done = subprocess.run(
        [sys.executable, "-m", "dgkit.doctor.collect.probes", "rdma-dmabuf", device],
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": ":".join(sys.path)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    assert json.loads(done.stdout)["device"] == device


def test_a_libibverbs_without_the_function_takes_none(ask: Any, tmp_path: Path) -> None:
    _library(tmp_path, "libibverbs.so.1", VERBS)
    said = ask("rdma-dmabuf", "mlx5_0").data
    assert (said["symbol"], said["takes"]) == (False, False)


def test_libraries_are_found_and_their_files_named(ask: Any, tmp_path: Path) -> None:
    _library(tmp_path, "libdoca_dma.so.3.1.0105", "int here;")
    (tmp_path / "libdoca_dma.so.3").symlink_to("libdoca_dma.so.3.1.0105")
    _library(tmp_path, "libgdrapi.so.2", NOISE)
    said = ask("libraries").data
    assert set(said) == set(probes.LIBRARIES)
    assert said["libdoca_dma.so.3"] == {
        "path": str(tmp_path / "libdoca_dma.so.3.1.0105"),
        "why": "",
    }
    assert said["libgdrapi.so.2"]["path"] == str(tmp_path / "libgdrapi.so.2")
    assert said["libdoca_dma.so.2"]["path"] == ""
    assert "libdoca_dma.so.2" in said["libdoca_dma.so.2"]["why"]


def test_a_library_that_crashes_or_hangs_when_it_is_loaded_hides_no_other(
    ask: Any, tmp_path: Path
) -> None:
    _library(tmp_path, "libdoca_dma.so.3", CRASH)
    _library(tmp_path, "libdoca_rdma.so.3", HANG)
    _library(tmp_path, "libgdrapi.so.2", "int here;")
    said = ask("libraries").data
    assert "signal" in said["libdoca_dma.so.3"]["why"]
    assert said["libdoca_rdma.so.3"]["why"] == "loading it timed out"
    assert said["libgdrapi.so.2"]["path"]


def test_a_library_that_crashes_the_probe_is_a_failed_reading(ask: Any, tmp_path: Path) -> None:
    _library(tmp_path, "libcuda.so.1", CRASH)
    found = ask("cuda")
    assert found.fault == "failed"
    assert "crashed the probe cuda" in found.why


def test_a_library_that_hangs_the_probe_is_late(
    ask: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dgkit.doctor.collect.commands.COMMAND_S", 1.0)
    _library(tmp_path, "libcuda.so.1", HANG)
    found = ask("cuda")
    assert (found.fault, "/" in found.why) == ("late", False)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (
            "Traceback:\n File '/srv/a/x.py'\nImportError: /srv/a/x.so: no y",
            "ImportError: x.so: no y",
        ),
        ("cannot open ~/secret/dgkit or '/usr/local/alice/z'", "cannot open dgkit or 'z'"),
        ("read 1/2 of a and/or b", "read 1/2 of a and/or b"),
    ],
)
def test_the_error_of_a_probe_names_no_folder(
    said: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = 'printf %s "$0" >&2; exit 1'
    monkeypatch.setattr(live, "_probe_command", lambda line: ["sh", "-c", script, said])
    with live.LiveReader() as reader:
        assert reader.read("probe cuda").why == f"the probe cuda failed: {why}"


def test_a_question_that_there_is_not_is_refused(ask: Any) -> None:
    for question in (["weather"], ["cuda", "now"], ["rdma-dmabuf"]):
        found = ask(*question)
        assert found.fault == "failed"
        assert "unknown query" in found.why


def test_what_dgkit_says_of_itself_comes_from_the_same_python(
    ask: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('planted')", "ascii")
    monkeypatch.chdir(tmp_path)
    said = ask("info")
    assert said.ok, said.why
    assert {"soft", "doca"} <= {one["name"] for one in said.data["providers"]}
    assert said.data["doca"] == {}  # a process for each library, which no check looks at
    assert ask("libraries").ok
    core = ask("core").data
    assert (core["loaded"], core["dgkit"]) == (True, dgkit.__version__)


def test_without_a_name_of_python_a_probe_fails(monkeypatch: pytest.MonkeyPatch, ask: Any) -> None:
    monkeypatch.setattr(live.sys, "executable", "")
    assert ask("cuda").fault == "failed"


def test_no_library_is_loaded_into_this_process(ask: Any, tmp_path: Path) -> None:
    _library(tmp_path, "libgdrapi.so.2", "int here;")
    assert ask("libraries").data["libgdrapi.so.2"]["path"]
    assert str(tmp_path) not in Path("/proc/self/maps").read_text("utf-8", "replace")
    with pytest.raises(OSError, match="libgdrapi"):
        ctypes.CDLL("libgdrapi.so.2.none")
