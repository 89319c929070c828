"""CURVE keys: who may talk over TCP.

A pair lies in two files of the keys folder ($XDG_CONFIG_HOME/dgkit/keys, else
~/.config/dgkit/keys, mode 0700): NAME.secret (mode 0600) and NAME.public. The file `allowed` has
one line for each client that an agent lets in: the public key, a space, a name. Keys are written
as 64 hex digits, which no shell and no URL needs to quote.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import AccessDenied, PeerRefused

__all__ = ["KeyInfo", "KeyPair", "allow", "allowed", "check_public", "folder", "listing", "load"]
__all__ += ["make", "remove"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HEX = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A side's identity. `public` and `secret` are 64 hex digits."""

    name: str
    public: str
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class KeyInfo:
    """A key on file. `own`: its secret half is here. `allowed`: an agent lets it in."""

    name: str
    public: str
    own: bool
    allowed: bool


def folder() -> Path:
    """The keys folder; made if it is not there. AccessDenied if others may write to it."""
    config = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    path = Path(config) / "dgkit" / "keys"
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    stat = path.stat()
    if stat.st_uid != os.geteuid() or stat.st_mode & 0o022:
        raise AccessDenied(f"{path} can be changed by others: make it yours alone (chmod 700)")
    return path


def make(name: str = "default") -> KeyPair:
    """Makes a pair and stores it. FileExistsError: that name is taken."""
    import zmq
    from zmq.utils import z85

    if not _NAME.fullmatch(name):
        raise ValueError(f"key name {name!r}: 1 to 64 letters, digits, dots, dashes, underscores")
    public, secret = (z85.decode(key).hex() for key in zmq.curve_keypair())
    where = folder()
    _store(where / f"{name}.secret", secret, 0o600)
    _store(where / f"{name}.public", public, 0o644)
    return KeyPair(name, public, secret)


def load(name: str = "default") -> KeyPair:
    """A stored pair. PeerRefused: there is none of that name. AccessDenied: others can read it."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"key name {name!r}: 1 to 64 letters, digits, dots, dashes, underscores")
    path = folder() / f"{name}.secret"
    if not path.exists():
        raise PeerRefused(
            f"tcp needs a key pair on both sides and there is no {path}: {_others()}make one with "
            f"`dgkit keys make {name}`, and let the other side's key in with `dgkit keys allow KEY`"
        )
    stat = path.stat()
    if stat.st_mode & 0o077 or stat.st_uid != os.geteuid():
        mode = f"{stat.st_mode & 0o777:03o}"
        raise AccessDenied(
            f"{path} holds a secret and others can read it (mode {mode}, owner {stat.st_uid}): "
            f"`chmod 600 {path}`, or make a new pair if they may have"
        )
    return KeyPair(name, _read(path.with_suffix(".public")), _read(path))


def _others() -> str:
    """Which pairs there are, and how to name one."""
    names = sorted(path.stem for path in folder().glob("*.secret"))
    if not names:
        return ""
    known = ", ".join(names)
    return f'name one with `--keys NAME` (keys="NAME" in Python; there are: {known}), or '


def allow(public: str, name: str = "") -> None:
    """Lets the client with this public key in. An agent reads the list at every handshake."""
    key = check_public(public)
    if not name.isprintable():
        raise ValueError(f"key name {name!r} does not fit a line")
    if key in allowed():
        return
    fd = os.open(folder() / "allowed", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as out:
        out.write(f"{key} {name}\n")


def remove(public: str) -> str:
    """Lets this key in no more; its name. ValueError: it was not let in.

    A client that is connected stays so.
    """
    key = check_public(public)
    inside = allowed()
    if key not in inside:
        raise ValueError(f"{key} is not let in: there is nothing to remove")
    path = folder() / "allowed"
    part = path.with_name(f".allowed.{os.getpid()}")
    part.unlink(missing_ok=True)
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as out:
        out.writelines(f"{other} {name}\n" for other, name in inside.items() if other != key)
    part.replace(path)
    return inside[key]


def allowed() -> dict[str, str]:
    """Public keys that are let in, and their names."""
    path = folder() / "allowed"
    if not path.exists():
        return {}
    if path.stat().st_mode & 0o022:
        raise AccessDenied(f"{path} can be changed by others: `chmod 600 {path}`")
    rows = (line.partition(" ") for line in path.read_text(encoding="utf-8").splitlines())
    return {key: name.strip() for key, _, name in rows if _HEX.fullmatch(key)}


def listing() -> list[KeyInfo]:
    """Own pairs by name, then the keys of others that are let in."""
    inside = allowed()
    own = [(path.stem, _read(path)) for path in sorted(folder().glob("*.public"))]
    rows = [KeyInfo(name, public, True, public in inside) for name, public in own]
    mine = {public for _, public in own}
    return rows + [
        KeyInfo(name, key, False, True) for key, name in inside.items() if key not in mine
    ]


def check_public(public: str) -> str:
    """The key in lower case. ValueError if it is no key."""
    key = public.strip().lower()
    if not _HEX.fullmatch(key):
        raise ValueError(f"a public key is 64 hex digits; this is {public!r:.80}")
    return key


def _read(path: Path) -> str:
    text = path.read_text(encoding="ascii").strip()
    if not _HEX.fullmatch(text):
        raise ValueError(f"{path} holds no key (64 hex digits); make a new pair")
    return text


def _store(path: Path, text: str, mode: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(fd, "w", encoding="ascii") as out:
        out.write(text + "\n")
