"""Serves a policy inside the trainer's own process for agentlightning, on transformers."""
