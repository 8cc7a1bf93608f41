"""Supervised fine-tuning from recorded traces for agentlightning, on TRL."""
