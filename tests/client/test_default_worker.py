"""The default name of a worker is that of its process."""

import os
import subprocess
import sys

from recrawl_client.calls import default_worker


def test_two_processes_of_one_machine_have_two_names():
    code = "from recrawl_client.calls import default_worker; print(default_worker())"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert default_worker() == default_worker() != other.stdout.strip()
    assert default_worker().endswith(f"-{os.getpid()}")
    assert len(default_worker()) <= 100
