"""The golden set that ships with the sandbox: `python -m benchmarks.judging.golden` writes it, `--check` compares.

The sandbox's own verdict generator draws the cases. Their label follows from the next state alone. Training never uses
the seed, and every case holds a task with held-out arguments, so that no case can be a training row.
"""

import argparse
import random
import sys
from collections import Counter

from burnish.judges.calibration import golden
from burnish.judges.calibration.golden import GoldenCase
from burnish.sandbox.training import judging_rows
from burnish.sandbox.world import language, persona, tool_task

SEED = "golden set 1"
WANTED = {("user", 1): 40, ("user", 0): 80, ("user", -1): 40, ("tool", 1): 40, ("tool", -1): 40}
"""The number of cases by origin and score. A tool's result is never neutral in this language, so the 0 cases come from
users.
"""


def cases() -> list[GoldenCase]:
    """All cases, all different, mixed."""
    rng = random.Random(SEED)
    found: dict[str, GoldenCase] = {}
    counted: Counter[tuple[str, int]] = Counter()
    while counted.total() < sum(WANTED.values()):
        drawn = judging_rows.draw_case(rng)
        if drawn.score is None or counted[drawn.origin, drawn.score] >= WANTED.get((drawn.origin, drawn.score), 0):
            continue
        case = _golden(drawn, rng)
        if case is None:
            continue
        key = case.to_line()
        if golden.question(case).rule is None and key not in found:
            found[key] = case
            counted[drawn.origin, drawn.score] += 1
    mixed = list(found.values())
    rng.shuffle(mixed)
    return mixed


def _golden(drawn: judging_rows.Case, rng: random.Random) -> GoldenCase | None:
    """The case with a held-out task in place of its last one. None if there is no task to replace."""
    task = language.draw_task(rng, held_out=True)
    asked = {"role": "user", "content": language.ask(task, rng)}
    conversation = [dict(message) for message in drawn.conversation]
    if drawn.origin == "tool":
        answered = {"role": "assistant", "content": language.render(language.answer(task), persona.draw_style(rng, {}))}
        key, name = rng.choice(tool_task.KEYS), rng.choice(tool_task.NAMES)
        return GoldenCase(
            (*conversation[:-1], asked, answered, {"role": "user", "content": tool_task.ask(key, rng)}),
            tool_task.call_message(name, key),
            (tool_task.result_message(drawn.next_state),),
            "tool",
            drawn.score or 0,
        )
    if not language.parse_task(str(conversation[-1]["content"])) or drawn.origin != "user":
        return None
    reply = language.render(language.answer(task), language.style_of(drawn.reply), rng.choice(language.OPENERS))
    next_message = {"role": "user", "content": drawn.next_state}
    return GoldenCase(
        (*conversation[:-1], asked), {"role": "assistant", "content": reply}, (next_message,), "user", drawn.score or 0
    )


def text() -> str:
    """The file's content."""
    return "".join(case.to_line() for case in cases())


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.judging.golden", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the file differs")
    if parser.parse_args().check:
        sys.exit(int(golden.SHIPPED.read_text(encoding="utf-8") != text()))
    golden.SHIPPED.write_text(text(), encoding="utf-8")
    print(f"{sum(WANTED.values())} cases written to {golden.SHIPPED.name}")


if __name__ == "__main__":
    main()
