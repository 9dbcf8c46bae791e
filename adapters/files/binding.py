"""Which journal an adapter store belongs to: both hold the same id, set at the first start and compared at later ones.

Code that removes or moves versions asks here first. Only the journal knows which versions are needed. So another
journal, or an older copy of it, must never decide what goes.
"""

import uuid

from burnish.adapters.files.store import AdapterStore
from burnish.adapters.registry.versions import highest
from burnish.errors import AdapterError
from burnish.journal import Journal
from burnish.journal.jobs import insert_or_skip
from burnish.journal.tables import LeaseRow
from burnish.records import VersionName

_NAME = "adapter store"
_NOTHING_DONE = "Nothing was changed, and serving goes on"


def bind(journal: Journal, store: AdapterStore) -> None:
    """Give the journal and the store one id if they have none. Safe to repeat and to run from several processes.

    Raises AdapterError if the ids differ, or if the store holds a version that the journal never numbered: then the
    journal is empty, another one, or an older copy.
    """
    held = store.highest()  # before the journal is read, because a number exists before its directory appears
    theirs = store.journal_id()
    with journal.read() as session:
        row = session.get(LeaseRow, _NAME)
        ours, given = row.holder if row else None, highest(session)
    where = f"the journal {journal.engine.url!r}"
    if theirs is not None and theirs != ours and (ours is not None or held):
        raise AdapterError(
            f"{where} is not the one of the adapter store {store.root}: the journal has the id {ours or '(none)'}, the "
            "store "
            f"{theirs}; set journal.url and state_dir to two that belong together, or restore the journal that was "
            "lost. "
            f"If these two do belong together, remove {store.binding}: they are bound anew. {_NOTHING_DONE}"
        )
    if later := {agent: number for agent, number in held.items() if number > given.get(agent, 0)}:
        agent, number = max(later.items(), key=lambda found: found[1])
        known = f"gave no number above {given[agent]} to it" if agent in given else "gave no number to it"
        raise AdapterError(
            f"{where} is older than the adapter store {store.root}, or another one's: the store holds "
            f"{VersionName(agent, number)}, "
            f"the journal {known}{_others(len(later) - 1)}; restore the latest journal, or set journal.url to the one "
            "that made "
            f"these versions. To go on with this journal, move the later versions out of the store. {_NOTHING_DONE}"
        )
    if ours is not None and ours == theirs:
        return
    with (
        journal.write() as session
    ):  # committed before the file is written, so a crash in between leaves a store without an id
        insert_or_skip(session, LeaseRow, {"name": _NAME, "holder": theirs or uuid.uuid4().hex, "until": float("inf")})
    with journal.write() as session:  # one process at a time writes the file
        row = session.get_one(LeaseRow, _NAME, with_for_update=True)
        if store.journal_id() is None:
            store.bind(row.holder)
    if store.journal_id() != row.holder:  # another journal was faster
        bind(journal, store)


def _others(n: int) -> str:
    return f" ({n} more agents alike)" if n else ""
