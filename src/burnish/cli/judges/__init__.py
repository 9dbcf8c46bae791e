"""`burnish judges`: check whether a judge may speak, measure it, compare it with another one, count how often users
agree.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from burnish.cli.common import (
    AgentName,
    AsJson,
    ConfigFile,
    EveryAgent,
    Limit,
    Overrides,
    Since,
    StateDir,
    console,
    example,
    existing,
    load_settings,
    moment,
    out,
    print_json,
)
from burnish.cli.judges.label import label
from burnish.cli.tables import judges as tables
from burnish.config import Settings
from burnish.errors import ConfigError
from burnish.journal import Journal, judge_checks
from burnish.journal.listing import label_queue
from burnish.journal.listing.label_queue import Why

if TYPE_CHECKING:
    from burnish.judges.calibration.calibrate import Terms
    from burnish.judges.judge import Judge

T = TypeVar("T")
app = typer.Typer(
    help="List, check and calibrate judges; label turns; judge recorded turns again.",
    epilog=example("judges check", "judges calibrate --golden mine.jsonl"),
    no_args_is_help=True,
)
app.command(epilog=example("judges label --output mine.jsonl"))(label)
JudgeName = Annotated[
    str | None,
    typer.Option("--judge", help="A judge instead of the configured one: `base`, `agent@v12`, or litellm's name."),
]


@app.command("list", epilog=example("judges list --json"))
def list_(
    agent: EveryAgent = None,
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """List the judges in the journal: verdicts, abstentions, failed votes, and how often users agreed."""
    from burnish.judges.calibration.standings import standings

    settings = load_settings(file, None, state)
    with Journal.open(settings.journal_url, migrate=False).read() as session:
        found = standings(session, agent)
        states = {name: str(row.state) for name, row in judge_checks.filed(session).items()}
    if as_json:
        print_json([each.to_json() | {"fitness": states.get(each.judge_id)} for each in found])
        return
    out.print(tables.standings_table(found, states))


@app.command(epilog=example("judges queue", "judges queue --why sample --limit 5"))
def queue(
    why: Annotated[Why, typer.Option(help="Why a turn is in the queue.")] = Why.ABSTAINED,
    agent: AgentName = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=100, help="Most turns.")] = 20,
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """List the latest turns that a person should label, as on the page Label. `burnish turns rate` labels one."""
    _, journal, name = existing(file, state, agent)
    with journal.read() as session:
        found, _ = label_queue.queue(session, name, why, before=None, limit=limit)
    print_json(found) if as_json else out.print(tables.queue_table(found))


@app.command(epilog=example("judges cost --since 7d", "judges cost --json"))
def cost(
    since: Since = None,
    agent: EveryAgent = None,
    file: ConfigFile = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Show what judges cost by day (UTC): votes, tokens, and the time that was waited for answers."""
    from burnish.journal.listing.judge_figures import costs

    _, journal, _ = existing(file, state, None)
    with journal.read() as session:
        found = costs(session, agent, moment(since or "30d") or 0.0)
    print_json(found) if as_json else out.print(tables.cost_table(found))


@app.command(epilog=example("judges check", "judges check --judge openai/gpt-5"))
def check(
    judge: JudgeName = None,
    file: ConfigFile = None,
    overrides: Overrides = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Check on the shipped golden set whether a judge may speak, and store the answer. Exit status 1 if it may not."""
    from burnish.judges import permits
    from burnish.judges.calibration import check as module
    from burnish.judges.calibration.golden import load, shipped
    from burnish.records import Fitness

    settings = load_settings(file, overrides, state)
    path = shipped(settings.uses_sandbox)
    cases = load(path)
    made = _judge(settings, judge)
    with _bar(made.model, len(cases)) as tick:
        found = asyncio.run(_closing(made, module.check(made, cases, tick)))
    journal = Journal.open(settings.journal_url)
    with journal.write() as session:
        permits.file(session, settings, made.model)
        permits.conclude(session, settings, made.model, found.state, found.reason, found.figures.to_json())
    journal.close()
    remedy = "" if found.state is Fitness.FIT else permits.REMEDY
    if as_json:
        facts = {"judge": made.model, "golden": path.name, "state": found.state, "reason": found.reason}
        print_json(facts | {"remedy": remedy} | found.figures.to_json())
    else:
        out.print(tables.check_table(made.model, path.name, found, remedy))
    if found.state is not Fitness.FIT:
        raise typer.Exit(1)


@app.command(epilog=example("judges calibrate --golden mine.jsonl --judge base"))
def calibrate(
    golden: Annotated[
        Path | None,
        typer.Option("--golden", help="Golden set (JSON lines). Default: the shipped one for the served model."),
    ] = None,
    judge: Annotated[
        list[str] | None, typer.Option("--judge", help="A judge instead of the configured one; repeatable.")
    ] = None,
    file: ConfigFile = None,
    overrides: Overrides = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Score judges on a golden set: accuracy, false positives, κ, calibration, cost."""
    from burnish.judges.calibration import calibrate as module
    from burnish.judges.calibration.golden import load, shipped

    settings = load_settings(file, overrides, state)
    rubric = settings.judge.rubrics.get(settings.agent.name, "")
    path = golden or shipped(settings.uses_sandbox)
    cases = load(path)
    report: list[dict[str, Any]] = []
    names: list[str | None] = [*judge] if judge else [None]
    try:
        for name in names:
            made = _judge(settings, name)
            with _bar(made.model, len(cases)) as tick:
                found = asyncio.run(_closing(made, module.calibrate(made, cases, _terms(settings), tick, rubric)))
            if not as_json:
                out.print(tables.calibration_tables(found, path.name))
            report.append(tables.calibration_json(found))
    finally:  # a judge that fails must not lose the results of the judges before it
        if as_json and report:
            print_json(report)


@app.command(epilog=example("judges rejudge --since 3d --judge openai/gpt-5 --store"))
def rejudge(
    since: Since = None,
    limit: Limit = 200,
    judge: JudgeName = None,
    store: Annotated[bool, typer.Option("--store", help="Store the new verdicts beside the old ones.")] = False,
    agent: AgentName = None,
    file: ConfigFile = None,
    overrides: Overrides = None,
    state: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Judge recorded turns again and compare with their verdicts. --store keeps the new verdicts; they count if the
    judge is fit.
    """
    from burnish.judges import permits
    from burnish.judges.calibration import rejudge as module
    from burnish.judges.judge import identity
    from burnish.judges.verdicts.verdict import PROMPT
    from burnish.records import Fitness

    settings = load_settings(file, overrides, state)
    begin = moment(since) or 0.0
    journal = Journal.open(settings.journal_url, migrate=store)
    made = _judge(settings, judge)
    named = agent or settings.agent.name
    own = identity(made.model, PROMPT, settings.judge.rubrics.get(named, ""))
    with journal.read() as session:
        turns = module.recorded(session, agent=named, since=begin, limit=limit, but=own)
        asked = module.questions(session, turns, settings.judge.rubrics)
    if not asked:
        asyncio.run(made.close())
        raise ConfigError(
            "found no judged turns to judge again; `burnish judges list` shows whose verdicts the journal holds"
        )
    n_stored = 0

    def keep(some: Sequence[module.Again]) -> None:
        nonlocal n_stored
        n_stored += module.store(journal, some)

    if store:
        with journal.write() as session:
            if (filed := permits.file(session, settings, made.model)) is not Fitness.FIT:
                fix = f"burnish judges check --judge {made.model}"
                console.print(f"the judge is {filed}: its verdicts do not count ({fix})", style="dim", soft_wrap=True)

    with _bar(made.model, len(asked)) as tick:
        asking = module.judge_again(made, asked, _terms(settings), tick, keep if store else None)
        again = asyncio.run(_closing(made, asking))
    journal.close()
    figures = module.compare(again) | {"judge": made.model, "not_readable": len(turns) - len(asked)}
    if store:
        figures["stored"] = n_stored
    if as_json:
        print_json(figures | {"verdicts": [tables.again_json(each) for each in again]})
        return
    out.print(tables.rejudge_tables(figures, again))


def _judge(settings: Settings, name: str | None) -> "Judge":
    """The judge `name`, or the first configured one."""
    from burnish.judges.process import is_ours, make_judge, make_judges
    from burnish.keys import engine_key

    url, key, chosen = settings.engine_urls[0], engine_key(settings), settings.judge
    if name is None:
        return make_judges(settings, url, key)[0]
    if name == chosen.fallback_model:
        return make_judge(settings, url, key, name)
    # A key goes only to its own server. Another provider's model, and our own engine's, gets no key.
    is_there = name == chosen.model or ("/" not in name and not is_ours(settings, name))
    there = (chosen.url, chosen.api_key) if is_there else ("", "")
    return make_judge(settings, url, key, name, *there)


def _terms(settings: Settings) -> "Terms":
    from burnish.judges.calibration.calibrate import Terms

    return Terms(settings.judge.votes, settings.judge.concurrency)


@contextmanager
def _bar(title: str, total: int) -> Iterator[Callable[[], None]]:
    """A progress bar on the error stream, so that the output stays clean."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(escape(title), total=total)
        yield lambda: progress.advance(task)


async def _closing(judge: "Judge", asked: Awaitable[T]) -> T:
    """The result of `asked`. The judge's connections are closed in the same loop."""
    try:
        return await asked
    finally:
        await judge.close()
