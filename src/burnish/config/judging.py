"""Settings of the judge."""

from pydantic import Field

from burnish.config.section import Section


class Judge(Section):
    """The process-reward judge."""

    model: str = Field(
        "",
        description="Model that judges. Empty: the frozen base on the same engine. Else litellm's name, e.g. "
        "openai/gpt-5.",
    )
    url: str = Field("", description="Base URL of an OpenAI-compatible server for `model`. Empty: litellm chooses.")
    api_key: str = Field("", description="Key for the server or provider of `judge.model`.")
    votes: int = Field(
        3, ge=1, le=15, description="Independent votes for each turn. With fewer than 3 no hint is used."
    )
    fallback_model: str = Field(
        "",
        description="Model that is asked if the first one fails: a name on the same engine, or litellm's. Empty: none.",
    )
    max_votes_per_day: int = Field(0, ge=0, description="Most votes in one day (UTC). Further turns wait. 0: no limit.")
    rubrics: dict[str, str] = Field(
        {},
        description="Additional instructions for the judge, by agent, or by route (`chat`, `messages`, …) for "
        "agents without an entry. They are part of the judge's identity.",
    )
    concurrency: int = Field(4, ge=1, description="Turns judged at the same time.")
    pool: int = Field(1, ge=1, le=64, description="Number of judging processes, or of actors with `judge.ray`.")
    ray: str = Field(
        "", description="Address of the Ray cluster with the judging actors, or `local` to start one here. Empty: none."
    )
