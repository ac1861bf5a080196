"""Fixtures of ingest."""

import pytest
from support.store_cases import register

from recrawl_lab.memory.store import MemoryStore


@pytest.fixture
def memory():
    return MemoryStore(2)


@pytest.fixture
def page(memory):
    """The id of one incomplete page."""
    return int(register(memory, 1)[0])
