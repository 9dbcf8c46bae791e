"""The learner's loop: Judgements become a Batch, a Batch becomes an AdapterVersion. Serving does not depend on it.

At most one candidate per agent is undecided, and the loop waits for its verdict. A step always starts from the live
version. A refusal or a rollback restores weights, optimiser and baselines with it.
"""

import math
import os
import time
import uuid
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import structlog

from burnish.adapters.evidence.holdout import HELD_OUT, is_held_out
from burnish.adapters.files.store import AdapterStore
from burnish.config import Recipe, machine
from burnish.errors import AdapterError, LearnerError, Postponed
from burnish.journal.hint_quorum import UNBACKED
from burnish.learner.data import good_replies
from burnish.learner.data.anchors import Anchors
from burnish.learner.data.samples import Sample, Skipped, SkipReason, to_sample
from burnish.learner.data.shadow_groups import Group, GroupLedger
from burnish.learner.model import checkpoint
from burnish.learner.model.probe import build_probe
from burnish.learner.objectives.anchor import Anchor
from burnish.learner.objectives.group_gradient import GroupGradient
from burnish.learner.objectives.registry import OF_LIVE_REPLIES
from burnish.learner.run.ledger import Ledger, OpenStep, Ready
from burnish.learner.run.throttle import Throttle
from burnish.learner.run.trainer import Trainer
from burnish.learner.run.trainer_pool import LoadedVersions
from burnish.learner.run.work import StepResult, Work
from burnish.learner.safety.kept_answers import KeptAnswers
from burnish.learner.step.report import StepReport
from burnish.logs import told
from burnish.records import StepOutcome

log = structlog.get_logger()
LEASE_SECONDS = 20.0
RENEW_SECONDS = 4.0
"""Seconds for which a renewed lease is not renewed again: every write wakes the other parts."""
EXAMPLE_POOL = 4
"""Good replies that are looked at for each example."""
GROUPS_WAIT = 30.0
"""Most seconds that a due step waits for groups that are being drawn. Drawing beside a step takes both several times as
long on a CPU, and groups of the step's own turns are by the version that it changes."""
PICK_WAIT = 3.0
"""Seconds in which groups for the latest turns are begun."""
GROUPS_FACTOR = 400.0
"""Factor on the weight of groups from which alone a step learns. It decides how much anchors hold against them, and not
the step's length. Decisions 60 and 61 say what smaller factors did."""
_MAY_STILL_COME = (SkipReason.NO_SIGNAL, SkipReason.NEUTRAL)


class Loop:
    """One agent's learner. `run_once` takes at most one step and returns True if it did."""

    def __init__(
        self,
        ledger: Ledger,
        store: AdapterStore,
        trainer: Trainer,
        recipe: Recipe,
        anchors: Anchors | None,
        kept_answers: KeptAnswers | None = None,
        loaded: LoadedVersions | None = None,
        throttle: Throttle | None = None,
        holdout: float = 0.0,
        groups: GroupLedger | None = None,
    ) -> None:
        self._ledger = ledger
        self._store = store
        self._trainer = trainer
        self._recipe = recipe
        self._anchors = anchors
        self._kept_answers = kept_answers
        self._throttle = throttle
        self._holdout = holdout
        self._groups = groups
        self._loaded = loaded or LoadedVersions()
        self._kept_monitors: tuple[int, dict[str, Any]] | None = (
            None  # monitor findings beyond what the version's files hold
        )
        self._holder = f"learner-{os.getpid()}-{uuid.uuid4().hex[:8]}"  # in every container the process id is 1
        self._lease_until = 0.0
        self._has_recovered = False
        self._due_since: float | None = None
        self._open: int | None = None  # the step that this process has begun and not ended
        self._wants_right = recipe.sft_weight > 0 or recipe.dpo_weight > 0 or recipe.n_examples > 0
        self._n_vocab = trainer.policy.model.config.vocab_size

    def run_once(self) -> bool:
        """Recover, follow the live version, choose rows, train, publish. Returns True if a step was taken."""
        if self._is_idle():
            self._prepare()
            self._grade_groups()
            return False
        if not self.acquire_lease():
            return False
        self._recover()
        is_asked = self._ledger.is_step_asked()
        if not self._may_step(is_asked) or self._waits_for_groups():
            return False
        live = self._follow_live()
        rows = self._choose_rows(live)
        if is_asked:
            self._ledger.answer_step()
        if len(rows) < (1 if is_asked else max(1, self._recipe.min_rows // 2)):
            return False
        groups = self._choose_groups([sample for _, sample in rows])
        try:
            step = self._ledger.open(live, [ready for ready, _ in rows], attempt=self._attempt(rows), groups=groups)
        except Postponed as error:
            log.info("no step yet", reason=str(error))
            return False
        self._open, self._due_since = step.step_id, None
        try:
            work = self._work(live, [sample for _, sample in rows], groups)
            self._publish(step, rows, self._train(work), work)
        except (LearnerError, AdapterError) as error:
            self._fail(step, error)
        self._open = None
        machine.return_free_memory()  # the next step may be hours away
        return True

    def _is_idle(self) -> bool:
        """True if nothing was interrupted, no step is due, and no operator has asked for one."""
        is_idle = self._has_recovered and not self._is_due() and not self._ledger.is_step_asked()
        if is_idle:
            self._due_since = None
        return is_idle

    @property
    def due_at(self) -> float:
        """When `run_once` finds something to do although nothing was committed, in seconds since the epoch."""
        if self._due_since is None:
            return math.inf
        waited = time.monotonic() - self._due_since
        return time.time() + next((most - waited for most in (PICK_WAIT, GROUPS_WAIT) if waited < most), math.inf)

    def _waits_for_groups(self) -> bool:
        """True while groups are drawn from which a due step can learn, but not for long: traffic may leave no time.

        Groups are scored before the step begins, which takes seconds. Others may be begun in that time.
        """
        if self._groups is None or not self._groups.is_awaited or not self._recipe.group_weight:
            return False
        if self._due_since is None:
            if not (self._groups.may_begin() or self._groups.is_drawing()):
                return False
            self._due_since = time.monotonic()
        if not (is_drawing := self._groups.is_drawing()):
            self._grade_groups()
            is_drawing = self._groups.is_drawing()
        return time.monotonic() < self._due_since + (GROUPS_WAIT if is_drawing else PICK_WAIT)

    def _may_step(self, is_asked: bool) -> bool:
        """True if no version waits for its verdict, and a step is due or was requested."""
        if self._ledger.undecided() is not None:
            return False
        return is_asked or (not self._ledger.is_paused() and self._is_due())

    def _prepare(self) -> None:
        """Load a promoted version while the learner is idle, so that the next step begins at once."""
        loaded = self._loaded
        if loaded.current is None or loaded.current[0] != self._ledger.agent or self._ledger.undecided() is not None:
            return
        if not loaded.current == loaded.teacher == (self._ledger.agent, self._ledger.live()):
            self._follow_live()

    def _grade_groups(self) -> None:
        """Score the shadow groups that were drawn, if the learner scores them. Stale ones are dropped."""
        if self._groups is not None and self._recipe.group_weight:
            lags, most = self._ledger.history.lags, self._recipe.max_off_policy_steps
            self._groups.drop_stale(self._ledger.live(), lags, most)
            self._groups.grade(self._recipe.max_groups)

    def acquire_lease(self) -> bool:
        """Take or renew the lease to train this agent. After a lapse, another learner may have left a step behind."""
        left = self._lease_until - time.monotonic()
        if left > LEASE_SECONDS - RENEW_SECONDS:
            return True
        if left < 0.0:
            self._has_recovered = False
        has_it = self._ledger.acquire_lease(self._holder, seconds=LEASE_SECONDS)
        if has_it:
            self._lease_until = time.monotonic() + LEASE_SECONDS
        return has_it

    def break_off(self) -> None:
        """Journal or disk did not answer in the middle of the work. The next look finds out what became of the step."""
        self._has_recovered = False
        self._loaded.current = None

    def release_lease(self) -> None:
        """Leave the agent to other learners."""
        self._lease_until = 0.0
        self._ledger.release_lease(self._holder)

    def _recover(self) -> None:
        """After a start or an outage: release what an interrupted step held, and delete what it left on disk."""
        if self._has_recovered:
            return
        while (step := self._ledger.interrupted()) is not None:
            if step.step_id == self._open:
                outcome = self._ledger.withdraw(step, "journal or disk did not answer in mid-step")
            else:
                outcome = self._ledger.fail(step, "the learner ended in mid-step")
            log.warning("found an interrupted step", version=step.version, attempt=step.attempt, outcome=outcome)
        for path, target in self._store.sweep(self._ledger.agent, self._ledger.history.unfinished()).items():
            log.warning(
                "cleared up what an interrupted step left", path=path.name, moved_to=str(target) if target else None
            )
        self._has_recovered, self._open = True, None

    def _is_due(self) -> bool:
        n_ready, oldest = self._ledger.count_ready()
        if n_ready >= self._recipe.min_rows:
            return True
        waited = time.time() - oldest if oldest is not None else 0.0
        return 2 * n_ready >= self._recipe.min_rows and n_ready > 0 and waited > self._recipe.max_wait

    def _follow_live(self) -> int:
        """Hold the live version. A promotion needs no work. A refusal, a rollback or a start needs a restore."""
        live = self._ledger.live()
        mine = (self._ledger.agent, live)
        if self._loaded.current != mine:
            self._loaded.current = None
            if live:
                checkpoint.restore(self._store.path(self._ledger.agent, live), self._trainer)
            else:
                self._trainer.reset()
            if (
                self._kept_monitors is not None and self._kept_monitors[0] == live
            ):  # another agent was in the trainer meanwhile
                self._trainer.monitor_state.restore(self._kept_monitors[1])
            if self._trainer.adapters is not None:
                self._trainer.adapters = self._existing_path
            log.info("holding a version", agent=self._ledger.agent, version=live)
            self._loaded.current = mine
        if self._loaded.teacher != mine:
            self._trainer.policy.set_teacher(self._path(live))
            self._loaded.teacher = mine
        return live

    def _choose_rows(self, live: int) -> list[tuple[Ready, Sample]]:
        """Rows that are fresh enough and fit to train. Rows that can never be trained are discarded with the reason."""
        lags = self._ledger.history.lags(live)
        chosen: list[tuple[Ready, Sample]] = []
        skip_reasons: dict[str, str] = {}
        waiting: list[str] = []
        for ready in self._ledger.load(self._ledger.ready_ids(self._recipe.max_rows), with_right=self._wants_right):
            turn = ready.interaction
            lag = lags(turn.version)
            if is_held_out(ready.session_id, self._holdout):
                skip_reasons[turn.interaction_id] = HELD_OUT
                continue
            if lag > self._recipe.max_off_policy_steps:
                skip_reasons[turn.interaction_id] = f"stale: {lag} versions behind"
                continue
            options: dict[str, Any] = {
                "session": ready.session_id,
                "right": ready.right,
                "n_vocab": self._n_vocab,
                "n_earlier": ready.n_earlier,
            }
            sample = to_sample(turn, ready.reward, self._trainer.policy.tokenizer, **options)
            if isinstance(sample, Skipped):
                if sample.reason in _MAY_STILL_COME:
                    waiting.append(turn.interaction_id)
                else:
                    is_hint_missing = sample.reason is SkipReason.TRUNCATED and ready.unbacked
                    skip_reasons[turn.interaction_id] = UNBACKED if is_hint_missing else sample.reason
                continue
            chosen.append((ready, sample))
        self._ledger.discard(skip_reasons)
        self._ledger.set_aside(waiting)
        return chosen

    def _choose_groups(self, samples: Sequence[Sample]) -> list[Group]:
        """Shadow groups that are scored, fresh enough and fit to train. Those that a step waits for are taken only if
        there are enough of them to take its place, and not if next to none of its replies pleases: the ratings by which
        groups are scored are then of no use.
        """
        if not self._recipe.group_weight or self._groups is None:
            return []
        if self._groups.is_awaited and not good_replies.do_some_please(samples):
            return []
        self._grade_groups()
        found = self._groups.choose(self._recipe.max_groups, self._holdout, self._n_vocab)
        return found if not self._groups.is_awaited or 2 * len(found) >= self._recipe.min_rows else []

    def _attempt(self, rows: list[tuple[Ready, Sample]]) -> int:
        return 1 + self._ledger.attempts_of([ready.interaction.interaction_id for ready, _ in rows])

    def _work(self, live: int, samples: list[Sample], groups: Sequence[Group]) -> Work:
        """The step's rows with anchors, which weigh more the more `live` and its children have forgotten.

        After one child that forgot too much the step has no momentum, because momentum would lead to the same place.
        After two children the adapter is also shrunk towards the base. The step is smaller the more of the agent's
        versions were refused of late. If groups take the step over, no objective looks at the live replies.
        """
        recipe, history = self._recipe, self._ledger.history
        anchors = self._anchors.draw(recipe.anchor_rows, self._trainer.generator) if self._anchors else []
        forgetting = history.forgetting(live)
        grows = bool(anchors) and recipe.anchor_growth > 1.0
        anchor_factor = forgetting.factor(recipe.anchor_growth) if grows else 1.0
        weight_factors = {Anchor.name: anchor_factor} if anchor_factor != 1.0 else {}
        rate = history.rate(recipe.backoff)
        has_momentum, shrink = not (grows and forgetting.n_refused), forgetting.shrink(recipe.shrink)
        if groups and self._groups is not None and self._groups.is_awaited:
            weight_factors |= dict.fromkeys(OF_LIVE_REPLIES, 0.0) | {GroupGradient.name: GROUPS_FACTOR}
            return Work(samples, anchors, groups, weight_factors, has_momentum, rate, shrink=shrink)
        liked_replies = history.liked_replies(recipe.n_liked_replies) if any(sample.hint for sample in samples) else []
        n_again = recipe.replay_rows if recipe.sft_weight else 0
        n_good = max(EXAMPLE_POOL * recipe.n_examples, n_again)
        good = history.good_replies(n_good, self._trainer.policy.tokenizer)
        return Work(samples, anchors, groups, weight_factors, has_momentum, rate, liked_replies, shrink, good)

    def _train(self, work: Work) -> StepResult:
        self._loaded.current = None  # until the step is published, the trainer holds no version
        with self._throttle.step() if self._throttle is not None else nullcontext():
            return self._trainer.take(work)

    def _fail(self, step: OpenStep, error: Exception) -> None:
        self._loaded.current = None
        outcome = self._ledger.fail(step, str(error))
        log.error("a step failed", version=step.version, outcome=outcome, error=told(error))

    def _publish(self, step: OpenStep, rows: list[tuple[Ready, Sample]], result: StepResult, work: Work) -> None:
        """Write the version aside, rename it into place, and only then announce it."""
        if not result.is_update:
            self._give_up(step, result, len(rows))
            return
        report = StepReport.of(result)
        probe = build_probe(self._trainer.policy, [sample for _, sample in rows])
        ids = [ready.interaction.interaction_id for ready, _ in rows]
        path = checkpoint.save(
            self._store,
            self._ledger.agent,
            step.version,
            self._trainer,
            parent=step.parent,
            rows=ids,
            metrics=report.metrics,
            probe=probe,
            kept_answers=self._kept_answers.record(self._trainer.policy) if self._kept_answers is not None else None,
            facts=_facts(work),
        )
        digest = str(self._store.manifest(self._ledger.agent, step.version)["files"]["adapter_model.safetensors"])
        self._ledger.announce(step, digest, report)
        self._loaded.current = (self._ledger.agent, step.version)
        shown = {key: round(value, 4) for key, value in result.metrics.items() if key in _SHOWN}
        log.info("published a candidate", version=path.name, **shown)

    def _give_up(self, step: OpenStep, result: StepResult, n_rows: int) -> None:
        """End a step without a version. A refused step leaves its rows for one more try. A red monitor pauses
        learning."""
        report = StepReport.of(result)
        if not result.monitors:
            self._ledger.close(step, StepOutcome.EMPTY, result.reason or "", report)
            log.info("nothing to learn", n_rows=n_rows)
            return
        self._loaded.current = (
            self._ledger.agent,
            step.parent,
        )  # the weights are unchanged, and a restore would clear the monitors' memory
        self._kept_monitors = (step.parent, self._trainer.monitor_state.state())
        outcome = self._ledger.fail(step, result.reason or "", report)
        log.error("a step was refused", version=step.version, outcome=outcome, reason=result.reason)
        if result.level == "red" and self._recipe.monitors == "act":
            self._ledger.pause()
            log.error(
                "learning is paused, serving goes on; look at `burnish learner runs`, then `burnish learner resume`"
            )

    def _existing_path(self, version: int) -> Path | None:
        """The directory of one of the agent's versions. None if it is gone."""
        path = self._store.path(self._ledger.agent, version)
        return path if path.exists() else None

    def _path(self, version: int) -> Path | None:
        return self._store.path(self._ledger.agent, version) if version else None


def _facts(work: Work) -> dict[str, Any]:
    """What the manifest records of a step beyond its rows, for `burnish.learner.run.reproduce`."""
    groups = [group.interaction_id for group in work.groups]
    facts: dict[str, Any] = {"groups": groups} if groups else {}
    if work.weight_factors:
        facts["emphasis"] = dict(work.weight_factors)
    if work.liked_replies:
        facts["jurors"] = [liked.interaction_id for liked in work.liked_replies]
    if work.good:
        facts["good"] = [list(each.name) for each in work.good]
    if work.rate != 1.0:
        facts["rate"] = work.rate
    if work.shrink != 1.0:
        facts["shrink"] = work.shrink
    return facts if work.has_momentum else {**facts, "has_momentum": False}


_SHOWN = {"n_rows", "n_trained", "n_hinted", "reward_mean", "grad_norm", "entropy", "seconds"}
