"""The judge's process."""

import asyncio
from collections.abc import Callable
from typing import Any

from burnish.config import BASE_NAME, Settings
from burnish.journal import Journal
from burnish.judges.comparison.comparer import Comparer
from burnish.judges.comparison.grader import Grader
from burnish.judges.judge import MAX_TOKENS, Judge, Structured
from burnish.judges.models.costs import Costs
from burnish.judges.models.local import LocalJudge
from burnish.judges.models.panel import Panel
from burnish.judges.models.remote import RemoteJudge, names_provider
from burnish.judges.permits import Permits
from burnish.judges.worker import Worker
from burnish.records import JudgedFor

GRADE_TOKENS = 16
"""Tokens for one member's line in a grader's answer."""


def make_judges(settings: Settings, engine_url: str, engine_key: str, **options: Any) -> list[Judge]:
    """The judges in the settings, best first. By default the frozen base on the serving engine.

    `options` are those of `make_judge`.
    """
    chosen = settings.judge
    judges = [make_judge(settings, engine_url, engine_key, chosen.model, chosen.url, chosen.api_key, **options)]
    if chosen.fallback_model:
        judges.append(make_judge(settings, engine_url, engine_key, chosen.fallback_model, **options))
    return judges


def make_judge(
    settings: Settings,
    engine_url: str,
    engine_key: str,
    model: str,
    url: str = "",
    api_key: str = "",
    *,
    structured: Structured = "auto",
    max_tokens: int = MAX_TOKENS,
) -> Judge:
    """The judge `model`, named as in `judge.model`. A model of the serving engine (its base, `agent@v12`) is asked
    there.

    `structured` restricts its answers to the form of a verdict: "auto" until it is refused once.
    """
    if not model or (not url and is_ours(settings, model)):
        model = model or BASE_NAME
        return LocalJudge(engine_url, model, api_key=engine_key, structured=structured, max_tokens=max_tokens)
    if url and not names_provider(model):
        # A server other than our engine may silently misread the request for structured output.
        return LocalJudge(url, model, api_key=api_key, max_tokens=max_tokens)
    return RemoteJudge(model, url=url, api_key=api_key, structured=structured, max_tokens=max_tokens)


def is_ours(settings: Settings, model: str) -> bool:
    """True if the serving engine has the model: its base, an adapter that it was started with, or a version of the
    agent.
    """
    is_given = model == BASE_NAME or model in settings.engine_adapters
    return is_given or model.startswith(f"{settings.agent.name}@v")


def make_graders(settings: Settings, engine_url: str, engine_key: str) -> list[Judge]:
    """The judges of shadow groups, best first: those of turns, with tokens for a line per member."""
    room = max(MAX_TOKENS, GRADE_TOKENS * settings.recipe.group_size)
    return make_judges(settings, engine_url, engine_key, structured="off", max_tokens=room)


async def run(settings: Settings, engine_url: str, engine_key: str, is_stopping: Callable[[], bool]) -> None:
    """Judge until `is_stopping()`. A judge is checked at first, in idle time, and rewards only if it is fit."""
    judges = make_judges(settings, engine_url, engine_key)
    journal = Journal.open(settings.journal_url)
    costs = Costs(journal)
    permits = Permits(journal, settings, judges, costs.charge_for(JudgedFor.CHECK))
    panel = Panel(judges, may_speak=permits.may_speak, charge=costs.charge_for(JudgedFor.TURNS))
    # Structured output restricts an answer to the form of a verdict. A comparison has another form.
    comparers = make_judges(settings, engine_url, engine_key, structured="off")
    unconstrained = Panel(comparers, charge=costs.charge_for(JudgedFor.PAIRS))
    grading = costs.charge_for(JudgedFor.GROUPS)
    graders = Panel(make_graders(settings, engine_url, engine_key), may_speak=permits.may_speak, charge=grading)
    try:
        permits.begin()
        await asyncio.gather(
            permits.run_forever(is_stopping),
            Worker(journal, panel, settings.judge, silence=permits.silence).run_forever(is_stopping),
            Comparer(journal, unconstrained, settings.judge).run_forever(is_stopping),
            Grader(journal, graders, settings.judge, silence=permits.silence).run_forever(is_stopping),
            costs.run_forever(is_stopping),
        )
        costs.keep()
    finally:
        await panel.close()
        await unconstrained.close()
        await graders.close()
        journal.close()
