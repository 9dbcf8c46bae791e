"""What the gateway costs, compared with a bare relay and the litellm proxy (`python -m benchmarks.gateway`)."""
