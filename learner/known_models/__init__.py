"""Models that Burnish knows by name: fetched once, converted once, kept in the user's cache directory.

Hub names and directories of other models go into `engine.model` as they are and never come here.
"""

from burnish.learner.known_models.cache import Fetched, directory, ensure, fetch, place
from burnish.learner.known_models.known import KNOWN, KnownModel, find

__all__ = ["KNOWN", "Fetched", "KnownModel", "directory", "ensure", "fetch", "find", "place"]
