"""Faults as they happen: real processes, killed with kill -9, on real files, disks and servers."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the helpers beside the tests, also as scripts

KILLS = 50
"""How often each test of killing kills, at random moments."""


@pytest.fixture
def chance():
    """What decides when and whom to kill; a failure is repeated with the seed it prints."""
    seed = int(os.environ.get("FAULTS_SEED") or random.SystemRandom().randrange(10**6))
    print(f"FAULTS_SEED={seed}")  # noqa: T201 - pytest shows it with a failure
    return random.Random(seed)


@pytest.fixture
def url(tmp_path):
    """A store in a new file."""
    return f"sqlite:///{tmp_path}/runs.db"
