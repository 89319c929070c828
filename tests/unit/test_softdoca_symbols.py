# SPDX-License-Identifier: Apache-2.0
"""softdoca's libraries from outside: functions and nodes, SONAMEs, programs that link them.

softdoca_symbols.txt lists the functions that DOCA 2.5 was seen to export, with their nodes.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support.doca.libraries import (
    HOME,
    NODES,
    PARTS,
    dynamic,
    exported,
    nodes,
    public,
    readelf,
    tool,
)

LIST = Path(__file__).with_name("softdoca_symbols.txt")


def wanted(part):
    """What the list says of a library: {function: node}."""
    found, section = {}, None
    for line in LIST.read_text(encoding="ascii").splitlines():
        if line.startswith("["):
            section = line.strip("[]").split()
        elif line and not line.startswith("#") and section[0] == part:
            found[line.split()[0]] = section[1]
    return found


@pytest.mark.parametrize("part", ["common", "dma", "argp"])
def test_each_function_that_programs_need_is_exported_at_its_node(part):
    found = public(part)
    assert {name: found.get(name) for name in wanted(part)} == wanted(part)


@pytest.mark.parametrize("part", PARTS)
def test_all_else_that_is_visible_is_softdoca_s_own_and_internal(part):
    others = {
        (name, node)
        for name, node in exported(HOME / f"lib/libdoca_{part}.so.3").items()
        if not name.startswith("doca_")
    }
    assert {name.split("_")[0] for name, _ in others} <= {"softdoca"}
    assert {node for _, node in others} <= {"INTERNAL"}


def test_the_headers_declare_what_the_libraries_export_and_nothing_else():
    text = "".join(path.read_text() for path in (HOME / "include").glob("*.h"))
    code = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    declared = re.findall(r"^DOCA_(STABLE|EXPERIMENTAL)\n[^;{]*?\b(doca_\w+)\(", code, re.MULTILINE)
    stability = {"STABLE": "DOCA_2", "EXPERIMENTAL": "EXPERIMENTAL"}
    all_public = {name: node for part in PARTS for name, node in public(part).items()}
    assert {name: stability[word] for word, name in declared} == all_public


@pytest.mark.parametrize("part", PARTS)
def test_a_library_has_the_nodes_of_doca_and_finds_its_neighbours(part):
    path = HOME / f"lib/libdoca_{part}.so.3"
    assert nodes(path) == NODES
    assert dynamic(path, "SONAME") == [f"libdoca_{part}.so.3"]
    assert dynamic(path, "RUNPATH") == ["$ORIGIN"]


@pytest.mark.parametrize("part", PARTS)
def test_the_library_for_doca_2_is_empty_and_needs_the_other(part):
    path = HOME / f"lib/libdoca_{part}.so.2"
    assert not exported(path)
    assert nodes(path) == NODES
    assert dynamic(path, "SONAME") == [f"libdoca_{part}.so.2"]
    assert f"libdoca_{part}.so.3" in dynamic(path, "NEEDED")


def test_no_file_is_a_link_since_a_wheel_would_make_it_a_copy():
    assert not [path for path in HOME.rglob("*") if path.is_symlink()]


HEADERS = sorted(
    path.name
    for path in (HOME / "include").glob("doca_*.h")
    if not path.read_text().startswith("#error")  # of what softdoca does not have
)


@pytest.mark.parametrize("first", HEADERS)
def test_a_header_stands_alone_and_before_any_other(first, tmp_path):
    source = tmp_path / "program.c"
    # Alone, and before all others in both orders.
    for others in ([], HEADERS, HEADERS[::-1]):
        lines = [f"#include <{name}>\n" for name in [first, *others]]
        source.write_text("".join([*lines, "int not_empty;\n"]))
        flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only"]
        command = [tool("cc", "gcc"), *flags, f"-I{HOME}/include", source]
        subprocess.run(command, check=True, cwd=tmp_path)


def test_doca_log_declares_the_functions_of_string_h(tmp_path):
    # The client of NVIDIA's dpu_gpu_remote_offload uses memcmp, and no other header brings it.
    source = tmp_path / "program.c"
    source.write_text('#include <doca_log.h>\nint differ(void) { return memcmp("a", "b", 1); }\n')
    command = [tool("cc", "gcc"), "-std=c11", "-Wall", "-Werror", "-fsyntax-only"]
    subprocess.run([*command, f"-I{HOME}/include", source], check=True)


PROGRAM = """
#include <stdio.h>
#include <doca_argp.h>
#include <doca_comch.h>
#include <doca_comm_channel.h>
#include <doca_dma.h>
#include <doca_error.h>
#include <doca_eth_txq.h>
#include <doca_flow.h>
#include <doca_gpunetio.h>
#include <doca_rdma.h>
#include <doca_verbs.h>
#include <doca_version.h>
int main(void)
{
	void *libraries[] = { doca_argp_init, doca_comch_client_create, doca_dma_create,
		doca_rdma_create, doca_verbs_cq_create, doca_gpu_create, doca_eth_txq_create,
		doca_flow_init, doca_comm_channel_ep_create };
	int all = 1;
	for (int i = 0; i < 9; i++)
		all &= !!libraries[i];
	printf("%s %s %d\\n", doca_error_get_name(DOCA_ERROR_AGAIN), doca_version_runtime(), all);
	return 0;
}
"""
SAYS = "DOCA_ERROR_AGAIN 3.3.0 1\n"


def environment():
    paths = {"PKG_CONFIG_PATH": f"{HOME}/lib/pkgconfig", "LD_LIBRARY_PATH": f"{HOME}/lib"}
    return os.environ | paths


def pkg_config(*words):
    command = [tool("pkg-config", "pkgconf"), *words]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=True)
    return done.stdout.split()


def build(folder, compiler, *flags):
    source = folder / "program.c"
    source.write_text(PROGRAM)
    command = [compiler, "-Wall", "-Werror", source, *flags, "-o", folder / "program"]
    subprocess.run(command, check=True, cwd=folder)
    return folder / "program"


def run(program):
    """Its output; nothing may have been said on stderr, not by the loader either."""
    done = subprocess.run(
        [program], capture_output=True, text=True, env=environment(), check=True, timeout=30
    )
    assert not done.stderr
    return done.stdout


# ---- the API of DOCA 1.3 to 2.2 ----

WORKQ = HOME / "lib/libdoca_workq.so.1"


def declared_for(number):
    """Symbols of the functions that a release's headers declare, from their preprocessed text."""
    headers = [f"#include <{path.name}>" for path in (HOME / "include/workq").glob("*.h")]
    flags = [f"-I{HOME}/include/workq", f"-I{HOME}/include", f"-DSOFTDOCA_DOCA={number}"]
    command = [tool("cc", "gcc"), "-E", "-P", *flags, "-include", "stddef.h", "-"]
    done = subprocess.run(
        command, input="\n".join(headers), capture_output=True, text=True, check=True
    )
    found = re.findall(r'\b(doca_\w+)\([^;{}]*?\)\s*(?:__asm__\("(\w+)" "(\w+)"\))?;', done.stdout)
    return {prefix + other if prefix else name for name, prefix, other in found}


def test_the_headers_of_work_queues_declare_what_the_library_exports():
    both = declared_for(103) | declared_for(202)
    current = {name for part in PARTS for name in public(part)}
    functions = set(exported(WORKQ))
    assert functions <= both
    assert both <= functions | current
    assert set(exported(WORKQ).values()) == {"DOCA_1"}


@pytest.mark.parametrize("release", ["1.3", "2.2"])
def test_a_program_gets_the_functions_of_its_release(release, tmp_path):
    """Where both APIs have a function of one name, and where its parameters differ."""
    (tmp_path / "program.c").write_text(
        "#include <doca_dma.h>\n#include <doca_mmap.h>\nint main(void) { struct doca_dma *dma;"
        " struct doca_mmap *map; return doca_dma_create(&dma) || doca_mmap_create(NULL, &map); }"
    )
    modules = environment() | {"PKG_CONFIG_PATH": f"{HOME}/lib/doca-{release}/pkgconfig"}
    words = [tool("pkg-config", "pkgconf"), "--cflags", "--libs", "doca-dma", "doca-common"]
    done = subprocess.run(words, capture_output=True, text=True, env=modules, check=True)
    command = [tool("cc", "gcc"), "-Werror", "program.c", *done.stdout.split(), "-o", "program"]
    subprocess.run(command, check=True, cwd=tmp_path)
    wanted = {
        "doca_dma_create",
        "softdoca_1_3_mmap_create" if release == "1.3" else "doca_mmap_create",
    }
    text = readelf(tmp_path / "program", "--dyn-syms")
    assert set(re.findall(r"UND (\w+)@DOCA_1 ", text)) == wanted
    assert run(tmp_path / "program") == ""


# Those that are here, beside the compiler that dgkit itself needs.
TOOLS = [("cc", "")] + [
    (compiler, linker)
    for compiler in ("gcc", "clang")
    for linker in ("bfd", "gold", "lld")
    if shutil.which(compiler) and shutil.which(f"ld.{linker}")
]


@pytest.mark.parametrize(("compiler", "linker"), TOOLS)
def test_a_program_builds_by_pkg_config_with_each_compiler_and_linker(compiler, linker, tmp_path):
    chosen = [f"-fuse-ld={linker}"] if linker else []
    modules = [
        f"doca-{part.replace('_', '-')}" for part in PARTS if part not in ("common", "verbs")
    ]
    flags = pkg_config("--cflags", "--libs", *modules)
    program = build(tmp_path, tool(compiler, "gcc"), *flags, *chosen)
    assert {f"libdoca_{part}.so.3" for part in PARTS} <= set(dynamic(program, "NEEDED"))
    assert run(program) == SAYS


def test_pkg_config_says_the_version_whose_functions_these_are():
    for part in PARTS:
        module = f"doca-{part.replace('_', '-')}"
        assert pkg_config("--modversion", module) == ["3.3.0"]
        assert pkg_config("--atleast-version=2.5.0108", module) == []


def test_a_program_that_was_linked_with_doca_2_runs_without_a_word(tmp_path):
    """As DOCA 2.5's libraries are seen by a linker: .so.2, and the functions at their nodes."""
    cc = tool("cc", "gcc")
    for part in PARTS:
        names = public(part)
        functions = "".join(f"void {name}(void) {{}}\n" for name in names)
        groups = "".join(
            f"{node} {{ {''.join(f'{name}; ' for name in names if names[name] == node)}}};\n"
            for node in NODES
        )
        (tmp_path / f"{part}.c").write_text(functions)
        (tmp_path / f"{part}.map").write_text(groups)
        soname, script = f"-Wl,-soname,libdoca_{part}.so.2", f"-Wl,--version-script={part}.map"
        command = [cc, "-shared", "-fPIC", f"{part}.c", soname, script, "-o", f"libdoca_{part}.so"]
        subprocess.run(command, check=True, cwd=tmp_path)
    libraries = [f"-ldoca_{part}" for part in PARTS]
    program = build(tmp_path, cc, f"-I{HOME}/include", f"-L{tmp_path}", *libraries)
    assert {f"libdoca_{part}.so.2" for part in PARTS} <= set(dynamic(program, "NEEDED"))
    assert run(program) == SAYS


@pytest.mark.parametrize("part", ["common", "verbs", "gpunetio"])
def test_the_library_without_a_version_is_empty_and_needs_the_other(part):
    path = HOME / f"lib/sdk/libdoca_{part}.so"
    assert not exported(path)
    assert f"libdoca_{part}.so.3" in dynamic(path, "NEEDED")
    assert dynamic(path, "RUNPATH") == ["$ORIGIN/.."]


def test_libibverbs_exports_its_functions_at_the_nodes_of_rdma_core():
    path = HOME / "lib/ibverbs/libibverbs.so.1"
    later = {"ibv_reg_mr_iova2": "IBVERBS_1.8", "ibv_reg_dmabuf_mr": "IBVERBS_1.12"}
    text = (HOME / "include/ibverbs/infiniband/verbs.h").read_text()
    declared = re.findall(r"^\w[^/\n]*?\b(ibv_\w+)\(", text, re.MULTILINE)
    assert exported(path) == {name: later.get(name, "IBVERBS_1.1") for name in declared}
    assert dynamic(path, "SONAME") == ["libibverbs.so.1"]
