"""The stage of a harness: a scripted engine, a real gateway before it, an own home, and the journal afterwards."""

import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from sqlmodel import col

from burnish.journal import Journal
from burnish.journal.tables import FeedbackRow, InteractionRow
from burnish.journal.turns import messages_of
from burnish.messages import text_of
from burnish.server.ingest.ingester import SETTLE_SECONDS, Ingester
from burnish.testing import ScriptedEngine, Truth
from tests.harness.environment import Environment
from tests.harness.verdict import Verdict, compare, labelled
from tests.server.gateway.gateways import Running

DRIVERS = Path(__file__).parent / "drivers"
NOWHERE = "http://127.0.0.1:9"


@dataclass(frozen=True)
class Played:
    """The result of a harness's process."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> Any:
        """A driver's result: the JSON on its last line."""
        assert self.code == 0, f"the driver failed with {self.code}\n{self.out[-2000:]}\n{self.err[-4000:]}"
        return json.loads(self.out.strip().splitlines()[-1])


@dataclass
class Stage:
    """The stage of one test. `verdict` compares the record with the script."""

    environment: Environment
    gateway: Running
    engine: ScriptedEngine
    folder: Path
    driven: list[str] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)

    @property
    def url(self) -> str:
        return self.gateway.url

    @property
    def key(self) -> str:
        return self.gateway.secrets["talker"]

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def work(self) -> Path:
        """A folder that the harness may write to."""
        (self.folder / "work").mkdir(exist_ok=True)
        return self.folder / "work"

    def drive(self, driver: str, *arguments: str, **environ: str) -> Any:
        """Run a script of drivers/ with the harness's interpreter. Returns its result."""
        program = DRIVERS / driver
        if program.suffix == ".py":
            command = [str(self.environment.python), str(program), *arguments]
        else:
            (self.environment.folder / program.name).write_bytes(
                program.read_bytes()
            )  # Node looks for packages from there
            command = ["node", str(self.environment.folder / program.name), *arguments]
        return self.play(command, **environ).said

    def play(self, command: Sequence[str], seconds: float = 180, **environ: str) -> Played:
        """Run a command with its own home and only loopback as network. It ends with its children."""
        self.home.mkdir(exist_ok=True)
        surroundings = self._surroundings(environ)
        with (self.folder / "out.txt").open("w+") as out, (self.folder / "err.txt").open("w+") as err:
            process = subprocess.Popen(
                [str(part) for part in command],
                cwd=self.work,
                env=surroundings,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
            try:
                code = process.wait(seconds)
            except subprocess.TimeoutExpired:
                code = -1
            finally:
                _end(process)
            played = Played(code, _whole(out), _whole(err))
        assert code != -1, (
            f"not done after {seconds} s: {shlex.join(map(str, command))}\n{played.out[-2000:]}\n{played.err[-2000:]}"
        )
        return played

    def _surroundings(self, more: Mapping[str, str]) -> dict[str, str]:
        home = str(self.home)
        return {
            "PATH": f"{Path(self.environment.python).parent}:{os.environ['PATH']}",
            "HOME": home,
            "XDG_CONFIG_HOME": f"{home}/.config",
            "XDG_DATA_HOME": f"{home}/.local/share",
            "XDG_STATE_HOME": f"{home}/.local/state",
            "XDG_CACHE_HOME": f"{home}/.cache",
            "TMPDIR": str(self.folder),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "NO_COLOR": "1",
            "DO_NOT_TRACK": "1",
            "HTTP_PROXY": NOWHERE,
            "HTTPS_PROXY": NOWHERE,
            "NO_PROXY": "127.0.0.1,localhost",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "OPENAI_BASE_URL": f"{self.url}/v1",
            "OPENAI_API_KEY": self.key,
            "GATEWAY_URL": self.url,
            "GATEWAY_KEY": self.key,
            **more,
        }

    def verdict(self, what: str, sessions: Mapping[str, Sequence[str]] | None = None) -> Verdict:
        """Compare the journal with the script. `what` goes into the table; `sessions` as in verdict.labelled."""
        truths = self.truths
        (self.folder / "requests.json").write_text(json.dumps(self.engine.requests, indent=1), encoding="utf-8")
        if sessions:
            labelled(truths, sessions)
        journal = self._ingested()
        try:
            verdict = compare(truths, journal)
        finally:
            journal.close()
        self.driven.append(what)
        self.verdicts.append(verdict)
        return verdict

    def check(self, what: str, sessions: Mapping[str, Sequence[str]] | None = None, known: str = "") -> Verdict:
        """The verdict, which must have no problems. `known` is the reason of an expected problem."""
        verdict = self.verdict(what, sessions)
        found = "\n".join(verdict.problems)
        if found and known:
            pytest.xfail(f"{known}\n{found}")
        assert not verdict.problems, f"the journal differs from the script:\n{found}"
        return verdict

    def ratings(self) -> list[tuple[str, float | None, str | None]]:
        """What users said in their conversations: the rated reply's text, the rating, the comment."""
        journal = self._ingested()
        try:
            with journal.read() as session:
                rows = session.scalars(select(FeedbackRow).order_by(col(FeedbackRow.created_at))).all()
                turns = [session.get_one(InteractionRow, row.interaction_id) for row in rows]
                replies = [text_of(messages_of(session, [turn.reply_digest])[0]) for turn in turns]
                return [(reply, row.rating, row.comment) for reply, row in zip(replies, rows, strict=True)]
        finally:
            journal.close()

    @property
    def truths(self) -> list[Truth]:
        return self.engine.truths

    def _ingested(self) -> Journal:
        journal = Journal.open(f"sqlite:///{self.folder / 'journal.db'}")
        ingester = Ingester(journal, self.gateway.settings.segments_dir, session_timeout=3600)
        time.sleep(4 * SETTLE_SECONDS)
        while ingester.run_once():
            pass
        return journal


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and all that it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(3)
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def _whole(file: Any) -> str:
    file.seek(0)
    return str(file.read())
