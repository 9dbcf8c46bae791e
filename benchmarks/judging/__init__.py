"""How well turns are judged: attacks on the judge, the queue, the votes."""
