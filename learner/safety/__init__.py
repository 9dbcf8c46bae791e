"""The safeguards of learning: monitors, backoff, forgetting, hint validation."""
