"""The learner's process: its loop, its ledger in the journal, and the scheduler of all agents' steps."""
