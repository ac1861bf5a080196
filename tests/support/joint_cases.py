"""Joint computations of several parts in this process (`core.common_values`)."""


def together(joints):
    """Return the result of each of some joint computations, which meet at all common values."""
    replies = [None] * len(joints)
    while True:
        shares, results = [], []
        for joint, reply in zip(joints, replies, strict=True):
            try:
                shares.append(joint.send(reply))
            except StopIteration as end:
                results.append(end.value)
        if not shares:
            return results
        assert not results, "one part has ended before another"
        reply = shares[0].combine([share.value for share in shares])
        replies = list(reply) if shares[0].own_reply else [reply] * len(joints)
