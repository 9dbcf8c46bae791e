"""Attacks by imported adapters: bombs, and names that lead elsewhere."""

import gzip
import io
import secrets
import tarfile
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.security.attacks import add
from benchmarks.security.attacks.stand import Stand

ABSOLUTE = Path(tempfile.gettempdir()) / f"burnish-{secrets.token_hex(8)}-planted.json"
_GAIN = 64 * 2**20
"""Bytes of memory that an import of a few hundred kilobytes must not take."""


def _tar(*members: tarfile.TarInfo, form: int = tarfile.USTAR_FORMAT, content: bytes = b"{}") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as archive:
        for member in members:
            member.size = len(content) if member.isreg() else 0
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def _member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    return made


def _pax() -> bytes:
    made = _member("adapter_config.json")
    made.pax_headers = {"comment": "x" * (48 * 2**20)}
    return gzip.compress(_tar(made, form=tarfile.PAX_FORMAT))


def _pax_plain() -> bytes:
    made = _member("adapter_config.json")
    made.pax_headers = {"comment": "x" * (48 * 2**20)}
    return _tar(made, form=tarfile.PAX_FORMAT)


_ARCHIVES: dict[str, Callable[[], bytes]] = {
    "a compressed bomb": lambda: gzip.compress(_tar(_member("adapter_model.safetensors"), content=bytes(200 * 2**20))),
    "a bomb of headers": _pax,
    "a bomb of headers, not compressed": _pax_plain,
    "a link": lambda: _tar(_member("adapter_config.json", tarfile.SYMTYPE, "/etc/passwd")),
    "a hard link": lambda: _tar(_member("adapter_config.json", tarfile.LNKTYPE, "/etc/passwd")),
    "a device": lambda: _tar(_member("adapter_config.json", tarfile.CHRTYPE)),
    "a path that leads out": lambda: _tar(_member("../../planted.json")),
    "an absolute path": lambda: _tar(_member(str(ABSOLUTE))),
    "a pickle": lambda: _tar(_member("adapter_config.json"), _member("adapter_model.bin")),
    "thousands of members": lambda: _tar(*(_member(f"f{n}.json") for n in range(5_000))),
}


def _gets_in(archive: Callable[[], bytes], stand: Stand) -> bool:
    before = stand.memory()
    path = "/admin/agents/agent/versions/import"
    answer = stand.ask("POST", path, "operator", content=archive(), headers={"content-type": "application/x-tar"})
    planted = [*stand.folder.rglob("*planted.json"), *ABSOLUTE.parent.glob(ABSOLUTE.name)]
    return answer.is_success or bool(planted) or stand.memory() - before > _GAIN


for _name, _archive in _ARCHIVES.items():
    add(f"an import is {_name}", partial(_gets_in, _archive))
