"""Numbers of examples of property tests that take long."""

from hypothesis import settings


def examples(quick: int, thorough: int) -> int:
    """Return the number for the profile in force: `make test-all` runs the thorough one."""
    return {"quick": quick, "thorough": thorough}[settings.get_current_profile_name()]
