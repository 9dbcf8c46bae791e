"""Versions on a share of the traffic, and the watch over what was promoted.

settled.py reads from the journal what turns show, observer.py counts them and acts on what
adapters/evidence/comparison.py decides; verbs.py is what operators can do, admin.py the same over HTTP.
"""
