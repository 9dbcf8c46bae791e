"""`/v1/responses`: OpenAI's Responses, turned into a chat completion for the engine and back. Nothing is stored for
later.

fields.py checks a request, input.py and tools.py turn it into chat form, request.py puts the two together; output.py
grows the reply's items (item.py), and renderer.py writes them as one Response (response.py) or as a stream of events.
"""

from burnish.server.gateway.dialects.responses.dialect import PATH, Responses

__all__ = ["PATH", "Responses"]
