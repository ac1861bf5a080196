"""Bodies and answers that the OpenAPI document shows; tests send and compare them."""

from pathlib import Path
from typing import Any

import msgspec

EXAMPLES: dict[str, Any] = msgspec.json.decode(Path(__file__).with_suffix(".json").read_bytes())
"""Each example by its name, as `examples.json` has it."""
