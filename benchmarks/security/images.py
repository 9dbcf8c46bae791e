"""What a Docker build would copy into an image, read from the Dockerfiles and `.dockerignore`. Nothing is built."""

import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

HERE = Path(__file__).parents[2]
DOCKERFILES = HERE / "deploy" / "docker"
PLACES = (
    *(".env", "burnish.toml", ".burnish/admin.key", ".burnish/run/engine.key", ".burnish-test/journal.db"),
    *("deploy/.env", "src/.env", "src/burnish/.env.local", "server/admin.key", "learner/journal.db-wal"),
    *(".venv/secret", "tests/secret"),
)
"""Places in a checkout where operators leave secrets."""
_COPY = re.compile(r"^COPY (?!--from)(?P<what>.+?) \S+$", re.MULTILINE)


def secrets_copied(root: Path) -> list[str]:
    """Plant a file at each of `PLACES` below `root`, an empty folder. Returns those that an image would hold."""
    for place in PLACES:
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).write_text("planted", encoding="utf-8")
    ignored = (HERE / ".dockerignore").read_text(encoding="utf-8").split()
    return sorted({place for file in DOCKERFILES.glob("*Dockerfile") for place in _copied(file, root, ignored)})


def _copied(dockerfile: Path, root: Path, ignored: list[str]) -> Iterator[str]:
    sources = [name for found in _COPY.finditer(dockerfile.read_text("utf-8")) for name in found["what"].split()]
    for path in root.rglob("*"):
        place = PurePosixPath(path.relative_to(root).as_posix())
        is_copied = any(PurePosixPath(source) in (place, *place.parents) or source == "." for source in sources)
        if path.is_file() and is_copied and not any(_matches(place, pattern) for pattern in ignored):
            yield str(place)


def _matches(place: PurePosixPath, pattern: str) -> bool:
    """True if the file or a folder above it matches a pattern of `.dockerignore`."""
    names = [place, *place.parents][:-1]
    if pattern.startswith("**/"):
        return any(fnmatch(name.name, pattern[3:]) for name in names)
    return any(fnmatch(str(name), pattern) for name in names)
