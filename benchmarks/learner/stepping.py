"""`python -m benchmarks.learner.stepping STATE`: a learner process for measurements that takes steps on command.

Niceness, throttle, threads and rows are the same as in the learner part. It publishes nothing, so that it can step
without a pause; a real learner waits for trials. The line `go` starts it, `stop` stops it. Each is answered by a line
with the steps taken since the last one.
"""

import sys
import threading
from pathlib import Path

from burnish import config, logs
from burnish.journal import Journal
from burnish.keys import engine_key
from burnish.learner.data.samples import Sample, to_sample
from burnish.learner.run.ledger import Ledger
from burnish.learner.run.process import anchors_for, trainer_for
from burnish.learner.run.throttle import Throttle, WorkShare, lower_priority, token_gaps


def main() -> None:
    """Load, print `ready`, then obey the lines of stdin."""
    settings = config.load(flags={"state_dir": sys.argv[1], "engine.port": int(sys.argv[2])})
    recipe = settings.recipe
    logs.configure("console", "learner")  # to stderr, because stdout carries the answers
    lower_priority()
    trainer = trainer_for(settings, recipe, settings.agent.name)
    anchors = anchors_for(settings, trainer.policy, recipe)
    ledger = Ledger(Journal.open(settings.journal_url), settings.agent.name)
    ready = ledger.load(ledger.ready_ids(recipe.max_rows))
    made = [to_sample(row.interaction, row.reward, trainer.policy.tokenizer, session=row.session_id) for row in ready]
    samples = [sample for sample in made if isinstance(sample, Sample)]
    go, is_over = threading.Event(), threading.Event()
    key, limit = engine_key(settings), settings.learner.max_latency_ratio or 0.0
    with Throttle(WorkShare(limit), lambda: token_gaps(settings.engine_urls, key)) as throttle:
        trainer.policy.rest = throttle.rest
        n_steps = 0

        def work() -> None:
            nonlocal n_steps
            while not is_over.is_set():
                if not go.wait(0.05):
                    continue
                with throttle.step():
                    trainer.step(samples, anchors.draw(recipe.anchor_rows, trainer.generator) if anchors else ())
                n_steps += 1

        worker = threading.Thread(target=work)
        worker.start()
        print(f"ready {len(samples)}", flush=True)
        for line in sys.stdin:
            (go.set if line.strip() == "go" else go.clear)()
            print(f"{n_steps} {throttle.work_share.share:.3f}", flush=True)
        is_over.set()
        worker.join()


if __name__ == "__main__":
    assert Path(sys.argv[1]).is_dir()
    main()
