"""What keeps learning from going wrong: monitors, backoff, forgetting, hint validation."""
