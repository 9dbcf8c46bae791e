"""`burnish demo`: an agent gets better through use, on this machine, with real parts."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from burnish import logs
from burnish.cli.common import ConfigFile, Overrides, console, load_settings, out
from burnish.cli.up import check_start
from burnish.config import Settings
from burnish.files import read_json, replace_text

BARS: dict[str, tuple[str, str, Callable[[float], bool]]] = {
    "wall_seconds": ("wall time, seconds", "≤ 600", lambda v: v <= 600),
    "score_before": ("score of the served agent, before", "≤ 0.15", lambda v: v <= 0.15),
    "score_after": ("score of the served agent, after", "≥ 0.80", lambda v: v >= 0.80),
    "interactions": ("interactions", "≤ 512", lambda v: v <= 512),
    "requests_failed": ("client requests failed", "0", lambda v: v == 0),
    "swaps": ("swaps with ≥ 4 streams in flight", "≥ 5", lambda v: v >= 5),
    "misjoined": ("turns joined to a wrong session", "0", lambda v: v == 0),
    "control_off_change": ("control, learner off: change of score", "± 0.05", lambda v: abs(v) <= 0.05),
    "control_shuffled_score": ("control, rewards shuffled: score after", "≤ 0.25", lambda v: v <= 0.25),
}


def demo(
    control: Annotated[
        bool, typer.Option("--control", help="Run the two controls instead: learner off, rewards shuffled.")
    ] = False,
    interactions: Annotated[int, typer.Option(min=32, help="Interactions in all.")] = 512,
    users: Annotated[int, typer.Option(min=1, help="Simulated users.")] = 8,
    seed: Annotated[int, typer.Option(help="Seed of users and learner.")] = 0,
    file: ConfigFile = None,
    overrides: Overrides = None,
) -> None:
    """Let simulated users teach the sandbox agent their style, and show how its score rises."""
    from burnish.sandbox.demo.run import Plan

    given = [*(overrides or []), f"learner.recipe.seed={seed}"]
    logs.configure("console", "demo")
    settings = load_settings(file, given)
    report = settings.state_dir / "demo" / "report.json"
    if not control:
        plan = Plan(n_interactions=interactions, n_users=users, seed=seed)
        _play(settings, plan, report, {})
        return
    kept = read_json(report) or {}
    off = Plan(title="control: learner off", n_interactions=interactions, n_users=users, seed=seed)
    shuffled = Plan(title="control: rewards shuffled", n_interactions=interactions, n_users=users, seed=seed)
    runs = ((off, "learner.enabled=false", "off"), (shuffled, "learner.recipe.shuffle_rewards=true", "shuffled"))
    for plan, override, name in runs:
        folder = settings.state_dir.with_name(f"{settings.state_dir.name}-control-{name}")
        state = load_settings(file, [*given, override], folder)
        figures = _play(state, plan, folder / "demo" / "report.json", {})
        kept |= {
            f"control_{name}_{key}": figures[key]
            for key in ("score_before", "score_after", "requests_failed", "wall_seconds")
        }
    kept["control_off_change"] = round(kept["control_off_score_after"] - kept["control_off_score_before"], 4)
    kept["control_shuffled_score"] = kept["control_shuffled_score_after"]
    replace_text(report, json.dumps(kept, indent=1) + "\n")
    _print_table(kept)
    out.print(f"written to {report}", highlight=False)


def _play(settings: Settings, plan: Any, report: Path, kept: dict[str, Any]) -> dict[str, Any]:
    from burnish.sandbox.demo.plot import draw
    from burnish.sandbox.demo.run import fresh, play

    fresh(settings.state_dir, lambda text: console.print(text, highlight=False, soft_wrap=True))
    check_start(settings)
    outcome = play(settings, plan, console)
    figures = {**kept, **outcome.figures, **{f"score_at_{n}": round(score, 4) for n, score in outcome.exams}}
    replace_text(report, json.dumps(figures, indent=1) + "\n")
    pictures = draw(report.parent, {plan.title.removeprefix("control: "): outcome.exams}, outcome.trail)
    _print_table(figures)
    out.print(f"report  {report}\ncurve   {pictures[0]}\nlog     {settings.state_dir / 'demo.log'}", highlight=False)
    if settings.state_dir.name == ".burnish":
        out.print("\n[bold]burnish up[/] now serves what was learned.")
    return figures


def _print_table(figures: dict[str, Any]) -> None:
    table = Table("what", "key", "figure", "bar", "", title="simulated users, sandbox model", title_justify="left")
    for key, (label, bar, holds) in BARS.items():
        if key in figures:
            table.add_row(label, key, str(figures[key]), bar, "[green]✓[/]" if holds(figures[key]) else "[red]✗[/]")
    out.print(table)
    rest = {key: value for key, value in figures.items() if key not in BARS}
    out.print(", ".join(f"{key} {value}" for key, value in rest.items()), style="dim", highlight=False, soft_wrap=True)
