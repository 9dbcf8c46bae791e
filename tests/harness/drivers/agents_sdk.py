"""Drives the OpenAI Agents SDK. The first argument says what to do; the last line printed is JSON."""

import asyncio
import json
import sys
from typing import Any

from agents import Agent, Runner, function_tool, set_default_openai_api, set_tracing_disabled

set_tracing_disabled(True)


@function_tool
def look(at: str) -> str:
    """Look at a place."""
    return f"saw {at}"


@function_tool
def read(at: str) -> str:
    """Read a sign."""
    return f"read {at}"


async def converse(opening: str, agent: Agent[Any], is_streamed: bool = True) -> dict[str, Any]:
    """One run, then another that goes on from it."""
    result: Any = None
    for said in ([{"role": "user", "content": opening}], [{"role": "user", "content": "bye"}]):
        asked = [*(result.to_input_list() if result else []), *said]
        if is_streamed:
            result = Runner.run_streamed(agent, asked)
            async for _ in result.stream_events():
                pass
        else:
            result = await Runner.run(agent, asked)
    return {"text": result.final_output}


def walker() -> Agent[Any]:
    return Agent(name="walker", model="agent", instructions="You look at places.", tools=[look])


def guide() -> Agent[Any]:
    """An agent that has another for a tool."""
    reader = Agent(name="reader", model="agent", instructions="You read signs.", tools=[read])
    tool = reader.as_tool(tool_name="ask_reader", tool_description="Ask the reader.")
    return Agent(name="guide", model="agent", instructions="You guide people.", tools=[tool, look])


def chat() -> Any:
    set_default_openai_api("chat_completions")
    return converse("scene:walk.chat please", walker())


MODES = {
    "streamed": lambda: converse("scene:walk.streamed please", walker()),
    "whole": lambda: converse("scene:walk.whole please", walker(), is_streamed=False),
    "chat": chat,
    "team": lambda: converse("scene:guide please", guide()),
}

if __name__ == "__main__":
    print(json.dumps(asyncio.run(MODES[sys.argv[1]]())))
