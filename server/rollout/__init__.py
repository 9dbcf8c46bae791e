"""The rollout: a published version is tried, goes live, is watched, and is rolled back if it is worse."""
