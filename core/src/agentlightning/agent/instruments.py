"""What must be in place before an agent runs; it lives where the Tracer reaches it too."""

from agentlightning.recording.instruments import Instruments, Options, instruments

__all__ = ["Instruments", "Options", "instruments"]
