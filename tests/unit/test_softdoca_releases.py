# SPDX-License-Identifier: Apache-2.0
"""`dgkit softdoca env --api`: programs of each release compile, other releases' names do not."""

import json
import os
import re
import subprocess

import pytest
from support.doca.libraries import HOME, PARTS, tool

from dgkit.cli import main
from dgkit.cli.softdoca_command import _RELEASES

TABLE = (HOME / "include/doca_releases.h").read_text()
ROWS = dict(re.findall(r"^#define (DOCA_OF_\w+) SOFTDOCA_(\w+)", TABLE, re.MULTILINE))

# One for each library; those of Flow and Ethernet use every name that not all releases have.
PROGRAMS = {
    "common": """
#include <doca_mmap.h>
#include <doca_version.h>
#include <stdio.h>
int main(void)
{
    struct doca_mmap *map;
    printf("%s", doca_version());
    return doca_mmap_create(&map);
}
""",
    "flow": """
#include <doca_flow.h>
int use(struct doca_flow_port_cfg *port, struct doca_flow_pipe_cfg *cfg,
    struct doca_flow_pipe *pipe, struct doca_flow_pipe_entry **entry)
{
    struct doca_flow_match match = {0};
#if SOFTDOCA_DOCA < 210
    uint16_t queue = 0;
    struct doca_flow_fwd fwd = {.rss_queues = &queue, .num_of_queues = 1,
                    .rss_outer_flags = DOCA_FLOW_RSS_UDP};
#else
    struct doca_flow_fwd fwd = {.rss.outer_flags = DOCA_FLOW_RSS_UDP};
#endif
    struct doca_flow_actions actions = {.meta.pkt_meta = 1};
    int sum = 0;
#if SOFTDOCA_DOCA < 210
    sum += doca_flow_pipe_cfg_set_enable_strict_matching(cfg, true);
#endif
#if SOFTDOCA_DOCA < 300
    sum += doca_flow_port_cfg_set_devargs(port, "0");
#endif
#if SOFTDOCA_DOCA < 301
    actions.meta.mark = 2;
#endif
#if SOFTDOCA_DOCA < 302
    sum += doca_flow_pipe_add_entry(0, pipe, &match, &actions, NULL, NULL, DOCA_FLOW_NO_WAIT,
                    NULL, entry);
#elif SOFTDOCA_DOCA < 303
    sum += doca_flow_pipe_add_entry(0, pipe, &match, 0, &actions, NULL, NULL,
                    DOCA_FLOW_WAIT_FOR_BATCH, NULL, entry);
#else
    const uint32_t flags = DOCA_FLOW_ENTRY_FLAGS_NO_WAIT | DOCA_FLOW_ENTRY_FLAGS_WAIT_FOR_BATCH;
    sum += doca_flow_pipe_basic_add_entry(0, pipe, &match, 0, &actions, NULL, NULL, flags,
                          NULL, entry);
#endif
#if SOFTDOCA_DOCA < 303
    sum += doca_flow_pipe_control_add_entry(0, 7, pipe, &match, NULL, NULL, NULL, NULL, NULL,
                        NULL, &fwd, NULL, entry);
#else
    sum += doca_flow_pipe_control_add_entry(0, pipe, &match, NULL, NULL, NULL, NULL, NULL,
                        NULL, 7, &fwd, NULL, entry);
#endif
    return sum + !port + !cfg;
}
int main(void) { return 0; }
""",
    "eth": """
#include <doca_eth_rxq.h>
#include <doca_eth_rxq_cpu_data_path.h>
#include <doca_eth_txq.h>
int use(struct doca_eth_rxq *queue, struct doca_eth_rxq_task_recv *task,
    struct doca_eth_rxq_event_managed_recv *event,
    struct doca_eth_rxq_event_batch_managed_recv *batch)
{
    int sum = DOCA_ETH_WAIT_ON_TIME_TYPE_NATIVE + !task + !event + !batch;
    uint32_t size;
#if SOFTDOCA_DOCA < 300
    sum += doca_eth_rxq_estimate_packet_buf_size(DOCA_ETH_RXQ_TYPE_CYCLIC, 0, 0, 1500, 64, 0,
                             &size);
#else
    sum += doca_eth_rxq_estimate_packet_buf_size(DOCA_ETH_RXQ_TYPE_CYCLIC, 0, 0, 1500, 64, 0, 0,
                             0, &size);
#endif
#if SOFTDOCA_DOCA < 301
    uint32_t tag;
    const uint32_t *tags;
    uint16_t id;
    sum += doca_eth_rxq_set_flow_tag(queue, 1) + doca_eth_rxq_get_flow_queue_id(queue, &id);
    sum += doca_eth_rxq_task_recv_get_flow_tag(task, &tag);
    sum += doca_eth_rxq_event_managed_recv_get_flow_tag(event, &tag);
    sum += doca_eth_rxq_event_batch_managed_recv_get_flow_tag_array(batch, &tags);
#else
    sum += doca_eth_rxq_apply_queue_id(queue, 0);
#endif
#if SOFTDOCA_DOCA < 302
    sum += DOCA_ETH_WAIT_ON_TIME_TYPE_DPDK;
#endif
    return sum;
}
int main(void) { return 0; }
""",
    "dma": "#include <doca_dma.h>\nint main(void) { return !doca_dma_destroy(NULL); }",
    "argp": "#include <doca_argp.h>\nint main(void) { return !doca_argp_destroy(); }",
    "comch": "#include <doca_comch.h>\nint main(void) { return !doca_comch_client_destroy(NULL); }",
    "comm_channel": """
#include <doca_comm_channel.h>
int main(void) { return !doca_comm_channel_ep_destroy(NULL); }
""",
    "rdma": """
#include <doca_rdma.h>
int use(struct doca_rdma *rdma, struct doca_rdma_connection *one, struct doca_buf *buf)
{
    union doca_data data = {0};
    struct doca_rdma_task_send *send;
    struct doca_rdma_task_read *read;
    const void *bytes;
    size_t size;
#if SOFTDOCA_DOCA < 209
    return doca_rdma_export(rdma, &bytes, &size) + doca_rdma_connect(rdma, bytes, size) +
        doca_rdma_connection_accept(one) +
        doca_rdma_task_send_allocate_init(rdma, buf, data, &send) +
        doca_rdma_task_read_allocate_init(rdma, buf, buf, data, &read);
#else
    return doca_rdma_export(rdma, &bytes, &size, &one) +
        doca_rdma_connect(rdma, bytes, size, one) + doca_rdma_connection_accept(one, NULL, 0) +
        doca_rdma_task_send_allocate_init(rdma, one, buf, data, &send) +
        doca_rdma_task_read_allocate_init(rdma, one, buf, buf, data, &read);
#endif
}
int main(void) { return 0; }
""",
    "verbs": "#include <doca_verbs.h>\nint main(void) { return !doca_verbs_qp_destroy(NULL); }",
    "gpunetio": "#include <doca_gpunetio.h>\nint main(void) { return !doca_gpu_destroy(NULL); }",
}


def flags(release, part, capsys, *words):
    """pkg-config's flags in the environment that a shell gets."""
    capsys.readouterr()
    assert main(["softdoca", "env", "--api", release, "--json"]) == 0
    environment = os.environ | json.loads(capsys.readouterr().out)["environment"]
    command = [tool("pkg-config", "pkgconf"), *words, f"doca-{part.replace('_', '-')}".strip("-")]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout.split()  # fmt: skip


def compiled(text, folder, *options):
    (folder / "program.c").write_text(text)
    command = [tool("cc", "gcc"), "-Wall", "-Werror", "-c", "program.c", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_each_library_has_a_program():
    assert sorted(PROGRAMS) == sorted(PARTS)


@pytest.mark.parametrize("release", _RELEASES)
def test_a_program_of_each_library_compiles_for_the_release(release, tmp_path, capsys):
    version = flags(release, "common", capsys, "--modversion")[0]
    assert version.startswith(f"{release}.")
    for part, text in PROGRAMS.items():
        options = flags(release, part, capsys, "--cflags")
        # the newest needs no option
        number = "".join(options).partition("SOFTDOCA_DOCA=")[2]
        assert number == (
            "" if release == _RELEASES[-1] else "{}{:0>2}".format(*release.split("."))
        )
        given = [] if number else ["-DSOFTDOCA_DOCA=303"]
        done = compiled(text, tmp_path, *options, *given)
        assert done.returncode == 0, f"{part}: {done.stderr}"
        if part == "common":
            assert f'"{version}"' in subprocess.check_output(
                ["cc", "-E", *options, tmp_path / "program.c"], text=True
            )


WRONG = {
    ("3.3", "flow", "doca_flow_pipe_add_entry(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)"): "2.9 to 3.2",
    ("3.1", "flow", "doca_flow_port_cfg_set_devargs(0, 0)"): "2.9 and 2.10",
    ("2.10", "flow", "doca_flow_pipe_cfg_set_enable_strict_matching(0, 0)"): "2.9",
    ("3.1", "flow", "sizeof(((struct doca_flow_actions *)0)->meta.mark)"): "2.9 to 3.0",
    ("3.2", "flow", "DOCA_FLOW_ENTRY_FLAGS_NO_WAIT"): "3.3",
    ("3.3", "flow", "DOCA_FLOW_NO_WAIT"): "2.9 to 3.2",
    ("3.2", "eth_txq", "DOCA_ETH_WAIT_ON_TIME_TYPE_DPDK"): "2.9 to 3.1",
    ("3.0", "eth_rxq", "doca_eth_rxq_apply_queue_id(0, 0)"): "3.1 and later",
    ("3.2", "dpdk", "doca_dpdk_port_probe(0, 0)"): "2.9 to 3.1",
}


@pytest.mark.parametrize("case", WRONG)
def test_the_error_of_a_name_of_another_release_says_which_have_it(case, tmp_path, capsys):
    release, header, use = case
    text = f"#include <doca_{header}.h>\nint main(void) {{ return {use}; }}\n"
    done = compiled(text, tmp_path, *flags(release, "flow", capsys, "--cflags"))
    assert done.returncode
    assert re.search(rf"DOCA {WRONG[case]} ha(d|s|ve) it: dgkit softdoca env --api", done.stderr)


def test_what_softdoca_does_not_have_says_so(tmp_path, capsys):
    options = flags("3.3", "common", capsys, "--cflags")
    done = compiled("#include <doca_sha.h>\n", tmp_path, *options)
    assert done.returncode
    assert "softdoca has no doca_sha: it has doca-argp, -comch, -comm-channel" in done.stderr
    for folder in ("lib/pkgconfig", "lib/doca-2.2/pkgconfig"):
        done = subprocess.run(
            [tool("pkg-config", "pkgconf"), "--cflags", "doca-sha"], capture_output=True, text=True,
            env=os.environ | {"PKG_CONFIG_PATH": str(HOME / folder)}, check=False,
        )  # fmt: skip
        assert done.returncode
        assert "softdoca-has-no-doca-sha" in done.stderr


@pytest.mark.parametrize("release", ["2.2", *_RELEASES])
def test_the_module_doca_is_all_libraries(release, capsys):
    libraries = flags(release, "", capsys, "--libs")
    assert {"-ldoca_argp", "-ldoca_comm_channel", "-ldoca_common", "-ldoca_dma"} <= {*libraries}


def test_the_default_is_the_newest_and_is_named(capsys):
    main(["softdoca", "env"])
    line = capsys.readouterr().out.splitlines()[1]
    assert line.startswith(f"# API of DOCA {_RELEASES[-1]};")
    assert all(release in line for release in _RELEASES)


def test_each_row_of_the_table_is_the_mark_of_a_declaration():
    headers = [*(HOME / "include").glob("*.h"), *(HOME / "include").glob("*.cuh")]
    code = "".join(path.read_text() for path in headers if path.name != "doca_releases.h")
    assert ROWS
    assert {row for row in ROWS if not re.search(rf"\b{row}\b", code)} == set()
