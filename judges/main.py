"""The judge's process."""

from collections.abc import Callable

from burnish.config import Settings
from burnish.journal import Journal
from judges.judge import Judge
from judges.local import LocalJudge
from judges.remote import RemoteJudge
from judges.worker import Worker


def make_judge(settings: Settings, engine_url: str, engine_key: str) -> Judge:
    """The judge that the settings name; the frozen base on the serving engine where they name none."""
    chosen = settings.judge
    options = {"temperature": chosen.temperature, "max_tokens": chosen.max_tokens, "timeout": chosen.timeout}
    if not chosen.model:
        return LocalJudge(engine_url, settings.engine.base_name, api_key=engine_key, **options)  # type: ignore[arg-type]
    if chosen.url and "/" not in chosen.model:
        return LocalJudge(chosen.url, chosen.model, api_key=chosen.api_key, **options)  # type: ignore[arg-type]
    return RemoteJudge(chosen.model, url=chosen.url, api_key=chosen.api_key, **options)  # type: ignore[arg-type]


async def run(settings: Settings, engine_url: str, engine_key: str, is_stopping: Callable[[], bool]) -> None:
    """Judge until `is_stopping()`."""
    judge = make_judge(settings, engine_url, engine_key)
    worker = Worker(
        Journal.open(settings.journal_url),
        judge,
        votes=settings.judge.votes,
        concurrency=settings.judge.concurrency,
        max_attempts=settings.judge.max_attempts,
        lease_seconds=2 * settings.judge.timeout + 10,
        min_agreement=settings.judge.min_agreement,
    )
    try:
        await worker.run_forever(is_stopping)
    finally:
        await judge.close()
