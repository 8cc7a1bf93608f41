"""What recording an LLM call costs, beside two OpenTelemetry instrumentors in the same run."""
