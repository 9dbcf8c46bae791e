"""The judge's process."""

from collections.abc import Callable

from burnish.config import Settings
from burnish.journal import Journal
from judges.judge import Judge
from judges.local import LocalJudge
from judges.remote import RemoteJudge
from judges.worker import Worker


def make_judges(settings: Settings, engine_url: str, engine_key: str) -> list[Judge]:
    """The judges that the settings name, best first; the frozen base on the serving engine where they name none."""
    chosen = settings.judge
    options = {"temperature": chosen.temperature, "max_tokens": chosen.max_tokens, "timeout": chosen.timeout}
    named = [(chosen.model, chosen.url, chosen.api_key)]
    if chosen.fallback_model:
        named.append((chosen.fallback_model, chosen.fallback_url, chosen.fallback_api_key))
    judges: list[Judge] = []
    for model, url, api_key in named:
        if not model:
            judges.append(LocalJudge(engine_url, settings.engine.base_name, api_key=engine_key, **options))  # type: ignore[arg-type]
        elif url and "/" not in model:
            judges.append(LocalJudge(url, model, api_key=api_key, **options))  # type: ignore[arg-type]
        else:
            judges.append(RemoteJudge(model, url=url, api_key=api_key, **options))  # type: ignore[arg-type]
    return judges


async def run(settings: Settings, engine_url: str, engine_key: str, is_stopping: Callable[[], bool]) -> None:
    """Judge until `is_stopping()`."""
    judges = make_judges(settings, engine_url, engine_key)
    chosen = settings.judge
    worker = Worker(
        Journal.open(settings.journal_url),
        *judges,
        votes=chosen.votes,
        concurrency=chosen.concurrency,
        max_attempts=chosen.max_attempts,
        lease_seconds=len(judges) * chosen.deadline + 10,
        min_agreement=chosen.min_agreement,
        deadline=chosen.deadline,
        daily_votes=chosen.daily_votes,
        rubrics=chosen.rubrics,
    )
    try:
        await worker.run_forever(is_stopping)
    finally:
        for judge in judges:
            await judge.close()
