"""Errors of the laboratory; the docstring of each is its default message."""

from service.model.errors import RecrawlError


class InvalidTrace(RecrawlError):
    """A recorded history of page changes cannot be replayed."""


class UnknownExperiment(RecrawlError):
    """No experiment has this name."""


class UnknownPolicy(RecrawlError):
    """No policy with this name can be played."""


class PolicyKilled(RecrawlError):
    """A process that played a policy was killed, possibly for lack of memory."""
