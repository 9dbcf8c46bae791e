"""An Interaction and what followed become a Judgement."""
