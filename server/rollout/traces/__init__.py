"""Traces, by OpenTelemetry: `reading` finds in the journal what is new, `spans` says what it becomes, `otlp` sends it.

`tail` does so again and again. One trace goes from a request to the version that learned from it.
"""
