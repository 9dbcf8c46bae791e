"""Drives smolagents: an agent that calls tools, one that writes code. The last line printed is JSON."""

import json
import os
import sys
from typing import Any

from smolagents import CodeAgent, LogLevel, OpenAIServerModel, ToolCallingAgent, tool


@tool
def look(at: str) -> str:
    """Look at a place.

    Args:
        at: The place.
    """
    return f"saw {at}"


def run(opening: str, kind: Any, **more: Any) -> dict[str, Any]:
    """One task, then another that goes on from it."""
    model = OpenAIServerModel(
        model_id="agent", api_base=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"], max_tokens=1000
    )
    agent = kind(tools=[look], model=model, verbosity_level=LogLevel.OFF, **more)
    first = agent.run(opening)
    return {"first": first, "second": agent.run("bye", reset=False)}


MODES = {
    "tools": lambda: run("scene:tools.whole please", ToolCallingAgent),
    "tools-streamed": lambda: run("scene:tools.streamed please", ToolCallingAgent, stream_outputs=True),
    "code": lambda: run("scene:code please", CodeAgent),
}

if __name__ == "__main__":
    print("\n" + json.dumps(MODES[sys.argv[1]]()))
