"""Settings of the judge."""

from typing import Literal

from pydantic import Field

from burnish.config.section import Section


class Judge(Section):
    """The process-reward judge."""

    model: str = Field(
        "",
        description="Model that judges: empty = the frozen base on the same engine; else litellm's name, e.g. openai/gpt-5.",
    )
    url: str = Field("", description="Base URL of an OpenAI-compatible server for `model`; empty lets litellm choose.")
    api_key: str = Field("", description="Key for that server.")
    votes: int = Field(
        3, ge=1, le=15, description="Independent votes for each turn; with fewer than 3 no hint is used."
    )
    fallback_model: str = Field(
        "", description="Model asked where the first one fails; named as `model` is; empty for none."
    )
    fallback_url: str = Field("", description="Base URL of an OpenAI-compatible server for `fallback_model`.")
    fallback_api_key: str = Field("", description="Key for that server.")
    deadline: float = Field(
        60.0, gt=0, description="Seconds for all votes of a turn by one judge; then it counts as failed."
    )
    daily_votes: int = Field(
        0, ge=0, description="Most votes in one day (UTC); what comes after waits. 0 for no limit."
    )
    min_agreement: float = Field(
        0.6, ge=0.0, le=1.0, description="Share of the votes that must agree; below it the judge abstains."
    )
    rubrics: dict[str, str] = Field(
        {},
        description="What the judge is told besides, by agent, or by route (`chat`, `messages`, …) for agents without an entry; part of "
        "the judge's identity.",
    )
    temperature: float = Field(0.6, ge=0.0, le=2.0, description="Sampling temperature of the votes.")
    max_tokens: int = Field(64, ge=8, description="Longest answer of a vote, in tokens.")
    timeout: float = Field(30.0, gt=0, description="Seconds for one vote.")
    max_attempts: int = Field(3, ge=1, description="Tries before a turn is left unjudged.")
    concurrency: int = Field(4, ge=1, description="Turns judged at a time.")
    structured: Literal["auto", "on", "off"] = Field(
        "auto",
        description="Hold the judge to the form of its answer: a regular expression on an engine, a JSON schema at a provider. `auto` "
        "asks our own engine and providers known to be able, until it is refused once.",
    )
    pool: int = Field(1, ge=1, le=64, description="Judging processes side by side, or actors with `judge.ray`.")
    ray: str = Field(
        "", description="Ray cluster whose actors judge: its address, or `local` for one started here; empty for none."
    )
