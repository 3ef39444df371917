"""`commbench links`: how fast links are."""

from __future__ import annotations

from typer import Argument, Option


def links(
    name: str | None = Argument(
        None, metavar="[NAME]", help="A link or an accelerator, such as ib-ndr or h100."
    ),
    published: bool = Option(
        False, "--published", help="Print bus bandwidths that others published."
    ),
) -> None:
    """Print the speed of links in one direction, with sources. --peak takes their names.

    \b
    commbench links
    commbench links h100
    commbench links --published
    """
    from commbench.explain import link_tables
    from commbench.output.console import print_result
    from commbench.spec import links as table

    if name is None and not published:
        print_result(link_tables.links_text())
        return
    link = None if name is None else table.find_link(name)
    if link and not published:
        print_result(link_tables.link_text(link))
        return
    figures = [one for one in table.load_published() if link is None or one.link == link.name]
    print_result(link_tables.published_text(figures))
