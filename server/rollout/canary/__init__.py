"""Canaries and watches. The observer counts settled turns and acts on the decision of adapters/evidence/comparison.py.

A shadow canary answers live turns unseen (mirror.py), and the judge compares the pairs (mirrored_pairs.py).
"""
