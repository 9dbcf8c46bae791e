"""The serving table: what the gateway needs to answer, as one small file that is replaced as a whole.

The registry (SQL) is the truth. This file mirrors it on the serving machine, so that no request waits for SQL. A change
of an alias is committed first and then written here (an operator's change is shown first: adapters/serving/publish.py).
Every gateway process sees it at its next request.
"""

import fcntl
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import structlog

from burnish.errors import TableError
from burnish.files import UNREADABLE, Watched, replace_text, sync
from burnish.keys import Key, Scope
from burnish.records import VersionName

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class AgentRoute:
    """One agent: its tenant, the versions of its aliases (0 = the frozen base) and those that every engine has loaded.

    `canary` answers the share `canary_share` of the conversations (server/gateway/routing.py). It is None if only
    `live` answers. A personal agent has its parent agent as `parent` and that agent's end user as `user`. It answers
    that user alone, and clients cannot name it.
    """

    name: str
    tenant: str = "default"
    live: int = 0
    previous: int | None = None
    loaded: tuple[int, ...] = ()
    canary: int | None = None
    canary_share: float = 0.0
    parent: str | None = None
    user: str | None = None

    @property
    def named(self) -> set[int]:
        """The versions that a request without a version may get. None of them is ever unloaded."""
        return {number for number in (self.live, self.previous, self.canary) if number is not None}

    def engine_model(self, version: int, base_name: str) -> str:
        """The model name that the engine knows `version` by."""
        return str(VersionName(self.name, version)) if version else base_name


@dataclass(frozen=True, slots=True)
class Routes:
    """The whole table. `generation` grows with every write. `engines` are base URLs; all hold the same versions.

    `remote_url` is the process that asks the remote model, empty for none. `opt_outs` says of each voice that opted out
    of training (`burnish.records.digest_of_voice`) whether its turns are still recorded. `revoked` says of each voice
    whose user tokens were revoked when, in seconds since the epoch. `memo` caches what readers have computed from this
    table; a new table begins with an empty one.
    """

    generation: int = 0
    base_name: str = "base"
    engines: tuple[str, ...] = ()
    engine_key: str = ""
    remote_url: str = ""
    agents: Mapping[str, AgentRoute] = field(default_factory=dict)
    keys: Mapping[str, Key] = field(default_factory=dict)
    opt_outs: Mapping[str, bool] = field(default_factory=dict)
    revoked: Mapping[str, float] = field(default_factory=dict)
    memo: dict[Any, Any] = field(default_factory=dict, init=False, compare=False, repr=False)


def parse(tree: Mapping[str, Any]) -> Routes:
    agents = {
        a["name"]: AgentRoute(
            a["name"],
            a["tenant"],
            a["live"],
            a["previous"],
            tuple(a["loaded"]),
            a.get("canary"),
            a.get("canary_share", 0.0),
            a.get("parent"),
            a.get("user"),
        )
        for a in tree["agents"]
    }
    keys = {
        k["digest"]: Key(
            k["key_id"],
            k["digest"],
            k["tenant"],
            frozenset(map(Scope, k["scopes"])),
            frozenset(k["agents"]),
            k["name"],
            k.get("requests_per_minute", 0),
            k.get("max_concurrent", 0),
            k.get("user"),
            k.get("may_train", True),
            k.get("may_record", True),
        )
        for k in tree["keys"]
    }
    engines = tuple(tree["engines"])
    remote_url = tree.get("remote_url", "")
    rest = (agents, keys, tree.get("opt_outs", {}), tree.get("revoked", {}))
    return Routes(tree["generation"], tree["base_name"], engines, tree["engine_key"], remote_url, *rest)


def write(path: Path, routes: Routes) -> None:
    """Replace the table. It is seen at once and reaches the disk later. Mode 0600, because it holds the engine's
    key."""
    tree = {
        "generation": routes.generation,
        "base_name": routes.base_name,
        "engines": list(routes.engines),
        "engine_key": routes.engine_key,
        "remote_url": routes.remote_url,
        "agents": [
            {
                "name": a.name,
                "tenant": a.tenant,
                "live": a.live,
                "previous": a.previous,
                "loaded": list(a.loaded),
                "canary": a.canary,
                "canary_share": a.canary_share,
                "parent": a.parent,
                "user": a.user,
            }
            for a in routes.agents.values()
        ],
        "keys": [
            {
                "key_id": k.key_id,
                "digest": k.digest,
                "tenant": k.tenant,
                "scopes": sorted(k.scopes),
                "agents": sorted(k.agents),
                "name": k.name,
                "requests_per_minute": k.requests_per_minute,
                "max_concurrent": k.max_concurrent,
                "user": k.user,
                "may_train": k.may_train,
                "may_record": k.may_record,
            }
            for k in routes.keys.values()
        ],
        "opt_outs": dict(routes.opt_outs),
        "revoked": dict(routes.revoked),
    }
    replace_text(path, json.dumps(tree, indent=1), mode=0o600, is_durable=False)


def watch(path: Path, max_age: float = 0.0) -> Watched[Routes]:
    """The table in `path`, read again when replaced, at most once in `max_age` seconds. Empty until it exists."""
    return Watched(path, parse, Routes(), max_age)


class LockedTable:
    """The table while no other process changes it.

    Raises TableError if the table is missing or cannot be read, unless `is_made_anew`: then the next `put` holds all of
    it.
    """

    def __init__(self, path: Path, *, is_made_anew: bool = False) -> None:
        self._path = path
        try:
            self.table = parse(_present(path))
        except (FileNotFoundError, *UNREADABLE) as error:
            if not is_made_anew:
                raise TableError(
                    f"{path}: expected a serving table, got {error!r}; nothing was written. `burnish up` makes the "
                    "table anew"
                ) from error
            if not isinstance(error, FileNotFoundError):
                log.warning("the serving table cannot be read and is made anew", path=str(path), error=repr(error))
            self.table = Routes()

    def put(self, table: Routes) -> Routes:
        """Replace the table. The generation grows by one."""
        self.table = replace(table, generation=self.table.generation + 1)
        write(self._path, self.table)
        return self.table


def _present(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


@contextmanager
def held(path: Path, *, is_made_anew: bool = False) -> Iterator[LockedTable]:
    """Keep every other process from changing the table. The change is made durable afterwards, without the lock.

    `is_made_anew`: the block puts keys, engines and agents, so a table that cannot be read may be replaced
    (adapters/serving/prepare.py). Raises TableError otherwise if the table cannot be read.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        present = LockedTable(path, is_made_anew=is_made_anew)
        before = present.table
        yield present
    if present.table is not before:
        sync(path)


def update(path: Path, change: Callable[[Routes], Routes], *, is_made_anew: bool = False) -> Routes:
    """Read, change and replace the table while no other process does. Raises as `held`."""
    with held(path, is_made_anew=is_made_anew) as present:
        return present.put(change(present.table))
