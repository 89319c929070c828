# SPDX-License-Identifier: Apache-2.0
"""dgkit.doca: its C declarations agree with softdoca's headers."""

import re
from pathlib import Path

import pytest

import dgkit.doca
from dgkit.doca import Access, Code, FunctionType, RepresentorFilter, State
from dgkit.doca._declarations import CDEF

ROOT = Path(__file__).parent.parent.parent
HEADERS = ROOT / "native/softdoca/include"
PACKAGE = Path(dgkit.doca.__file__).parent


def stripped(text):
    """C without comments, preprocessor and line breaks."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    text = re.sub(r"^#.*(?:\\\n.*)*$", " ", text, flags=re.MULTILINE)
    return " ".join(text.split())


def functions(text):
    """Each function as name: (what it gives, [type of each parameter])."""
    found = {}
    for gives, name, parameters in re.findall(
        r"([\w ]+?[ *]+)(doca_\w+)\(([^()]*)\);", stripped(text)
    ):
        if gives.split()[-1] == "return":  # a call, in what is static inline
            continue
        types = [plain(one, named=True) for one in parameters.split(",")]
        found[name] = (plain(gives), [] if types == ["void"] else types)
    return found


def plain(text, *, named=False):
    """A type as the declarations of dgkit.doca write it, without its parameter's name."""
    text = re.sub(r"\b(DOCA_STABLE|DOCA_EXPERIMENTAL|static inline|extern)\b", " ", text)
    text = re.sub(r"\bunion doca_data\b", "uint64_t", text)
    text = re.sub(r"\benum doca_\w+", "int", text)
    words = re.findall(r"\w+|\*", text)
    if named and len(words) > 1 and words[-1] != "*":
        words = words[:-1]
    return " ".join(words)


DECLARED = functions(CDEF)
TRUE = functions("".join(path.read_text() for path in sorted(HEADERS.glob("*.h"))))


def test_the_parser_finds_what_there_is():
    assert len(DECLARED) == CDEF.count("(") - 2  # a callback's type has two
    assert len(TRUE) > 100


@pytest.mark.parametrize("name", DECLARED)
def test_a_declaration_is_that_of_the_header(name):
    assert DECLARED[name] == TRUE[name]


@pytest.mark.parametrize("name", DECLARED)
def test_a_declaration_is_used(name):
    sources = [path.read_text() for path in PACKAGE.glob("*.py") if path.name[1:5] != "decl"]
    text = "".join(sources).replace('f"{name}_create_list"', "").replace("max_buf_{what}", "")
    made = {
        "doca_devinfo_create_list", "doca_devinfo_destroy_list", "doca_devinfo_rep_create_list",
        "doca_devinfo_rep_destroy_list", "doca_dma_cap_task_memcpy_get_max_buf_size",
        "doca_dma_cap_task_memcpy_get_max_buf_list_len",
    }  # fmt: skip
    assert name in made or re.search(rf"\b{name}\b", text)


def constants(prefix):
    """Values of the headers' enums by the part of their names behind a prefix."""
    text = "".join(stripped(path.read_text()) for path in HEADERS.glob("*.h"))
    pairs = re.findall(rf"\b{prefix}(\w+) = (\d+(?: << \d+)?)", text)
    return {name: eval(value) for name, value in pairs}


@pytest.mark.parametrize(
    ("kind", "prefix", "but"),
    [
        (Code, "DOCA_ERROR_", {"SUCCESS": 0}),
        (Access, "DOCA_ACCESS_FLAG_", {}),
        (State, "DOCA_CTX_STATE_", {}),
        (FunctionType, "DOCA_PCI_FUNC_TYPE_", {}),
        (RepresentorFilter, "DOCA_DEVINFO_REP_FILTER_", {}),
    ],
)
def test_numbers_are_those_of_the_headers(kind, prefix, but):
    members = {name: int(member) for name, member in kind.__members__.items()}
    assert members == {**constants(prefix), **but}


def test_sizes_of_texts_are_those_of_the_header():
    text = (HEADERS / "doca_dev.h").read_text()
    from dgkit.doca import doca_device

    for name in ("PCI_ADDR", "IBDEV_NAME", "IFACE_NAME", "VUID"):
        (size,) = re.findall(rf"#define DOCA_DEVINFO_{name}_SIZE\s+(\d+)", text)
        assert getattr(doca_device, f"_{name.split('_')[0]}") == int(size)


def test_each_callback_type_has_the_shape_of_the_function_that_notes():
    core = (ROOT / "native/dgkit.h").read_text()
    assert "void dg_doca_note(void *task, uint64_t task_data, uint64_t ctx_data);" in core
    shape = r"\(\*doca_dma_task_memcpy_completion_cb_t\)\(([^()]*)\);"
    declared, true = (
        [plain(one, named=True) for one in re.findall(shape, stripped(text))[0].split(",")]
        for text in (CDEF, (HEADERS / "doca_dma.h").read_text())
    )
    assert declared == true == ["struct doca_dma_task_memcpy *", "uint64_t", "uint64_t"]
