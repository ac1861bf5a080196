"""`recrawl rebuild`: estimates learnt anew from the observation log."""

from contextlib import closing

import typer
from rich.progress import Progress

from service.cli.options import DatabaseUrl, console, settings
from service.cli.progress import expected_pages


def rebuild(database_url: DatabaseUrl = None) -> None:
    """Replay the kept observation log into fresh estimates, as after a change of estimator.

    Stop the service first. What retention has cut from the log is forgotten by this, and what was
    imported as states, of which there is no log.
    """
    import numpy as np

    from service.estimation.estimates import Rules, rules_in_force, width
    from service.ingest.rebuild import rebuild
    from service.storage import open_store
    from service.storage.clock import system_clock

    chosen = settings(database_url)
    plan = chosen.plan()
    rules = Rules(plan.estimator, plan.timing, np.random.default_rng())
    url = chosen.database_url.get_secret_value()
    with closing(open_store(url, width(plan.estimator))) as store:
        store.check()
        with store.begin(write=False) as tx:
            rules = rules_in_force(tx, rules)
            total = expected_pages(tx)
        with Progress(console=console) as progress:
            task = progress.add_task(f"rebuilding {plan.estimator.name} states", total=total)
            done = 0
            for n_pages in rebuild(store, rules):
                done += n_pages
                progress.update(task, completed=done)
    typer.echo(f"{done} pages rebuilt at {system_clock():%Y-%m-%d %H:%M:%S}Z")
