# SPDX-License-Identifier: Apache-2.0
"""The samples of GPUNetIO Verbs, with kernels on the emulated GPU, and `dgkit softdoca nvcc`."""

import shlex
import socket
import subprocess

import pytest
from support.doca.gpunetio_samples import (
    SAMPLES,
    build,
    environment,
    run_pair,
    run_rdma,
    start,
    start_pair,
)
from support.processes import cli

NVCC = cli.command("softdoca", "nvcc")


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpunetio")
    nvcc = folder / "nvcc"
    nvcc.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, NVCC))} "$@"\n')
    nvcc.chmod(0o700)
    return build(folder / "samples", str(nvcc))


@pytest.mark.parametrize("name", SAMPLES)
def test_both_processes_receive_what_the_other_one_sent(samples, name):
    codes, said = run_pair([samples / f"gpunetio_{name}"])
    assert codes == [0, 0], said
    for side in ("client", "server"):
        assert f"gpunetio_{name}, {side}: 1000 of 1000 right, 0 errors in kernels" in said


def test_a_client_waits_for_a_server_that_is_started_after_it(samples):
    sample = samples / "gpunetio_put"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [sample, "--count", "10", "--port", port]
    with start(command, "--role", "client") as client:
        refused = client.stdout.readline()  # its first try is over when it waits
        with start(command) as server:
            said = server.communicate(timeout=60)[0] + refused + client.communicate(timeout=60)[0]
    assert [client.returncode, server.returncode] == [0, 0], said


def test_processes_that_disagree_end_with_1(samples):
    codes, said = run_pair([samples / "gpunetio_put"], client=["--count", "10"])
    assert codes == [1, 1]
    assert "--count is 10 here and 1000 there" in said


def test_a_sample_whose_peer_is_killed_ends_with_1(samples):
    count = ["--count", "20000"]
    server, client, said = start_pair([samples / "gpunetio_put"], count, count)
    with server, client:
        while "Both processes are connected" not in said:
            line = client.stdout.readline()
            assert line, said
            said += line
        client.kill()
        said, _ = server.communicate(timeout=60)
    assert server.returncode == 1, said
    assert "The other process has ended" in said


@pytest.mark.parametrize(("count", "size"), [(1000, 64), (3000, 100), (2, 3 << 20)])
def test_a_kernel_copies_to_the_gpu_and_back(samples, count, size):
    done = subprocess.run(
        [samples / "gpunetio_dma", "--count", str(count), "--size", str(size)],
        capture_output=True, text=True, env=environment(), timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"gpunetio_dma: {count} of {count} right" in done.stdout


def start_side(samples, side, *arguments):
    return subprocess.Popen(
        [samples / "gpunetio_comch", *arguments],
        text=True, env=environment() | {"SOFTDOCA_SIDE": side},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def test_the_dpu_feeds_a_running_kernel_that_answers(samples):
    server = start_side(samples, "dpu", "--role", "server", "--count", "200")
    said = ""
    try:
        while "The server is ready" not in said:
            line = server.stdout.readline()
            assert line, said
            said += line
        with start_side(samples, "host", "--role", "client", "--count", "200") as client:
            said += client.communicate(timeout=60)[0] + server.communicate(timeout=60)[0]
    finally:
        server.kill()
    assert [client.returncode, server.wait()] == [0, 0], said
    assert "gpunetio_comch, client: 200 of 200 answered" in said
    assert "gpunetio_comch, server: 200 of 200 right" in said


@pytest.mark.parametrize(("count", "size"), [(1000, 64), (3, 1 << 20)])
def test_kernels_write_read_and_answer_by_rdma(samples, tmp_path, count, size):
    run_rdma(samples, tmp_path / "details", count, size)


PROGRAM = r"""
#include <cuda_runtime.h>
#include <stdio.h>
__constant__ int base;
template <int n> __global__ void add(int *to, const int *from)
{
    __shared__ int sum;
    extern __shared__ int more[];
    if (threadIdx.x == 0)
        sum = more[0] = 0;
    __syncthreads();
    atomicAdd(&sum, from[threadIdx.x] * n);
    __syncthreads();
    if (threadIdx.x == 0)
        to[blockIdx.x] += sum + more[0] + base;
}
__global__ void crash(int *at) { *at = 1; }
int main()
{
    int from[64];
    const int hundred = 100;
    int *to;
    if (cudaMalloc(&to, 4096) || cudaMalloc(&to, 0) == cudaSuccess)
        return 2;
    cudaMemset(to, 0, 4096);
    cudaMemcpyToSymbol(base, &hundred, sizeof base);
    for (int i = 0; i < 64; i++)
        from[i] = i;
    add<2><<<2, 64, 16>>>(to, from);
    add<1>
        <<<dim3(2), 64, 16>>>(to, from);
    int got[2];
    cudaMemcpy(got, to, sizeof got, cudaMemcpyDefault);
    if (cudaFree(to) || !cudaFree(to))
        return 3;
    crash<<<1, 1>>>(nullptr);
    cudaError_t error = cudaDeviceSynchronize();
    printf("%d %d, %s\n", got[0], got[1], cudaGetErrorString(error));
    return cudaGetLastError() != error;
}
"""


def test_a_program_with_host_code_launches_kernels_one_after_the_other(tmp_path):
    source, program = tmp_path / "program.cu", tmp_path / "program"
    source.write_text(PROGRAM)
    nvcc = [*NVCC, "-arch=sm_90", "-Xcompiler", "-Wall,-Werror", "-O2", source, "-o", program]
    subprocess.run([*map(str, nvcc)], check=True)
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert done.stdout == "6248 6248, a kernel failed on the emulated GPU\n"
    assert "illegal address (nil)" in done.stderr
    assert done.returncode == 0


def test_files_of_c_and_cpp_are_compiled_as_such_and_not_optimized(tmp_path):
    body = "#include <cuda_runtime.h>\n%s int %s(void) { return cudaFree(NULL) + WHAT; }\n"
    (tmp_path / "a.c").write_text(body % ("", "in_c") + "int new;\n")
    (tmp_path / "b.cpp").write_text(body % ('extern "C"', "in_cpp") + "template <class T> T t;\n")
    (tmp_path / "c.cu").write_text(
        '#include <cstdio>\nextern "C" int in_c(void), in_cpp(void);\n'
        'int main() { printf("%d\\n", in_c() * in_cpp()); }\n'
    )
    names, program = [tmp_path / name for name in ("a.c", "b.cpp", "c.cu")], tmp_path / "program"
    subprocess.run([*map(str, [*NVCC, "-DWHAT=7", *names, "-o", program])], check=True)
    assert subprocess.check_output([program], text=True) == "49\n"


COUNT = """
#include <cuda_runtime.h>
#include <stdio.h>
__global__ void kernel(void) {}
int main(void)
{
    int count = 0;
    struct cudaDeviceProp prop;
    cudaError_t status = cudaGetDeviceCount(&count);
    for (int i = 0; i < count; i++)
        printf("%d %d\\n", status, cudaGetDeviceProperties(&prop, i));
    printf("V%d.%d.0\\n", CUDA_VERSION / 1000, CUDA_VERSION % 1000 / 10);
}
"""


def test_a_build_system_finds_the_release_and_a_device(tmp_path):
    """What meson asks of a CUDA compiler: a version behind a V, and a program that counts."""
    (tmp_path / "count.cu").write_text(COUNT)
    nvcc = list(map(str, NVCC))
    said = subprocess.check_output([*nvcc, "--version"], cwd=tmp_path, text=True)
    assert [path.name for path in tmp_path.iterdir()] == ["count.cu"]  # nothing was linked
    compiled = "-Xcompiler=-Wall,-Wextra -Xcompiler=-Wl\\,-O1 -G -g -MD -MT count.o -MF count.d"
    compiled += " -o count.o -c count.cu"
    for arguments in ("-w -cudart static count.cu -o check", compiled, "-o count count.o"):
        subprocess.run([*nvcc, *arguments.split()], cwd=tmp_path, check=True)
    for program in ("check", "count"):
        counted = subprocess.check_output([tmp_path / program], text=True).splitlines()
        assert counted == ["0 0", said.split()[-1]]
    assert "cuda_runtime.h" in (tmp_path / "count.d").read_text()


EVENTS = """
#include <cuda.h>
#include <cuda_runtime.h>
#include <stdio.h>
#include <unistd.h>
__global__ void kernel(void) { usleep(50000); }
int main(void)
{
    CUevent start, end, none = NULL;
    float ms = -1;
    cuEventCreate(&start, CU_EVENT_BLOCKING_SYNC);
    cuEventCreate(&end, CU_EVENT_BLOCKING_SYNC);
    printf("%d ", cuEventElapsedTime(&ms, start, end));
    cuEventRecord(start, NULL);
    kernel<<<1, 1>>>();
    cuEventRecord(end, NULL);
    printf("%d ", cuEventElapsedTime(&ms, start, end));
    printf("%d ", cuEventSynchronize(end));
    printf("%d ", cuEventElapsedTime(&ms, start, end));
    printf("%d ", ms >= 50);
    printf("%d %d\\n", cuEventDestroy(end) + cuEventDestroy(start), cuEventRecord(none, NULL));
}
"""


def test_an_event_is_over_when_the_grid_before_it_is(tmp_path):
    source, program = tmp_path / "events.cu", tmp_path / "events"
    source.write_text(EVENTS)
    subprocess.run([*map(str, [*NVCC, source, "-o", program])], check=True)
    assert subprocess.check_output([program], text=True) == "400 600 0 0 1 0 400\n"


@pytest.mark.parametrize("arguments", ["-c", "-O2", "-c -o a.o", "-o a"])
def test_arguments_without_a_file_are_wrong_usage(arguments, tmp_path):
    command = [*map(str, NVCC), *arguments.split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"no source file among the arguments {arguments}" in done.stderr
    assert not list(tmp_path.iterdir())


def test_an_error_names_the_line_of_the_source(tmp_path):
    source = tmp_path / "program.cu"
    source.write_text("__global__ void k()\n{\n    nonsense;\n}\n")
    done = subprocess.run(
        [*map(str, NVCC), "-c", source, "-o", tmp_path / "o"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert f"{source}:3:5: error" in done.stderr
