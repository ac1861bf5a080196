"""Tags of pages: what a registration or a patch makes of them, on columns."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recrawl_client.wire.pages import MOST_TAGS
from service.model.arrays import Bools, Ints, distinct
from service.model.listing import PageTags, TagPatch
from service.storage.pages.bulk import BulkStatements


class Tagged(NamedTuple):
    """Pages, ascending, whose tags changed, and pages that would have too many tags."""

    changed: Ints
    crowded: Ints
    """Pages whose tags stay, because they would have more than `MOST_TAGS`."""


class TaggedRows(NamedTuple):
    """All tags of some rows of a batch of pages."""

    row: Ints
    """(R,) rows with tags stated, even none, in any order."""
    pair_row: Ints
    tag: NDArray[np.object_]
    """(M,) row and name of each tag."""

    @classmethod
    def of(cls, tags: Mapping[int, Sequence[str]]) -> "TaggedRows":
        """Return the tags of rows."""
        pairs = [(row, tag) for row, names in tags.items() for tag in set(names)]
        rows, names = zip(*pairs, strict=True) if pairs else ((), ())
        return cls(
            np.array(list(tags), np.int64), np.array(rows, np.int64), np.array(names, object)
        )

    def moved(self, n: int) -> "TaggedRows":
        """Return the tags of rows that stand `n` rows later."""
        return TaggedRows(self.row + n, self.pair_row + n, self.tag)

    def where(self, keep: Bools) -> "TaggedRows":
        """Return the tags of the rows of a mask."""
        pairs = keep[self.pair_row]
        return TaggedRows(self.row[keep[self.row]], self.pair_row[pairs], self.tag[pairs])

    def of_rows(self, rows: Ints) -> "TaggedRows | None":
        """Return the tags of ascending rows, numbered among these; None if none has tags."""
        here, pairs = np.isin(self.row, rows), np.isin(self.pair_row, rows)
        row, pair_row = rows.searchsorted(self.row[here]), rows.searchsorted(self.pair_row[pairs])
        return TaggedRows(row, pair_row, self.tag[pairs]) if here.any() else None

    def save(self, tx: BulkStatements, page_id: Ints) -> None:
        """Write the tags of the pages of a batch, whose ids are by row."""
        pages = tx.lock_page_rows(distinct(page_id[self.row]))
        if len(pages):
            pairs = PageTags(page_id=page_id[self.pair_row], tag=self.tag)
            set_tags(tx, pages, pairs.take(np.isin(pairs.page_id, pages)))


def patch_tags(tx: BulkStatements, page_id: Ints, patch: TagPatch) -> Tagged:
    """Change the tags of locked pages, which are ascending and distinct."""
    before = tx.tags_of(page_id)
    after = _patched(before, page_id, patch)
    full = _crowded(page_id, after)
    free = np.setdiff1d(page_id, full, assume_unique=True)
    before, after = (pairs.where(np.isin(pairs.page_id, free)) for pairs in (before, after))
    return Tagged(_replace(tx, free, before, after, _names(before, after)), full)


def crowded(tx: BulkStatements, page_id: Ints, patch: TagPatch) -> Ints:
    """Return the pages, ascending and distinct as before, that would have too many tags."""
    return _crowded(page_id, _patched(tx.tags_of(page_id), page_id, patch))


def _patched(before: PageTags, page_id: Ints, patch: TagPatch) -> PageTags:
    """Return the tags after a patch; a tag may be there twice."""
    kept = before if patch.all is None else _each(page_id, patch.all)
    return PageTags.concatenate(
        [kept.where(~_among(kept, patch.remove)), _each(page_id, patch.add)]
    )


def _crowded(page_id: Ints, pairs: PageTags) -> Ints:
    names = _names(pairs)
    code = distinct(_codes(page_id, pairs, names))
    return page_id[np.bincount(code // len(names), minlength=len(page_id)) > MOST_TAGS]


def set_tags(tx: BulkStatements, page_id: Ints, after: PageTags) -> Ints:
    """Set the tags of locked pages, which are ascending and distinct; return the changed pages."""
    before = tx.tags_of(page_id)
    return _replace(tx, page_id, before, after, _names(before, after))


def _replace(
    tx: BulkStatements, page_id: Ints, before: PageTags, after: PageTags, names: list[str]
) -> Ints:
    """Write the differences between two sets of tags; return the pages that have one."""
    old, new = (_codes(page_id, pairs, names) for pairs in (before, after))
    dropped, added = np.setdiff1d(old, new), np.setdiff1d(new, old)
    for code, write in ((dropped, tx.drop_tags), (added, tx.add_tags)):
        row, name = np.divmod(code, len(names))
        write(PageTags(page_id=page_id[row], tag=np.array(names, object)[name]))
    return distinct(page_id[np.concatenate([dropped, added]) // len(names)])


def _names(*pairs: PageTags) -> list[str]:
    """Return the names of tags, at least one."""
    return sorted({name for each in pairs for name in each.tag.tolist()}) or [""]


def _codes(page_id: Ints, pairs: PageTags, names: list[str]) -> Ints:
    """Return the number of each pair: the page's row times the number of names, plus the name's."""
    number = dict(zip(names, range(len(names)), strict=True))
    name = np.array([number[tag] for tag in pairs.tag.tolist()], np.int64)
    return np.searchsorted(page_id, pairs.page_id) * len(names) + name


def _each(page_id: Ints, names: Collection[str]) -> PageTags:
    """Return every page with every name."""
    tag = np.array(sorted(names), object)
    return PageTags(page_id=np.repeat(page_id, len(tag)), tag=np.tile(tag, len(page_id)))


def _among(pairs: PageTags, names: Collection[str]) -> Bools:
    return np.array([tag in names for tag in pairs.tag.tolist()], np.bool_)
