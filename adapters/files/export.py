"""A version as a plain PEFT directory for use elsewhere: configuration, weights and manifest.

The weights are bit for bit those that were published and verified. The directory appears whole or not at all.
"""

import io
import json
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from burnish.adapters.files.contents import CONFIG, WEIGHTS
from burnish.adapters.files.store import MANIFEST, AdapterStore
from burnish.errors import AdapterError
from burnish.records import VersionName

FILES = (CONFIG, WEIGHTS)


def export(store: AdapterStore, agent: str, version: int, target: Path) -> Path:
    """Write `agent@v<version>` into the new directory `target`, which `PeftModel.from_pretrained` loads.

    Raises AdapterError if the version's files are damaged or `target` exists.
    """
    manifest = store.verify(agent, version)
    if target.exists():
        raise AdapterError(f"{target} exists already; name a new directory")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        try:
            for name in FILES:
                shutil.copyfile(store.path(agent, version) / name, aside / name)
            (aside / MANIFEST).write_bytes(_manifest(manifest))
            for file in aside.iterdir():
                file.chmod(0o644)
            aside.chmod(0o755)
            aside.rename(target)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
    except OSError as error:
        raise AdapterError(f"cannot write {target}: {error.strerror}") from error
    return target


def as_tar(store: AdapterStore, agent: str, version: int) -> bytes:
    """The same directory, called `agent@v<version>`, as an uncompressed tar archive."""
    manifest = store.verify(agent, version)
    name = str(VersionName(agent, version))
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for file in FILES:
            archive.add(store.path(agent, version) / file, f"{name}/{file}", recursive=False)
        text = _manifest(manifest)
        entry = tarfile.TarInfo(f"{name}/{MANIFEST}")
        entry.size = len(text)
        archive.addfile(entry, io.BytesIO(text))
    return buffer.getvalue()


def _manifest(manifest: dict[str, Any]) -> bytes:
    """The version's manifest, with the digests of the exported files only."""
    files = {name: manifest["files"][name] for name in FILES}
    return json.dumps({**manifest, "files": files}, indent=1, sort_keys=True).encode()
