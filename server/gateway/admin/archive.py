"""A tar archive of an adapter's directory, read with bounded memory: plain tar alone, one header after the other.

Python's tarfile reads extended headers whole, sparse maps too, and unpacks what is compressed. A sender could make any
of these as large as it likes. Here an extended header has at most a few kilobytes, and only its file name is used.
"""

import tarfile
from pathlib import Path
from typing import BinaryIO, NamedTuple

from burnish.adapters.files.contents import CONFIG, WEIGHTS
from burnish.adapters.files.foreign import MANIFEST
from burnish.errors import RequestError
from burnish.server.gateway.http.asgi import MAX_ARCHIVE_BYTES

MAX_BYTES = MAX_ARCHIVE_BYTES
MAX_JSON = 2**20
MAX_MEMBERS = 256
MAX_EXTENDED = 16 * 1024
_MOST = {CONFIG: MAX_JSON, WEIGHTS: MAX_BYTES, MANIFEST: MAX_JSON}
_PAX = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
_LONG = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_PLAIN = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
_PACKED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")


class _Member(NamedTuple):
    """A file's last name, and where its content lies in the archive."""

    name: str
    at: int
    size: int


def unpack(archive: Path, folder: Path) -> None:
    """Unpack the adapter's files of `archive` into the new `folder`, under their last names. Of other files only the
    names are kept, empty.

    Raises RequestError if it is no plain tar archive, holds links or devices, or is larger than an adapter may be.
    """
    folder.mkdir()
    try:
        with archive.open("rb") as file:
            for member in _members(file, archive.stat().st_size):
                with (folder / member.name).open("xb") as out:
                    if member.name in _MOST:
                        file.seek(member.at)
                        _copy(file, out, member.size)
    except FileExistsError as error:
        raise _refused(
            f"the archive holds {Path(error.filename).name!r} twice; send one adapter's directory"
        ) from error
    except (tarfile.TarError, OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or error
        raise _refused(
            f"the body is no tar archive of an adapter's directory: {why}; make one with `tar -c DIRECTORY`"
        ) from error


def _members(file: BinaryIO, n_bytes: int) -> list[_Member]:
    """The archive's plain files. Nothing but their headers is read."""
    found: list[_Member] = []
    long_name = ""
    n_headers = 0
    while any(header := file.read(tarfile.BLOCKSIZE)):
        if not n_headers and header.startswith(_PACKED):
            raise ValueError("it is compressed; send it as it is")
        info = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
        at = file.tell()
        n_headers += 1
        if n_headers > 3 * MAX_MEMBERS or len(found) > MAX_MEMBERS:
            raise _refused(f"the archive holds more than {MAX_MEMBERS} files; send one adapter's directory")
        if not 0 <= info.size <= n_bytes - at:
            raise ValueError("it ends within a file")
        if info.type in (*_PAX, *_LONG):
            if info.size > MAX_EXTENDED:
                raise ValueError(f"an extended header of {info.size} bytes")
            extended = file.read(info.size)
            if info.type == tarfile.GNUTYPE_LONGNAME:
                long_name = extended.rstrip(b"\0").decode("utf-8", "surrogateescape")
            elif info.type in _PAX:
                long_name = _path_in(extended) or long_name
        elif info.type in _PLAIN:
            name = Path(long_name or info.name).name
            if info.size > _MOST.get(name, MAX_BYTES):
                raise RequestError(
                    f"{name!r} has more than {_MOST.get(name, MAX_BYTES)} bytes", code="request_too_large"
                )
            if name not in ("", ".", ".."):
                found.append(_Member(name, at, info.size))
            long_name = ""
        elif info.type == tarfile.DIRTYPE:
            long_name = ""
        else:
            raise _refused(f"the archive's {Path(info.name).name!r} is no plain file; send one without links")
        file.seek(at + -(-info.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE)
    if not n_headers:
        raise ValueError("it is empty")
    return found


def _path_in(extended: bytes) -> str:
    """The file's name in a pax header: records of `length key=value`. Empty if there is none.

    Raises ValueError for a header that is none, and for one that gives another size than the plain header.
    """
    name, at = "", 0
    while at < len(extended):
        digits, space, _ = extended[at : at + 8].partition(b" ")
        length = int(digits)
        key, is_record, value = extended[at + len(digits) + 1 : at + length].rstrip(b"\n").partition(b"=")
        if not space or not is_record or length <= 0:
            raise ValueError("a broken extended header")
        if key == b"size" or key.startswith(b"GNU.sparse"):
            raise ValueError("a file larger than its header says")
        if key == b"path":
            name = value.decode("utf-8", "surrogateescape")
        at += length
    return name


def _copy(file: BinaryIO, out: BinaryIO, n_bytes: int) -> None:
    while n_bytes:
        piece = file.read(min(n_bytes, 2**20))
        if not piece:
            raise ValueError("it ends within a file")
        out.write(piece)
        n_bytes -= len(piece)


def _refused(why: str) -> RequestError:
    return RequestError(why, code="invalid_value")
