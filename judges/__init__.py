"""An Interaction and the reaction to it become a Judgement."""
