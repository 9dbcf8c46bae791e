"""Metrics: `counts` counts in a gateway process, `published` adds the processes up, `scrape` answers `/metrics`.

The figures of all other parts come from the journal (`from_journal`) and from the engines (`from_engines`).
"""
