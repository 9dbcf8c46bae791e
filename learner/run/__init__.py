"""The learner as a process: its loop, its ledger in the journal, and who takes the next step."""
