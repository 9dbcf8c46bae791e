"""Settings of the judge."""

from pydantic import Field

from burnish.config.section import Section


class Judge(Section):
    """The process-reward judge."""

    model: str = Field(
        "",
        description="Model that judges: empty = the frozen base on the same engine; else litellm's name, e.g. "
        "openai/gpt-5.",
    )
    url: str = Field("", description="Base URL of an OpenAI-compatible server for `model`; empty lets litellm choose.")
    api_key: str = Field("", description="Key for the server or provider of `judge.model`.")
    votes: int = Field(
        3, ge=1, le=15, description="Independent votes for each turn; with fewer than 3 no hint is used."
    )
    fallback_model: str = Field(
        "", description="Model asked if the first one fails: a name on the same engine, or litellm's; empty for none."
    )
    max_votes_per_day: int = Field(
        0, ge=0, description="Most votes in one day (UTC); what comes after waits. 0 for no limit."
    )
    rubrics: dict[str, str] = Field(
        {},
        description="What the judge is told besides, by agent, or by route (`chat`, `messages`, …) for agents without "
        "an entry; part of the judge's identity.",
    )
    concurrency: int = Field(4, ge=1, description="Turns judged at a time.")
    pool: int = Field(1, ge=1, le=64, description="Judging processes side by side, or actors with `judge.ray`.")
    ray: str = Field(
        "", description="Ray cluster whose actors judge: its address, or `local` for one started here; empty for none."
    )
