"""HTTP below the routes: protocol, ASGI helpers, server-sent events, error envelopes."""
