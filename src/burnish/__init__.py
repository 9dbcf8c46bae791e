"""Burnish, an agent server that trains while it serves. This package is its spine: records, journal, settings,
commands.
"""

__version__ = "0.1.0"
