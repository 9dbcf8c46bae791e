"""`burnish demo`: an agent gets better through use, on this machine, with real parts."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from burnish import logs
from burnish.cli.common import ConfigFile, Overrides, console, load_settings, out
from burnish.cli.tables import Listing
from burnish.cli.up import alone, check_alone, check_start
from burnish.config import Settings
from burnish.files import read_json, replace_text

Bar = tuple[str, str, Callable[[float], bool]]
MODEL = "smollm2"
BARS: dict[str, Bar] = {
    "wall_seconds": ("wall time, seconds", "≤ 900", lambda v: v <= 900),
    "score_prompted": ("score of the base with the wishes in its prompt", "–", lambda v: True),
    "score_before": ("score of the served agent, before", "≤ 0.10", lambda v: v <= 0.10),
    "score_after": ("score of the served agent, after", "≥ 0.60", lambda v: v >= 0.60),
    "kept": ("answers about other things, share of the base's", "≥ 0.95", lambda v: v >= 0.95),
    "interactions": ("rated replies", "≤ 256", lambda v: v <= 256),
    "requests_failed": ("client requests failed", "0", lambda v: v == 0),
    "swaps": ("swaps with ≥ 4 streams in flight", "≥ 4", lambda v: v >= 4),
    "misjoined": ("turns joined to a wrong session", "0", lambda v: v == 0),
    "control_off_change": ("control, learner off: change of score", "± 0.05", lambda v: abs(v) <= 0.05),
    "control_shuffled_score": ("control, rewards shuffled: score after", "≤ 0.20", lambda v: v <= 0.20),
}
SANDBOX_BARS: dict[str, Bar] = {
    **{key: BARS[key] for key in ("requests_failed", "misjoined", "control_off_change")},
    "wall_seconds": ("wall time, seconds", "≤ 600", lambda v: v <= 600),
    "score_before": ("score of the served agent, before", "≤ 0.15", lambda v: v <= 0.15),
    "score_after": ("score of the served agent, after", "≥ 0.80", lambda v: v >= 0.80),
    "interactions": ("interactions", "≤ 512", lambda v: v <= 512),
    "swaps": ("swaps with ≥ 4 streams in flight", "≥ 5", lambda v: v >= 5),
    "control_shuffled_score": ("control, rewards shuffled: score after", "≤ 0.25", lambda v: v <= 0.25),
}


def demo(
    control: Annotated[
        bool, typer.Option("--control", help="Run the two controls instead: learner off, rewards shuffled.")
    ] = False,
    sandbox: Annotated[
        bool, typer.Option("--sandbox", help="Use the toy language and the small model that ships with Burnish.")
    ] = False,
    interactions: Annotated[
        int | None, typer.Option(min=32, help="Replies in all (default: 256, with --sandbox 512).")
    ] = None,
    users: Annotated[int, typer.Option(min=1, help="Simulated users.")] = 8,
    seed: Annotated[int, typer.Option(help="Seed of users and learner.")] = 0,
    file: ConfigFile = None,
    overrides: Overrides = None,
) -> None:
    """Let simulated users teach an agent their style, and show how its score rises.

    The agent is a real language model, SmolLM2-135M-Instruct. It is fetched if it is not there.
    """
    from burnish.sandbox.demo import worlds
    from burnish.sandbox.demo.run import Plan

    logs.configure("console", "demo")
    folder = Path(".burnish") / ("demo-sandbox" if sandbox else "demo")
    given = [*(overrides or []), f"learner.recipe.seed={seed}"]
    if not sandbox and not any(text.startswith("engine.model=") for text in given):
        given.append(f"engine.model={_model()}")

    def settings(state: Path, *further: str) -> Settings:
        return load_settings(file, [*given, *further], state)

    def plan(title: str = "learning") -> Plan:
        world = worlds.sandbox() if sandbox else worlds.english()
        n = interactions or (512 if sandbox else 256)
        return Plan(world, title, n_interactions=n, n_users=users, seed=seed)

    bars, report = (SANDBOX_BARS if sandbox else BARS), folder / "report.json"
    if not control:
        figures = _play(settings(folder), plan(), bars)
        _say_how_to_go_on(settings(folder), figures)
        return
    kept = read_json(report) or {}
    runs = (("off", "learner off", "learner.enabled=false"), ("shuffled", "rewards shuffled", SHUFFLED))
    for name, title, override in runs:
        state = folder.with_name(f"{folder.name}-control-{name}")
        figures = _play(settings(state, override), plan(f"control: {title}"), {})
        kept |= {
            f"control_{name}_{key}": figures[key]
            for key in ("score_before", "score_after", "requests_failed", "wall_seconds")
        }
    kept["control_off_change"] = round(kept["control_off_score_after"] - kept["control_off_score_before"], 4)
    kept["control_shuffled_score"] = kept["control_shuffled_score_after"]
    report.parent.mkdir(parents=True, exist_ok=True)
    replace_text(report, json.dumps(kept, indent=1) + "\n")
    _print_table(kept, bars, plan().world.title)
    out.print(f"written to {report}", highlight=False)


SHUFFLED = "learner.recipe.shuffle_rewards=true"


def _model() -> Path:
    """The real model's directory. It is fetched if it is not there."""
    from burnish.learner.known_models import cache

    return cache.ensure(MODEL, lambda text: console.print(text, highlight=False, soft_wrap=True))


def _play(settings: Settings, plan: Any, bars: dict[str, Bar]) -> dict[str, Any]:
    from burnish.sandbox.demo.plot import draw
    from burnish.sandbox.demo.run import fresh, play

    folder, report = settings.state_dir, settings.state_dir / "report.json"
    check_alone(settings)
    fresh(folder, lambda text: console.print(text, highlight=False, soft_wrap=True))
    with alone(settings):
        check_start(settings)
        outcome = play(settings, plan, console)
    figures = {**outcome.figures, **{f"score_at_{n}": round(score, 4) for n, score in outcome.exams}}
    replace_text(report, json.dumps(figures, indent=1) + "\n")
    replace_text(folder / "replies.json", json.dumps(outcome.replies, indent=1, ensure_ascii=False) + "\n")
    pictures = draw(folder, {plan.title.removeprefix("control: "): outcome.exams}, outcome.trail, plan.world.title)
    _print_table(figures, bars, plan.world.title)
    _print_replies(plan.world.exam, outcome.replies)
    out.print(f"report  {report}\ncurve   {pictures[0]}\nlog     {folder / 'demo.log'}", highlight=False)
    return figures


def _say_how_to_go_on(settings: Settings, figures: dict[str, Any]) -> None:
    """Write the settings that serve what was learned, and say how to use them."""
    file = settings.state_dir / "burnish.toml"
    shown = {"state_dir": str(settings.state_dir), "model": str(settings.engine.model)}
    replace_text(
        file, f"state_dir = {json.dumps(shown['state_dir'])}\n\n[engine]\nmodel = {json.dumps(shown['model'])}\n"
    )
    out.print(f"\n[bold]burnish up --config {file}[/] now serves what was learned.", highlight=False, soft_wrap=True)


def _print_replies(exam: Any, replies: dict[int, list[str]], n_shown: int = 5) -> None:
    """A few held-out questions with the reply before and after."""
    first, last = min(replies), max(replies)
    table = Listing("question", "before", "after", title="the same questions, before and after", title_justify="left")
    for place in range(0, len(exam), max(1, len(exam) // n_shown))[:n_shown]:
        before, after = (" ".join(replies[n][place].split()) for n in (first, last))
        table.add_row(str(exam[place][-1]["content"]), before[:160], after[:160])
    out.print(table)


def _print_table(figures: dict[str, Any], bars: dict[str, Bar], title: str) -> None:
    table = Listing("what", "key", "figure", "bar", "", title=title, title_justify="left")
    for key, (label, bar, holds) in bars.items():
        if key in figures:
            table.add_row(label, key, str(figures[key]), bar, "[green]✓[/]" if holds(figures[key]) else "[red]✗[/]")
    out.print(table)
    rest = {key: value for key, value in figures.items() if key not in bars}
    out.print(", ".join(f"{key} {value}" for key, value in rest.items()), style="dim", highlight=False, soft_wrap=True)
