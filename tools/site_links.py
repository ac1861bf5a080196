"""Links of the documentation to files outside of docs/ lead to the repository on the site.

The theme's link to the repository loads nothing from the forge.
"""

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\]\((?!\w+:)([^)\s#]+)(#[^)\s]*)?\)")
"""A link to a file: its path, and its anchor."""


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Return the text of a page with the links that its site cannot follow replaced."""
    docs = Path(config["docs_dir"])
    folder = (docs / page.file.src_uri).parent

    def replaced(link: re.Match[str]) -> str:
        target = (folder / link[1]).resolve()
        if target.is_relative_to(docs) or not target.exists():
            return link[0]
        path = target.relative_to(ROOT).as_posix()
        return f"]({config['repo_url'].rstrip('/')}/blob/main/{path}{link[2] or ''})"

    return LINK.sub(replaced, markdown)


def on_post_page(output: str, **_: Any) -> str:
    """Return a page on which the theme does not ask the forge for stars and releases."""
    return output.replace(' data-md-component="source"', "")


def on_post_template(output_content: str, **_: Any) -> str:
    """Return a page without a source in Markdown, such as 404, like `on_post_page`."""
    return on_post_page(output_content)
