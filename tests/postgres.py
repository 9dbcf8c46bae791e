"""A private PostgreSQL for tests.

It has its own data directory and unix socket, belongs to an unprivileged user and ends with the session. Debian's
`postgresql` is installed if its programs are missing and this is root. Otherwise the tests that need it fail with that
reason. They are never skipped silently.
"""

import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlmodel import SQLModel

from burnish.journal import Journal

PR_SET_PDEATHSIG = 1
TEMPLATE = "burnish_template"
_RUNNING = pytest.StashKey["Postgres"]()
_LIBC = ctypes.CDLL(None)


@dataclass
class Postgres:
    """One server. `emptied` is a database with an empty journal, `fresh` is a new database."""

    folder: Path
    process: "subprocess.Popen[bytes]"
    command: Sequence[str]
    port: int = 5432
    n_databases: int = 0
    _shared: str = ""

    def start(self) -> None:
        """Start it again after it has ended, and wait until it answers."""
        self.process = _start(self.folder, self.command)
        _wait_until_it_answers(self)

    def connect(self, database: str, **options: Any) -> "psycopg.Connection[Any]":
        """A connection as the owner."""
        return psycopg.connect(host=str(self.folder), port=self.port, user="burnish", dbname=database, **options)

    def url(self, database: str) -> str:
        return f"postgresql+psycopg://burnish@/{database}?host={self.folder}"

    def execute(self, statement: str, database: str = "postgres") -> None:
        """Run one statement as the owner."""
        with self.connect(database, autocommit=True) as connection:
            connection.execute(statement)

    def rows(self, query: str, database: str) -> list[tuple[Any, ...]]:
        """The rows of a query, read as the owner."""
        with self.connect(database) as connection:
            return connection.execute(query.encode()).fetchall()

    def empty(self) -> str:
        """The name of a new database without a schema."""
        self.n_databases += 1
        name = f"journal_{self.n_databases}"
        self.execute(f"CREATE DATABASE {name}")
        return name

    def emptied(self) -> str:
        """The name of a database that tests use one after another, because emptying takes less time than creating."""
        self._shared = self._shared or self.fresh()
        deletions = "; ".join(f'DELETE FROM "{table.name}"' for table in SQLModel.metadata.sorted_tables)
        self.execute(deletions, self._shared)
        return self._shared

    def fresh(self) -> str:
        """The name of a new database with an empty journal."""
        self.n_databases += 1
        name = f"journal_{self.n_databases}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}")
        return name


def running(config: pytest.Config) -> Postgres:
    """The session's server, started at the first call."""
    found = config.stash.get(_RUNNING, None)
    if found is None:
        stack = ExitStack()
        found = stack.enter_context(serve())
        config.add_cleanup(stack.close)
        found.execute(f"CREATE DATABASE {TEMPLATE}")
        Journal.open(found.url(TEMPLATE)).close()
        config.stash[_RUNNING] = found
    return found


@pytest.fixture
def postgres(request: pytest.FixtureRequest) -> Postgres:
    return running(request.config)


@contextmanager
def serve(
    *,
    is_durable: bool = False,
    core: int | None = None,
    within: Sequence[str] = (),
    address: str = "",
    port: int = 5432,
) -> Iterator[Postgres]:
    """A server of one's own. Without `is_durable` it is faster and would not survive a power failure.

    It has a unix socket. With `address` it also listens there, for anybody. `within` is a command that runs it, for
    example in a network namespace.
    """
    binaries = _binaries()
    owner = _owner()
    folder = Path(tempfile.mkdtemp(prefix="burnish-postgres-"))
    os.chown(folder, owner.pw_uid, owner.pw_gid)
    data = folder / "data"
    init = [binaries / "initdb", "-D", data, "-U", "burnish", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
    subprocess.run(_as(owner, init), check=True, capture_output=True, cwd="/")
    if address:
        with (data / "pg_hba.conf").open("a", encoding="utf-8") as rules:
            rules.write("host all all all trust\n")
    fast = () if is_durable else ("fsync=off", "full_page_writes=off")
    chosen = (f"listen_addresses={address}", f"port={port}", *fast)
    options = [part for option in chosen for part in ("-c", option)]
    plain = [str(part) for part in (binaries / "postgres", "-D", data, "-k", folder, *options)]
    command = [*within, *_becoming(owner), *plain] if within else plain
    server = Postgres(folder, _start(folder, command, is_user=not within), command, port)
    if core is not None:
        os.sched_setaffinity(server.process.pid, {core % (os.cpu_count() or 1)})
    try:
        _wait_until_it_answers(server)
        yield server
    finally:
        server.process.send_signal(signal.SIGQUIT)
        server.process.wait(30)
        shutil.rmtree(folder, ignore_errors=True)


def _start(folder: Path, command: Sequence[str], *, is_user: bool = True) -> "subprocess.Popen[bytes]":
    owner = _owner()
    is_other = is_user and os.geteuid() == 0
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            command,
            cwd="/",
            stdout=log,
            stderr=subprocess.STDOUT,
            user=owner.pw_uid if is_other else None,
            group=owner.pw_gid if is_other else None,
            extra_groups=[] if is_other else None,
            preexec_fn=_end_with_parent,
        )


def _owner() -> pwd.struct_passwd:
    return pwd.getpwnam("postgres") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())


def _wait_until_it_answers(server: Postgres) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            server.connect("postgres").close()
            return
        except psycopg.OperationalError:
            if server.process.poll() is not None or time.monotonic() > deadline:
                pytest.fail("PostgreSQL did not start:\n" + (server.folder / "log").read_text(errors="replace"))
            time.sleep(0.05)


def _binaries() -> Path:
    if not (found := _installed()):
        if os.geteuid() != 0:
            pytest.fail(
                "these tests need PostgreSQL (Debian: apt-get install postgresql); this is not root, it cannot be "
                "installed"
            )
        _install()
        found = _installed()
    if not found:
        pytest.fail("PostgreSQL was installed, but /usr/lib/postgresql/*/bin/initdb does not exist")
    return found[-1]


def _installed() -> list[Path]:
    return sorted(path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb"))


def _install() -> None:
    settings = Path("/etc/postgresql-common/createcluster.conf")
    if not settings.exists():  # the package would start a server of its own
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text("create_main_cluster = false\n")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update"], ["apt-get", "install", "-y", "--no-install-recommends", "postgresql"]):
        done = subprocess.run(command, env=quiet, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.fail(f"`{' '.join(command)}` failed; these tests need PostgreSQL:\n{done.stderr[-2000:]}")


def _as(owner: pwd.struct_passwd, command: Sequence[object]) -> list[str]:
    """The command as an unprivileged user, because PostgreSQL refuses to run as root."""
    plain = [str(part) for part in command]
    return ["runuser", "-u", owner.pw_name, "--", *plain] if os.geteuid() == 0 else plain


def _becoming(owner: pwd.struct_passwd) -> list[str]:
    """What runs a command as an unprivileged user in the same process, which signals reach."""
    names = ["--reuid", owner.pw_name, "--regid", str(owner.pw_gid), "--clear-groups", "--pdeathsig", "QUIT"]
    return ["setpriv", *names, "--"]


def _end_with_parent() -> None:
    """End the server with the tests, even if they are killed. SIGQUIT is PostgreSQL's immediate shutdown."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGQUIT)
