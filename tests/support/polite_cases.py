"""Synthetic data sets in the layout of PoliteCrawling."""

import json
from pathlib import Path

import numpy as np


class Fleet:
    """The true numbers of a synthetic data set, by URL_ID."""

    def __init__(self, n_pages, seed=1, n_crawls=98, complete_share=0.1):
        rng = np.random.default_rng(seed)
        self.url_id = rng.permutation(3 * n_pages)[:n_pages]
        self.importance = rng.integers(0, 5_000, n_pages)
        self.rate = rng.gamma(0.5, 0.5, n_pages)
        self.complete = rng.random(n_pages) < complete_share
        self.first = rng.random(n_pages) * 6
        self.n_crawls = rng.integers(1, n_crawls, n_pages)
        self.histories = []
        for rate, n in zip(self.rate, self.n_crawls, strict=True):
            offset = 0.9 + 0.05 * rng.random(n)
            changed = rng.random(n) < -np.expm1(-rate * offset)
            self.histories.append((offset, changed))

    def url(self, i):
        return f"https://h{i % 7}.example/{self.url_id[i]}"

    def write(self, folder: Path, ending=".txt"):
        rng = np.random.default_rng(0)

        def table(name, rows):
            order = rng.permutation(len(rows))
            path = folder / f"{name}{ending}"
            path.write_text("".join("\t".join(map(str, rows[i])) + "\n" for i in order))

        every = range(len(self.url_id))
        table("url_urlid_hostid", [(self.url(i), self.url_id[i], i % 7) for i in every])
        table("host_hostid_isconstrained", [(f"https://h{i}.example", i, i % 2) for i in range(7)])
        table("urlid_imp", [(self.url_id[i], self.importance[i]) for i in every])
        table(
            "urlid_offset_history",
            [
                (
                    self.url_id[i],
                    float(self.first[i]),
                    json.dumps(
                        [[float(o), int(c)] for o, c in zip(*self.histories[i], strict=True)]
                    ),
                )
                for i in every
            ],
        )
        table(
            "urlid_chrate_compl_obs_hist",
            [(self.url_id[i], float(self.rate[i])) for i in every if self.complete[i]],
        )
        return folder
