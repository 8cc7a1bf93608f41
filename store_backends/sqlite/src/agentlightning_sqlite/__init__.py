"""Keeps the runs of agentlightning in one SQLite file."""
