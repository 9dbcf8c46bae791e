"""The serving side: gateway, ingester, rollout. The three never import each other."""
