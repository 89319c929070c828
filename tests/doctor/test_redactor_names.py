# SPDX-License-Identifier: Apache-2.0
"""Names: of hosts, of what is in their domain, of users and of folders."""

import re

import msgspec
import pytest

from dgkit.doctor.collect.reader import Reading
from dgkit.doctor.redact.redactor import Redactor


def _all_text(readings: dict[str, Reading]) -> str:
    return msgspec.json.encode(readings).decode()


NOT_IDENTIFYING = [
    "localhost",
    "nvidia",
    "h200",
    "GPU",
    "bf3",
    "vm",
    "core",
    "gpu0",
    "loaded",
    "a2dc",
    "hca",
]


@pytest.mark.parametrize("name", NOT_IDENTIFYING)
def test_the_name_of_a_host_that_names_nobody_changes_nothing_else(name: str) -> None:
    found = {
        "run a": Reading(text=" ".join(NOT_IDENTIFYING)),
        "probe core": Reading(data={"loaded": True}),
    }
    named = {"ask hostname": Reading(data=name), "text /etc/hostname": Reading(text=f"{name}\n")}
    made = Redactor().redact({**found, **named, "ask uname": Reading(data={"node": name})})
    assert {key: made[key] for key in found} == found
    assert name not in (made["ask hostname"].data, made["ask uname"].data["node"])
    assert made["text /etc/hostname"].text == f"{made['ask hostname'].data}\n"


@pytest.mark.parametrize("host", ["gw.acme.corp", "node.acme.corp", "rack7-gx.lab.acme.corp"])
def test_nothing_in_the_hosts_domain_is_named(host: str) -> None:
    text = f"{host} other.acme.corp a.b.ACME.corp, root@{host}:~#"
    named = {"ask hostname": Reading(data=host), "ask uname": Reading(data={"node": host})}
    assert (
        "acme" not in _all_text(Redactor().redact({**named, "run a": Reading(text=text)})).lower()
    )


@pytest.mark.parametrize("host", ["a1b2c3d4e5f6", "ip-10-1-2-3", "merlin", "gpu-merlin"])
def test_a_host_that_is_known_by_its_name_is_gone_everywhere(host: str) -> None:
    readings = {"ask hostname": Reading(data=host), "run a": Reading(text=f"root@{host}:~#")}
    assert host not in _all_text(Redactor().redact(readings))


def test_folders_name_nobody_and_still_lead_into_each_other() -> None:
    own = "/data/bobby/merger/softdoca/lib"
    made = Redactor().redact(
        {
            "ask environ": Reading(
                data={"SOFTDOCA_LIB": own, "GDRCOPY_PATH_L": "/mnt/acme-corp/x"}
            ),
            "names /mnt/acme-corp/x": Reading(names=("libgdrapi.so.2",)),
            "probe libraries": Reading(data={"a": {"path": f"{own}/libdoca_common.so.2.5.0"}}),
            "run a": Reading(said="/home/bobby/x: bobby has no /root/merger/y, /data/bobby"),
            "text /sys/class/net/p0/address": Reading(text="/usr/lib/libcuda.so.1\n"),
        }
    )
    assert not re.search("bobby|merger|acme", _all_text(made))
    folder = made["ask environ"].data["SOFTDOCA_LIB"]
    assert made["probe libraries"].data["a"]["path"] == f"{folder}/libdoca_common.so.2.5.0"
    assert folder.endswith("/softdoca/lib")
    assert f"names {made['ask environ'].data['GDRCOPY_PATH_L']}" in made
    assert made["text /sys/class/net/p0/address"].text == "/usr/lib/libcuda.so.1\n"


def test_serial_numbers_within_serial_numbers_end() -> None:
    assert Redactor().redact_text("serial=" * 400)
    made = Redactor().redact_text("serial=serial=AB12345678")
    assert "AB12345678" not in made


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("address b83f.d2aa.bbcc", "b83f.d2aa"),
        ("S/N: ABC1234567", "ABC1234567"),
        ("Service Tag: 7XYZ123", "7XYZ123"),
        ("Asset Tag: ACME-0012", "ACME"),
        ("docker bridge br-0123456789ab", "0123456789ab"),
    ],
)
def test_less_usual_forms_are_gone(text: str, secret: str) -> None:
    assert secret not in Redactor().redact_text(text)


NAMED = {"ask uname": Reading(data={"node": "rack7-gx.lab.example", "release": "6.8.0"})}


def test_the_kernels_ip_parameter_keeps_its_form() -> None:
    ip = "ip=10.1.2.3::10.1.2.1:255.255.255.0:rack7-gx:eth0:off"
    found = Reading(text=f"{ip} BOOTIF=01-0c-42-a1-98-a4-b2")
    made = Redactor().redact({**NAMED, "text /proc/cmdline": found})["text /proc/cmdline"].text
    v4 = r"198\.1[89]\.\d+\.\d+"
    form = rf"ip={v4}::{v4}:255\.255\.255\.0:host-\w+:eth0:off BOOTIF=01-02(-\w\w){{5}}"
    assert re.fullmatch(form, made)
