"""`recrawl openapi`: the document that clients are generated from."""

import json
from pathlib import Path
from typing import Annotated

import typer

from service.cli.options import console

Output = Annotated[Path | None, typer.Option(help="Write here instead of to standard output")]
Check = Annotated[Path | None, typer.Option(help="Compare with this file; status 1 if it differs")]


def openapi(output: Output = None, check: Check = None) -> None:
    """Write the OpenAPI document that clients are generated from."""
    from service.api.app import create_app

    document = json.dumps(create_app().openapi(), indent=2, ensure_ascii=False) + "\n"
    if check is not None:
        if not check.is_file() or check.read_bytes() != document.encode():
            console.print(f"{check} differs; run `recrawl openapi --output {check}`")
            raise typer.Exit(1)
    elif output is None:
        typer.echo(document, nl=False)
    else:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(document, "utf-8")
