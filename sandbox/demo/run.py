"""One demo run, in order: start everything, hold an exam, let users talk while it learns, hold another exam, add up."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live

from burnish.config import BASE_NAME, Settings
from burnish.errors import BurnishError
from burnish.journal import Journal
from burnish.processes.parts import gateway_url
from burnish.sandbox.demo import facts, stack
from burnish.sandbox.demo.screen import screen
from burnish.sandbox.demo.traffic import Log, Pauses, Traffic
from burnish.sandbox.demo.worlds import World

NAMES = ("ana", "bo", "chen", "dora", "emil", "fay", "gus", "hana", "ivo", "june", "kai", "lea")
SETTLE_SECONDS = 90.0
MIN_STREAMS = 4
LINE_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a run. `n_users` talk `n_interactions` times in all. Exams are held every `exam_every`
    interactions."""

    world: World
    title: str = "learning"
    n_users: int = 8
    n_interactions: int = 512
    exam_every: int = 128
    seed: int = 0


@dataclass(slots=True)
class Outcome:
    """The result of a run: exam scores and replies by interactions, the users' trail, and flat figures.

    `prompted` is the base's score with the wishes in its prompt. `kept` is the number of prompts about other things
    that the agent passes, as a share of the base's.
    """

    exams: list[tuple[int, float]] = field(default_factory=list)
    trail: list[tuple[int, float]] = field(default_factory=list)
    replies: dict[int, list[str]] = field(default_factory=dict)
    prompted: float | None = None
    kept: float | None = None
    figures: dict[str, Any] = field(default_factory=dict)


class Run:
    """One run of `plan` on `settings`. Their state directory must be fresh."""

    def __init__(self, settings: Settings, plan: Plan, console: Console) -> None:
        self._settings = settings
        self._plan = plan
        self._console = console
        self._log = Log()
        self._outcome = Outcome()
        self._phase = "starting all parts"
        self._began = time.time()
        self._pulse: facts.Pulse | None = None

    async def play(self) -> Outcome:
        """The whole run. Raises BurnishError if the parts do not start."""
        key = stack.make_user_key(self._settings)
        stack.mark(self._settings.state_dir)
        journal = Journal.open(self._settings.journal_url)
        with self._screen() as live:
            ticker = asyncio.create_task(self._refresh_screen(journal, live))
            try:
                async with stack.running(self._settings, self._settings.state_dir / "demo.log"):
                    traffic = Traffic(
                        gateway_url(self._settings), key, self._settings.agent.name, self._log, self._plan.world
                    )
                    try:
                        await self._run_all(traffic, journal)
                    finally:
                        await traffic.close()
            finally:
                ticker.cancel()
                await asyncio.gather(ticker, return_exceptions=True)
        self._console.print()
        self._add_up(journal)
        journal.close()
        return self._outcome

    async def _run_all(self, traffic: Traffic, journal: Journal) -> None:
        world = self._plan.world
        if world.prompted:
            self._phase = "asking the base with the wishes in its prompt"
            self._outcome.prompted = world.score(await traffic.ask(world.prompted, BASE_NAME))
        n_able = 0
        if world.abilities:
            self._phase = "asking the base about other things"
            n_able = await traffic.n_passed(world.abilities, BASE_NAME)
        self._phase = "first exam"
        await self._examine(traffic, 0)
        self._phase = "talking, learning"
        is_over = asyncio.Event()
        listening = asyncio.create_task(traffic.listen(self._plan.seed, is_over, self._has_listeners))
        examining = asyncio.create_task(self._examine_along(traffic))
        try:
            pauses = Pauses(world, self._plan.seed, self._has_step)
            users = [world.make_user(self._plan.seed, NAMES[n % len(NAMES)]) for n in range(self._plan.n_users)]
            await traffic.talk(users, self._plan.n_interactions, pauses.wait)
            self._phase = "last turns"
            await self._settle(journal)
        finally:
            examining.cancel()
            is_over.set()
            await asyncio.gather(listening, examining, return_exceptions=True)
        self._phase = "final exam"
        await self._examine(traffic, len(self._log.turns))
        if n_able:
            self._phase = "asking the agent about other things"
            self._outcome.kept = await traffic.n_passed(world.abilities) / n_able

    def _has_step(self) -> bool:
        if self._pulse is None or not self._settings.learner.enabled:
            return False
        return self._pulse.has_step(self._settings.recipe.min_rows)

    def _has_listeners(self) -> bool:
        is_on_trial = self._pulse is not None and self._pulse.is_on_trial
        return is_on_trial or not self._plan.world.waits_for_learner

    async def _examine(self, traffic: Traffic, n: int) -> None:
        """Ask the held-out prompts through the gateway, without hints, out of training. A program scores the
        replies."""
        replies = await traffic.ask(self._plan.world.exam)
        self._outcome.exams.append((n, self._plan.world.score(replies)))
        self._outcome.replies[n] = list(replies)

    async def _examine_along(self, traffic: Traffic) -> None:
        """Hold an exam after each given number of further interactions, while everything else continues."""
        due = self._plan.exam_every
        while due < self._plan.n_interactions:
            if len(self._log.turns) >= due:
                await self._examine(traffic, len(self._log.turns))
                due += self._plan.exam_every
            await asyncio.sleep(0.25)

    async def _settle(self, journal: Journal) -> None:
        """Wait until everything recorded has been judged and no step or trial is under way."""
        if not self._settings.learner.enabled:
            return
        deadline, calm_since = time.monotonic() + SETTLE_SECONDS, time.monotonic()
        while time.monotonic() < deadline and time.monotonic() - calm_since < 4.0:
            await asyncio.sleep(0.5)
            pulse = facts.pulse(journal, self._settings.agent.name)
            if pulse.n_judging or pulse.is_open or pulse.has_step(self._settings.recipe.min_rows):
                calm_since = time.monotonic()

    async def _refresh_screen(self, journal: Journal, live: Live | None) -> None:
        next_line = 0.0
        while True:
            self._pulse = await asyncio.to_thread(facts.pulse, journal, self._settings.agent.name)
            pleased = self._log.first_turn_satisfaction()
            if pleased is not None:
                self._outcome.trail.append((len(self._log.turns), pleased))
            if live is not None:
                live.update(self._picture())
            elif time.time() >= next_line:
                next_line = time.time() + LINE_SECONDS
                self._console.print(self._line(), highlight=False, soft_wrap=True)
            await asyncio.sleep(0.5)

    def _line(self) -> str:
        """The state in one line, for a console that cannot be drawn on."""
        pulse, seconds = self._pulse, time.time() - self._began
        score = f", score {self._outcome.exams[-1][1]:.2f}" if self._outcome.exams else ""
        loop = ""
        if pulse is not None:
            live = f"v{pulse.live}" if pulse.live else "base"
            loop = f", {pulse.n_recorded} recorded, {pulse.n_spent} trained on, live {live}, {pulse.n_refused} refused"
        return f"{seconds:4.0f} s  {self._phase}{loop}{score}, {len(self._log.failures)} failed"

    def _picture(self) -> RenderableType:
        return screen(
            f"burnish demo · {self._plan.title}",
            self._phase,
            time.time() - self._began,
            self._outcome.exams,
            self._outcome.trail,
            self._plan.n_interactions,
            self._pulse,
            len(self._log.failures),
        )

    def _screen(self) -> AbstractContextManager[Live | None]:
        """The screen on a terminal. None elsewhere: there the run prints a line every `LINE_SECONDS`."""
        if not self._console.is_terminal:
            return nullcontext()
        return Live(self._picture(), console=self._console, refresh_per_second=4)

    def _add_up(self, journal: Journal) -> None:
        agent = self._settings.agent.name
        open_streams = facts.swaps(journal, agent, self._log)
        n_missing, n_misjoined, n_ambiguous = facts.joins(journal, self._log.turns)
        pulse = facts.pulse(journal, agent)
        measured = {"score_prompted": self._outcome.prompted, "kept": self._outcome.kept}
        self._outcome.figures = {name: round(value, 4) for name, value in measured.items() if value is not None} | {
            "wall_seconds": round(time.time() - self._began, 1),
            "score_before": round(self._outcome.exams[0][1], 4),
            "score_after": round(self._outcome.exams[-1][1], 4),
            "interactions": len(self._log.turns),
            "requests": len(self._log.streams),
            "requests_failed": len(self._log.failures),
            "swaps": sum(n >= MIN_STREAMS for n in open_streams),
            "swaps_all": len(open_streams),
            "streams_at_swap_min": min(open_streams, default=0),
            "misjoined": n_misjoined + n_missing,
            "ambiguous": n_ambiguous,
            "trained_on": pulse.n_spent,
            "versions_refused": pulse.n_refused,
        }
        if self._log.failures:
            path = self._settings.state_dir / "failures.txt"
            path.write_text("\n".join(self._log.failures) + "\n", encoding="utf-8")


def play(settings: Settings, plan: Plan, console: Console) -> Outcome:
    """Run one demo from outside an event loop. A Ctrl-C ends all parts first."""
    return asyncio.run(Run(settings, plan, console).play())


def fresh(folder: Path, report: Callable[[str], None]) -> None:
    """Move earlier files aside for a run in `folder`, and report what was moved."""
    moved = stack.clear_state(folder)
    if moved is not None:
        report(f"{folder} existed already and was moved to {moved}")
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise BurnishError(f"cannot make {folder}: {error.strerror}") from error
