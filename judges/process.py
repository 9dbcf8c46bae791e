"""The judge's process."""

import asyncio
from collections.abc import Callable
from typing import Any

from burnish.config import Settings
from burnish.journal import Journal
from burnish.judges.comparison.comparer import Comparer
from burnish.judges.comparison.grader import Grader
from burnish.judges.judge import Judge, Structured
from burnish.judges.models.local import LocalJudge
from burnish.judges.models.panel import Panel
from burnish.judges.models.remote import RemoteJudge
from burnish.judges.worker import Worker

GRADE_TOKENS = 16
"""Room for one member's line in a grader's answer."""


def make_judges(settings: Settings, engine_url: str, engine_key: str) -> list[Judge]:
    """The judges that the settings name, best first; the frozen base on the serving engine where they name none."""
    chosen = settings.judge
    judges = [make_judge(settings, engine_url, engine_key, chosen.model, chosen.url, chosen.api_key)]
    if chosen.fallback_model:
        named = (chosen.fallback_model, chosen.fallback_url, chosen.fallback_api_key)
        judges.append(make_judge(settings, engine_url, engine_key, *named))
    return judges


def make_judge(
    settings: Settings, engine_url: str, engine_key: str, model: str, url: str = "", api_key: str = ""
) -> Judge:
    """The judge `model`, named as in `judge.model`; one that the serving engine knows (its base, `agent@v12`) is asked
    there."""
    chosen = settings.judge
    options: dict[str, Any] = {
        "temperature": chosen.temperature,
        "max_tokens": chosen.max_tokens,
        "timeout": chosen.timeout,
    }
    if not model or (not url and is_ours(settings, model)):
        model = model or settings.engine.base_name
        return LocalJudge(engine_url, model, api_key=engine_key, structured=chosen.structured, **options)
    if url and "/" not in model:
        # Another server than our engine may take the request for structured output wrong in silence: only where it is
        # asked for.
        structured: Structured = "on" if chosen.structured == "on" else "off"
        return LocalJudge(url, model, api_key=api_key, structured=structured, **options)
    return RemoteJudge(model, url=url, api_key=api_key, structured=chosen.structured, **options)


def is_ours(settings: Settings, model: str) -> bool:
    """True where the serving engine answers to the name: its base, an adapter that it was given, or a version of the
    agent."""
    is_given = model == settings.engine.base_name or model in settings.engine_adapters
    return is_given or model.startswith(f"{settings.agent.name}@v")


def make_graders(settings: Settings, engine_url: str, engine_key: str) -> list[Judge]:
    """The judges of shadow groups, best first: `shadow.judge_model` in the place of the judge's own, with room for a
    line a member."""
    chosen, shadow = settings.judge, settings.shadow
    room = max(chosen.max_tokens, GRADE_TOKENS * shadow.group_size)
    free = _told(settings, structured="off", max_tokens=room)
    if not shadow.judge_model:
        return make_judges(free, engine_url, engine_key)
    return [make_judge(free, engine_url, engine_key, shadow.judge_model, chosen.url, chosen.api_key)]


def _told(settings: Settings, **changes: Any) -> Settings:
    return settings.model_copy(update={"judge": settings.judge.model_copy(update=changes)})


async def run(settings: Settings, engine_url: str, engine_key: str, is_stopping: Callable[[], bool]) -> None:
    """Judge until `is_stopping()`."""
    panel = Panel(make_judges(settings, engine_url, engine_key), settings.judge.deadline)
    # Structured output holds an answer to the form of a verdict; a comparison has another.
    free = Panel(make_judges(_told(settings, structured="off"), engine_url, engine_key), settings.judge.deadline)
    graders = Panel(make_graders(settings, engine_url, engine_key), settings.judge.deadline)
    journal = Journal.open(settings.journal_url)
    try:
        await asyncio.gather(
            Worker(journal, panel, settings.judge).run_forever(is_stopping),
            Comparer(journal, free, settings.judge).run_forever(is_stopping),
            Grader(journal, graders, settings.judge).run_forever(is_stopping),
        )
    finally:
        await panel.close()
        await free.close()
        await graders.close()
        journal.close()
