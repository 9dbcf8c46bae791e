"""An agent's own settings override the server's. Invalid ones harm nobody."""

from pathlib import Path

from burnish import config
from burnish.adapters.registry import lifecycle
from burnish.journal import Journal
from burnish.journal.tables import AgentRow
from burnish.server.rollout.agent_settings import settings_by_agent


def test_own_settings_stand_over_the_servers(journal: Journal, tmp_path: Path) -> None:
    settings = config.load(flags={"state_dir": str(tmp_path)})
    with journal.write() as session:
        for name, own in (
            ("plain", {}),
            ("own", {"canary.share": 0.25}),
            ("odd", {"canary.share": 7}),
            ("file", {"gate.forgetting_prompts": "/nonexistent"}),
            ("unfit", {"learner.recipe": {"policy_loss": "gspo", "correction": "token_tis"}}),
        ):
            lifecycle.ensure_agent(session, name)
            session.get_one(AgentRow, name).settings = own
    of = settings_by_agent(settings, journal)
    assert of("plain") == of("odd") == of("file") == of("unfit") == of("never seen") == settings
    assert of("own").canary.share == 0.25 and of("own").learner == settings.learner
