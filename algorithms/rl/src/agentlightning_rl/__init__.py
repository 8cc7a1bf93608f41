"""Reinforcement learning on traced rollouts for agentlightning, on TRL."""
