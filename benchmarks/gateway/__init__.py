"""What the gateway costs: ours beside a bare relay and the litellm proxy, in one run (`python -m benchmarks.gateway`)."""
