"""Shadow groups scored without a judge: by the user's hint."""
