"""`/v1/responses`: OpenAI's Responses, turned into a chat completion for the engine and back. Nothing is stored.

request_fields.py checks a request, input.py and tools.py turn it into chat form, and request.py joins the two.
output.py grows the reply's items (item.py). renderer.py writes them as one Response (response.py) or as a stream of
events.
"""

from burnish.server.gateway.dialects.responses.dialect import PATH, Responses

__all__ = ["PATH", "Responses"]
