"""Fixtures of the epochs."""

import pytest
from support.epoch_cases import Clock

from recrawl_lab.memory.store import MemoryStore


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def memory():
    return MemoryStore(2)
