"""Backup under load, restored elsewhere: the same turns, versions and aliases, and the next step trains.

With the sandbox's model on a real engine. A version is learned, then `burnish journal backup` runs while clients talk.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.bars import Tell
from benchmarks.chaos.ledger import Clients, Ledger, audit, wait_filed
from burnish.adapters.files.store import AdapterStore
from burnish.adapters.upkeep.journal_check import check
from burnish.config import Settings
from burnish.journal import Journal
from burnish.journal.summary import summary
from tests.e2e.whole import Whole, learn_once, until

LEARNS = {"learner.min_rows": 4, "learner.recipe.anchor_rows": 4}
N_CLIENTS = 3
MOST_TURNS = 5_000


def measure(folder: Path, tell: Tell) -> dict[str, float]:
    """`restore_equal` is 1 if everything holds. The single answers stand beside it."""
    folder.mkdir(parents=True)
    ledger = Ledger(folder / "ledger.jsonl")
    tell("restore: starting the first server")
    first = Whole(folder / "first" / "state", LEARNS)
    first.state.parent.mkdir()
    first.start()
    try:
        first.wait_ready()
        tell("restore: learning a version")
        learn_once(first)
        with Clients(first.url, ledger, N_CLIENTS, MOST_TURNS):
            until(lambda: ledger.n_whole >= 60, "some turns")
            before = [each for each in ledger.seen if each.is_whole]
            tell("restore: backing up under load")
            started = time.monotonic()
            made = _burnish("journal", "backup", str(folder / "backup"), "--state", str(first.state))
            took = time.monotonic() - started
            n_during = ledger.n_whole - len(before)
    finally:
        first.stop()
    elsewhere = folder / "second" / "state"
    elsewhere.parent.mkdir()
    _burnish("journal", "restore", str(folder / "backup"), "--state", str(elsewhere))
    held = Ledger(folder / "held.jsonl", before)
    second = Whole(elsewhere, LEARNS)
    expected = set(made["versions"])
    versions = {f"agent@v{number}" for number in AdapterStore(elsewhere / "adapters").versions("agent")}
    aliases = _aliases(elsewhere), _aliases_of_backup(folder / "backup")
    tell("restore: starting the second server")
    second.start()
    try:
        second.wait_ready()
        found = wait_filed(lambda: audit(elsewhere / "journal.db", held), 60.0)
        settings = Settings(state_dir=elsewhere)
        journal = Journal.open(settings.journal_url, migrate=False)
        is_sound = not check(settings, journal).findings
        journal.close()
        tell("restore: the next step")
        next_version = learn_once(second)
    finally:
        second.stop()
    answers = {
        "restore_turns_equal": not found.lost and not found.doubled,
        "restore_versions_equal": versions == expected and bool(expected),
        "restore_aliases_equal": aliases[0] == aliases[1] and bool(aliases[0]),
        "restore_sound": is_sound,
        "restore_trains": f"agent@v{next_version}" not in expected,
    }
    return {
        "restore_equal": float(all(answers.values())),
        **{name: float(answer) for name, answer in answers.items()},
        "restore_turns": float(len(before)),
        "restore_turns_meanwhile": float(n_during),
        "backup_s": took,
    }


def _burnish(*arguments: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-m", "burnish", *arguments, "--json"], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"burnish {' '.join(arguments)}: {done.stderr.strip()[-500:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _aliases(state: Path) -> dict[str, int]:
    return _aliases_in(Settings(state_dir=state).journal_url)


def _aliases_of_backup(folder: Path) -> dict[str, int]:
    return _aliases_in(f"sqlite:///{folder / 'journal.db'}")


def _aliases_in(url: str) -> dict[str, int]:
    journal = Journal.open(url, migrate=False)
    with journal.read() as session:
        found: dict[str, int] = summary(session, "agent")["aliases"]
    journal.close()
    return found
