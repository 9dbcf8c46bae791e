"""AdapterStore: the directory of adapter versions, `<root>/<agent>/v000012/`. No torch, no HTTP.

A version's directory appears complete and durable in one rename, or not at all. It is never written again and its
number is never reused. `verify` names the file that is missing, altered, surplus, of the wrong shape or of another
base. A version goes by one rename too, and only by `remove`. What an interrupted step published, `sweep` moves into
`<root>/quarantine/` without its probe, which holds tokens of turns. There it stays until a user removes it.
"""

import errno
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from burnish.adapters.base_model import revision
from burnish.adapters.files.contents import check_contents
from burnish.config import Settings
from burnish.errors import AdapterError
from burnish.files import replace_text

MANIFEST = "manifest.json"
PROBE = "probe.json"
QUARANTINE = "quarantine"
PAST = ".past"
RECORD = (MANIFEST, "state.json")
"""What stays of a version whose files are removed: how it was made, so that what came after can be made again."""
_VERSION = re.compile(r"v(\d{6,})")
_ASIDE = re.compile(r"\.v(\d{6,})\.tmp-\d+")
_AGENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.~-]*")


class AdapterStore:
    """Versions of all agents under `root`. Safe to use from several processes, because every change is one rename.

    With a `base` (a model's directory), `verify` refuses versions that were made on another one.
    """

    def __init__(self, root: Path, base: Path | None = None) -> None:
        self.root = Path(root)
        self.base = base

    @classmethod
    def of(cls, settings: Settings) -> "AdapterStore":
        """The store of a configuration. Its versions are for the engine's model if that is a local directory."""
        model = Path(settings.engine.model)
        return cls(settings.adapters_dir.resolve(), model if model.is_dir() else None)

    def path(self, agent: str, version: int) -> Path:
        """The directory of this version, whether it exists or not."""
        if not _AGENT.fullmatch(agent) or version < 1:
            raise AdapterError(
                f"no adapter can be called {agent}@v{version}: names are letters, digits, '_.~-'; numbers from 1"
            )
        return self.root / agent / f"v{version:06d}"

    def record(self, agent: str, version: int) -> Path:
        """The directory that says how this version was made, whether its weights are there or not."""
        final = self.path(agent, version)
        return final if final.is_dir() else final.parent / PAST / final.name

    def versions(self, agent: str) -> list[int]:
        """Numbers of the versions that exist, ascending."""
        return sorted(number for number, _ in self._directories(agent))

    def highest(self) -> dict[str, int]:
        """The highest number of each agent that has versions here."""
        names = (
            [path.name for path in sorted(self.root.iterdir()) if _AGENT.fullmatch(path.name)]
            if self.root.is_dir()
            else []
        )
        return {name: found[-1] for name in names if (found := self.versions(name))}

    @property
    def binding(self) -> Path:
        """The file with the id of the journal that this store belongs to (adapters/files/binding.py). No agent can have
        this name.
        """
        return self.root / ".journal-id"

    def journal_id(self) -> str | None:
        """The id in that file. None if there is none."""
        try:
            return self.binding.read_text(encoding="utf-8").strip() or None
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise AdapterError(f"cannot read {self.binding}: {error}") from error

    def bind(self, journal_id: str) -> None:
        """Write that file. Durable on return."""
        replace_text(self.binding, f"{journal_id}\n")

    def manifest(self, agent: str, version: int) -> dict[str, Any]:
        """The facts that were recorded when the version was published. They stay when its files go."""
        return self.manifest_in(self.record(agent, version))

    @staticmethod
    def manifest_in(directory: Path) -> dict[str, Any]:
        """The same for a version's directory, wherever it is."""
        file = directory / MANIFEST
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise AdapterError(f"an adapter is incomplete: {file} is missing") from error
        except (OSError, ValueError) as error:
            raise AdapterError(f"cannot read {file}: {error}") from error
        if not isinstance(found, dict):
            raise AdapterError(f"{file} is not a manifest: expected an object, got {type(found).__name__}")
        return found

    @contextmanager
    def aside(self, agent: str, version: int) -> Iterator[Path]:
        """An empty directory for the version's files. It is removed afterwards unless it was published."""
        final = self.path(agent, version)
        self._refuse_existing(final)
        directory = final.parent / f".{final.name}.tmp-{os.getpid()}"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        try:
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def publish(self, agent: str, version: int, directory: Path, facts: Mapping[str, Any]) -> Path:
        """Make the files in `directory` this version, in one rename. Returns its path.

        The manifest is `facts` (rank, alpha and targets among them) plus name, digests and time. Durable on return.
        """
        final = self.path(agent, version)
        self._refuse_existing(final)
        files = {file.name: digest_of(file) for file in sorted(directory.iterdir())}
        manifest = {**facts, "agent": agent, "version": version, "files": files, "created_at": time.time()}
        (directory / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True), encoding="utf-8")
        check_contents(directory, manifest)
        for file in directory.iterdir():
            _fsync(file)
        _fsync(directory)
        try:
            directory.rename(final)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
            # another process was faster: rename never replaces a directory with files in it
            raise AdapterError(f"cannot publish {final}: {error.strerror}") from error
        _fsync(final.parent)
        _fsync(self.root)
        return final

    def verify(self, agent: str, version: int) -> dict[str, Any]:
        """The manifest, after all files were checked against it. Raises AdapterError that names the first wrong
        file."""
        directory = self.path(agent, version)
        if not directory.is_dir():
            raise AdapterError(f"adapter {agent}@v{version} does not exist: no directory {directory}")
        manifest = self.manifest(agent, version)
        if (manifest.get("agent"), manifest.get("version")) != (agent, version):
            said = f"{manifest.get('agent')}@v{manifest.get('version')}"
            raise AdapterError(f"{directory / MANIFEST} belongs to {said}, expected {agent}@v{version}")
        check_contents(directory, manifest)
        self._check_base(directory, manifest)
        for name, digest in manifest["files"].items():
            if (found := digest_of(directory / name)) != digest:
                raise AdapterError(f"{directory / name} was altered: sha256 {found[:12]}…, published as {digest[:12]}…")
        return manifest

    def _check_base(self, directory: Path, manifest: Mapping[str, Any]) -> None:
        if (other := self._other_base(manifest)) is not None:
            raise AdapterError(
                f"{directory / MANIFEST}: made on base {other[:12]}…, but engine.model is another one ({self.base}); "
                "name the other base in engine.model, or learn anew with another state directory (--state)"
            )

    def is_of_another_base(self, agent: str, version: int) -> bool:
        """True if the version was made on another base than this store's. False if its manifest cannot be read."""
        try:
            return self._other_base(self.manifest(agent, version)) is not None
        except AdapterError:
            return False

    def _other_base(self, manifest: Mapping[str, Any]) -> str | None:
        """The revision of a version's base if it is another one. Without one the trial's probe decides."""
        base = manifest.get("base")
        made_on = base.get("revision") if isinstance(base, Mapping) else None
        if self.base is None or made_on is None or made_on == revision(self.base):
            return None
        return str(made_on)

    def sweep(self, agent: str, unfinished: Collection[int]) -> dict[Path, Path | None]:
        """Clean up after interrupted steps. `unfinished` are the numbers of this agent's steps that ended without a
        version.

        A version that such a step published is moved into quarantine. A half-written one is removed. Everything else
        stays. Returns the directories found, each with its new path, None if it was removed. Call it at the start of
        the one process that trains this agent.
        """
        cleared: dict[Path, Path | None] = {}
        home = self.path(agent, 1).parent
        for path in sorted(home.iterdir()) if home.is_dir() else ():
            match = _ASIDE.fullmatch(path.name)
            if match and int(match[1]) in unfinished:
                shutil.rmtree(path)
                cleared[path] = None
        for number, path in list(self._directories(agent)):
            if number in unfinished:
                cleared[path] = self._quarantine(agent, path)
        return cleared

    def _quarantine(self, agent: str, path: Path) -> Path:
        now = time.time_ns()
        stamp = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(now // 10**9))}.{now % 10**9:09d}Z"
        target = self.root / QUARANTINE / f"{agent}@{path.name}-{stamp}"
        target.parent.mkdir(exist_ok=True)
        path.rename(target)
        (target / PROBE).unlink(missing_ok=True)  # turns may have been erased since
        _fsync(target.parent)
        _fsync(path.parent)
        return target

    def quarantined(self, agent: str) -> list[Path]:
        """The agent's directories in quarantine, by name. Only a user decides when they go."""
        return sorted((self.root / QUARANTINE).glob(f"{agent}@v*"))

    def directories(self) -> list[Path]:
        """Every version that is whole, of any agent, announced or not, the records of removed ones, and everything in
        quarantine.
        """
        homes = [path for path in self.root.iterdir() if _AGENT.fullmatch(path.name)] if self.root.is_dir() else []
        places = [place for home in sorted(homes) for place in (home, home / PAST)]
        found = [path for place in places for path in sorted(place.glob("*v[0-9]*"))]
        return [path for path in found if not path.name.startswith(".") and (path / MANIFEST).exists()]

    def remove(self, agent: str, version: int) -> bool:
        """Remove the version's files but for its record, first from their name and then from the disk. False if there
        are none.

        The caller has recorded before that the version is gone. After a crash, `sweep_removed` finishes the work.
        """
        final = self.path(agent, version)
        gone = final.parent / f".{final.name}.gone-{os.getpid()}"
        self._keep_record(final)
        try:
            final.rename(gone)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise AdapterError(f"cannot remove {final}: {error.strerror}") from error
        _fsync(final.parent)
        shutil.rmtree(gone, ignore_errors=True)
        return True

    def _keep_record(self, final: Path) -> None:
        kept = final.parent / PAST / final.name
        for name in RECORD:
            if (final / name).is_file():
                kept.mkdir(parents=True, exist_ok=True)
                replace_text(kept / name, (final / name).read_text(encoding="utf-8"))

    def forget(self, agent: str) -> None:
        """Remove everything of an agent, records included."""
        shutil.rmtree(self.path(agent, 1).parent, ignore_errors=True)

    def sweep_removed(self, agent: str) -> None:
        """Finish removals that a crash interrupted."""
        for path in self.path(agent, 1).parent.glob(".v*.gone-*"):
            shutil.rmtree(path, ignore_errors=True)

    def _directories(self, agent: str) -> Iterator[tuple[int, Path]]:
        home = self.path(agent, 1).parent
        for path in sorted(home.iterdir()) if home.is_dir() else ():
            if (match := _VERSION.fullmatch(path.name)) and path.is_dir():
                yield int(match[1]), path

    def _refuse_existing(self, final: Path) -> None:
        if final.exists():
            raise AdapterError(f"{final} exists already; versions are immutable and numbers are never reused")


def digest_of(file: Path) -> str:
    """SHA-256 of a file, in hex. Raises AdapterError if it cannot be read."""
    try:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise AdapterError(f"cannot read {file}: {error.strerror}") from error


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
