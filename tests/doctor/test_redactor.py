# SPDX-License-Identifier: Apache-2.0
"""What is shown to others names no machine and no person, and is otherwise as it was."""

import ipaddress
import re
import string

import msgspec
import pytest
from doctor.snapshots import NAMES, snapshot_file
from hypothesis import given, settings
from hypothesis import strategies as st

from dgkit.doctor import Goal, diagnose
from dgkit.doctor.collect.reader import Reading
from dgkit.doctor.collect.snapshot import RecordedReader, load
from dgkit.doctor.machine import Machine
from dgkit.doctor.redact.redactor import Redactor

HOST = "rack7-gx"
UNAME = {"ask uname": Reading(data={"node": f"{HOST}.lab.example", "release": "6.8.0"})}


def _hex(digits: int, cut: str = "", each: int = 2) -> st.SearchStrategy[str]:
    """Hexadecimal digits that are not all alike, with a letter among them."""
    found = st.text("0123456789abcdef", min_size=digits, max_size=digits)
    found = found.filter(lambda text: len(set(text)) > 4 and re.search("[a-f]", text))
    return found.map(lambda t: cut.join(t[at : at + each] for at in range(0, digits, each)))


def _uuid(text: str) -> str:
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


KEPT_V4 = ("127.", "0.", "255.", "192.168.100.", "198.18.", "198.19.")
ipv4 = st.ip_addresses(v=4).map(str).filter(lambda one: not one.startswith(KEPT_V4))
ipv6 = st.ip_addresses(v=6).filter(lambda one: 1 < int(one) % 2**64 < 2**64 - 1 < int(one))
letters = string.ascii_uppercase + string.digits
serial = st.text(letters, min_size=8, max_size=14).filter(
    lambda one: len(set(one)) > 4 and re.search("[0-9]", one)  # ETHERNET is no serial number
)

SECRETS = {
    "MAC": _hex(12, ":"),
    "MAC with dashes": _hex(12, "-"),
    "MAC in capitals": _hex(12, ":").map(str.upper),
    "GUID": _hex(16, ":", 4),
    "bare GUID": _hex(16, "", 16),
    "EUI-64": _hex(16, "-"),
    "GID": _hex(16, ":", 4).map(lambda low: f"fe80:0000:0000:0000:{low}"),
    "RoCE GID": ipv4.map(lambda one: f"{int(ipaddress.ip_address(one)):08x}").map(
        lambda low: f"0000:0000:0000:0000:0000:ffff:{low[:4]}:{low[4:]}"
    ),
    "GPU": _hex(32, "", 32).map(_uuid).map(lambda uuid: f"GPU-{uuid}"),
    "UUID": _hex(32, "", 32).map(_uuid),
    "machine id": _hex(32, "", 32),
    "container": _hex(64, "", 64),
    "IPv4": ipv4,
    "IPv6": ipv6.map(str),
    "long IPv6": ipv6.map(lambda one: one.exploded),
    "host": st.sampled_from([HOST, HOST.upper(), f"{HOST}.lab.example", f"{HOST}-bmc.lab"]),
    "interface": _hex(12, "", 12).map(lambda mac: f"enx{mac}"),
    "user": st.text(string.ascii_lowercase, min_size=4, max_size=9).map(
        lambda name: f"/home/q{name}z"
    ),
    "WWN": _hex(16, "", 16).map(lambda digits: f"wwn-0x{digits}"),
    "serial": serial.map(lambda text: f"Serial Number : {text}"),
    "board": st.from_regex(r"MT[0-9]{4}[A-Z][0-9A-Z]{5}", fullmatch=True),
}
LEFT = st.sampled_from([" ", "\n", " addr=", " (", "[", "\t", " inet ", " lladdr:", ", ", '"'])
RIGHT = st.sampled_from(["", " ", "\n", ")", "]", ",", ";", "/24", '"', ". ", ":", "' "])
AROUND = st.sampled_from(
    ["", "17:00.0 Ethernet", "0000:17:00.0", "LnkSta: Speed 32GT/s", "mlx5_0", "MT_0000000884"]
)
PLACES = {
    "text": lambda text: ("text /a", Reading(text=text)),
    "said": lambda text: ("run a", Reading(said=text)),
    "why": lambda text: ("text /a", Reading(fault="failed", why=text)),
    "name": lambda text: ("names /a", Reading(names=("a", text))),
    "value": lambda text: ("probe a", Reading(data={"a": [{"b": text}]})),
    "name of a value": lambda text: ("probe a", Reading(data={text: 1})),
    "key": lambda text: (f"text /sys/{text}/b", Reading(text="a")),
    "bytes": lambda text: ("raw /a", Reading(raw=text.encode())),
}


def _core(kind: str, secret: str) -> str:
    """What must not be seen: the secret without the words that go with it."""
    core = re.sub(r"^(GPU-|enx|/home/|wwn-0x|Serial Number : |fe80:0000:0000:0000:)", "", secret)
    return core.removeprefix("0000:0000:0000:0000:0000:ffff:")


def _all_text(readings: dict[str, Reading]) -> str:
    raw = b"".join(one.raw for one in readings.values()).decode("latin-1")
    return msgspec.json.encode(readings).decode() + raw


kinds = st.sampled_from(sorted(SECRETS))
EXAMPLES = settings.default.max_examples


@settings(max_examples=4 * EXAMPLES)
@given(kind=kinds, place=st.sampled_from(sorted(PLACES)), data=st.data())
def test_a_secret_of_any_kind_in_any_place_is_gone(
    kind: str, place: str, data: st.DataObject
) -> None:
    secret = data.draw(SECRETS[kind])
    before = data.draw(AROUND) + data.draw(LEFT) if data.draw(st.booleans()) else ""
    text = before + secret + data.draw(RIGHT) + " " + data.draw(AROUND)
    key, reading = PLACES[place](text)
    made = _all_text(Redactor().redact({**UNAME, key: reading}))
    assert _core(kind, secret).lower() not in made.lower(), text


@settings(max_examples=2 * EXAMPLES)
@given(kind=kinds, data=st.data())
def test_equal_secrets_get_equal_pseudonyms_and_others_get_others(
    kind: str, data: st.DataObject
) -> None:
    one, other = data.draw(st.lists(SECRETS[kind], min_size=2, max_size=2, unique_by=str.lower))
    twice = {"text /1": Reading(text=f"a {one}\n"), "probe 2": Reading(data=[one, other])}
    made = Redactor().redact({**UNAME, **twice})
    again, another = made["probe 2"].data
    assert made["text /1"].text == f"a {again}\n"
    assert again != another or kind == "host"


@settings(max_examples=2 * EXAMPLES)
@given(kind=kinds.filter(lambda kind: kind not in ("host", "user")), data=st.data())
def test_a_pseudonym_has_the_shape_of_what_it_stands_for(kind: str, data: st.DataObject) -> None:
    secret = data.draw(SECRETS[kind])
    made = Redactor().redact_text(secret)
    if "IPv6" in kind:
        before, after = ipaddress.IPv6Address(secret), ipaddress.IPv6Address(made)
        if before.ipv4_mapped:
            assert after.ipv4_mapped in ipaddress.ip_network("198.18.0.0/15")
        else:
            assert before.is_link_local or after in ipaddress.ip_network("2001:db8::/32")
        assert len(made) == len(secret) or len(secret) != 39
    elif kind == "IPv4":
        assert ipaddress.ip_address(made) in ipaddress.ip_network("198.18.0.0/15")
    else:
        hexadecimal = r"[0-9A-Z]" if kind in ("serial", "board") else r"[0-9A-Fa-f]"
        assert re.sub(hexadecimal, "0", made) == re.sub(hexadecimal, "0", secret)


@pytest.mark.parametrize(
    ("secret", "shape"),
    [
        ("0000:0000:0000:0000:0000:ffff:0a01:0203", r"(0000:){5}ffff:c61[23]:[0-9a-f]{4}"),
        ("::ffff:10.1.2.3", r"::ffff:198\.1[89]\.\d+\.\d+"),
    ],
)
def test_an_ipv4_address_within_an_ipv6_one_stays_one(secret: str, shape: str) -> None:
    """Python 3.13 writes such an address otherwise than those before it."""
    assert re.fullmatch(shape, Redactor().redact_text(secret))


PLAIN = """\
0000:17:00.0 00000000:17:00.0 17:00.0 0000:b0 pci0000:b0/0000:b0:02.0/0000:b1:00.0 10000:e1:00.0
15b3:a2dc 10de:20b8 pci:v000015B3d0000A2DCsv000015B3sd00000061bc02sc00i00
580.159.04 24.43.1014 5.15.0.1-generic 6.8.0-45-generic version 5.15.0.1 Driver Version: 12.4.1.0
libibverbs.so.1.14.44.0 /usr/lib/libcufile.so.1.9.0.20 fw_ver: 1.2.3.4 MLNX_OFED_LINUX-5.8-1.1.2.1
VBIOS Version : 96.00.74.00.0D firmware-version: 24.43.1014 (MT_0000000884) v1.2.3.4
0x00000000c6000000 0x00000000c6ffffff 0x0000000000040200 38bfe0000000-38bfffffffff
127.0.0.1 0.0.0.0 255.255.255.0 ::1 :: 192.168.100.1/30 192.168.100.2 [::]:22
00:00:00:00:00:00 ff:ff:ff:ff:ff:ff 0000:0000:0000:0000 0000:0000:0000:0000:0000:0000:0000:0000
Sat Nov 21 23:19:34 UTC 2026 12:30:45 2026-11-21 Wed Oct 30 01:55:12 UTC 2024
25276502016 262144 MiB 1099511627776 64 GT/s x16 00000000,0000ffff 000001ff
MT42822 BlueField-2 MT41692 MT2892 MBF2H516A-CENOT Part Number: 900-9D3B6-00CV-AA0
Serial Attached SCSI controller: Broadcom / LSI Serial bus controller Serial Number : N/A
IOMMU group 17 Capabilities: [40] Express (v2) Endpoint, MSI 00 LnkCap: Port #0
signer: Build time autogenerated kernel key
sig_key: 6A:12:E6:3B:6A:12:E6:3B:6A:12:E6:3B:6A:12:E6:3B:6A:12:E6:3B
std::vector<dead> GPU 0 GPU0 X NODE NODE 12-23,36-47 1 N/A mlx5_0 enp23s0f0np0 p0 pf0hpf
/root/x /home UUID N/A iommu=pt pci=realloc=off crashkernel=1G-4G:192M,4G-64G:256M
"""


def test_what_is_not_secret_is_unchanged() -> None:
    found = Reading(text=PLAIN, data={"version": "1.2.3.4", "driver": 13000, "ok": True, "x": None})
    named = {"run dpkg -l": Reading(text="a 1.2.3.4 b")}
    named["text /proc/self/status"] = Reading(text="CapEff:\t000001ffffffffff\n")
    made = Redactor().redact({**UNAME, "text /a": found, **named})
    assert made["text /a"].text.splitlines() == PLAIN.splitlines()
    assert made["text /a"].data == found.data
    assert {key: made[key] for key in named} == named


def test_addresses_are_told_from_versions_by_what_stands_around_them() -> None:
    text = "inet 10.1.2.3/24 version 10.1.2.3 10.1.2.3-10.1.2.9 ip-10.1.2.3 http://10.1.2.3/x"
    made = Redactor().redact_text(text)
    assert made.count("10.1.2.3") == 1
    assert "version 10.1.2.3 " in made


GID = "text /sys/class/infiniband/mlx5_0/ports/1/gids/0"


def test_one_thing_written_in_several_ways_stays_one() -> None:
    made = Redactor().redact(
        {
            "text /sys/class/infiniband/mlx5_0/node_guid": Reading(text="0c42:a103:0098:a4b2\n"),
            "run ibv_devices": Reading(text="    mlx5_0    \t0c42a1030098a4b2\n"),
            "run ibstat": Reading(text="Node GUID: 0x0c42a1030098a4b2\nlid 0x0c42a1030098a4b2"),
            "run lspci -vvv": Reading(text="Device Serial Number 0c-42-a1-03-00-98-a4-b2"),
            GID: Reading(text="fe80:0000:0000:0000:0c42:a103:0098:a4b2\n"),
            "run flint": Reading(text="Base MAC:   0c42a198a4b2\n"),
            "text /sys/class/net/enx0c42a198a4b2/address": Reading(text="0C:42:A1:98:A4:B2\n"),
        }
    )
    guid = made["text /sys/class/infiniband/mlx5_0/node_guid"].text.strip().replace(":", "")
    assert made["run ibv_devices"].text.split()[1] == guid
    assert made["run ibstat"].text.count(guid) == 2
    assert made["run lspci -vvv"].text.rpartition(" ")[2].replace("-", "") == guid
    assert made[GID].text.strip().replace(":", "") == "fe80" + "0" * 12 + guid
    mac = made["run flint"].text.split()[-1]
    assert (
        made[f"text /sys/class/net/enx{mac}/address"].text.strip().replace(":", "").lower() == mac
    )


def test_a_serial_number_known_from_one_place_is_gone_everywhere() -> None:
    made = Redactor().redact(
        {
            "run b": Reading(text="GPU 0, 1654922000123, ok"),
            "run a": Reading(text="Serial Number                         : 1654922000123"),
            "probe c": Reading(data={"serial": 1654922000123, "other": 1654922000123}),
            "text /sys/class/dmi/id/product_serial": Reading(text="AB 12-34 XY\n"),
        }
    )
    assert "1654922000123" not in _all_text(made)
    assert "AB 12-34 XY" not in _all_text(made)
    assert isinstance(made["probe c"].data["serial"], int)


def test_numbers_that_only_their_line_tells_from_others_are_gone() -> None:
    lines = [
        "    GPU PDI                : 0x3fe48144a2e805bb",
        "    GPU Fabric GUID        : 0x1234567890123456",
        "Base MAC: 0c42a198a4b2",
        "ID_WWN=0x5000c500a1b2c3d4",
        "<serial>1654922000123</serial>",
        '{"board_serial": "ABC-1234567"}',
    ]
    made = Redactor().redact({"run a": Reading(text="\n".join(lines))})["run a"].text.splitlines()
    for line, instead in zip(lines, made, strict=True):
        assert line != instead
        assert (line[:7], len(line)) == (instead[:7], len(instead))
    others = "0x3fe48144a2e805bb 0c42a198a4b2 [mem 0x00000000c6000000-0x00000000c6ffffff]"
    assert Redactor().redact_text(others) == others


def test_the_serial_number_in_pci_config_space_is_gone_and_nothing_else() -> None:
    config = bytearray(range(256)) + bytearray(4096 - 256)
    config[0x100:0x104] = (0x0001 | 1 << 16 | 0x150 << 20).to_bytes(4, "little")
    config[0x150:0x154] = (0x0003 | 1 << 16 | 0x100 << 20).to_bytes(4, "little")  # a loop
    config[0x154:0x15C] = bytes.fromhex("0c42a1030098a4b2")[::-1]
    key = "raw /sys/bus/pci/devices/0000:17:00.0/config"
    redactor = Redactor()
    made = redactor.redact({key: Reading(raw=bytes(config))})[key].raw
    assert made[:0x154] == config[:0x154]
    assert made[0x15C:] == config[0x15C:]
    said = redactor.redact_text("0c42:a103:0098:a4b2").replace(":", "")
    assert made[0x154:0x15C][::-1].hex() == said
    assert redactor.redact({key: Reading(raw=bytes(64))})[key].raw == bytes(64)


@given(st.binary(max_size=600))
def test_config_space_of_any_kind_keeps_its_size(raw: bytes) -> None:
    key = "raw /sys/bus/pci/devices/0000:17:00.0/config"
    assert len(Redactor().redact({key: Reading(raw=raw)})[key].raw) == len(raw)


@given(st.text())
def test_any_text_is_taken(text: str) -> None:
    Redactor().redact(
        {f"text {text}": Reading(text=text, said=text, names=(text,), data={text: text})}
    )


SECRET = {"text /a": Reading(text="0c:42:a1:98:a4:b2 10.1.2.3")}


def test_two_files_do_not_match_unless_they_share_a_word() -> None:
    assert Redactor().redact(SECRET) != Redactor().redact(SECRET)
    assert Redactor("one word").redact(SECRET) == Redactor("one word").redact(SECRET)
    assert Redactor("one word").redact(SECRET) != Redactor("another").redact(SECRET)


def test_many_addresses_all_get_pseudonyms_of_their_own() -> None:
    redactor = Redactor()
    made = {redactor.redact_text(f"10.{n >> 8}.{n & 255}.7") for n in range(4000)}
    assert len(made) == 4000


@pytest.mark.parametrize("text", ["a:" * 200_000, "aa:" * 200_000, "1." * 200_000, "f" * 400_000])
def test_long_odd_texts_take_no_time_worth_naming(text: str) -> None:
    Redactor().redact_text(text)  # the test's own time limit would end it


@pytest.mark.parametrize("name", NAMES)
def test_a_machine_is_judged_with_pseudonyms_as_without(name: str) -> None:
    found = load(snapshot_file(name))
    made = msgspec.structs.replace(found, readings=Redactor().redact(found.readings))
    both = [Machine(RecordedReader(one)) for one in (found, made)]
    for goal in Goal:
        as_it_was, as_shown = (
            [(f.check, f.subject, f.verdict, f.found, f.remedy) for f in judged.findings]
            for judged in (diagnose([machine], goal=goal) for machine in both)
        )
        assert as_shown == as_it_was, goal
