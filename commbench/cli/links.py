"""`commbench links`: how fast links are."""

from __future__ import annotations

from typer import Argument, Option

from commbench.cli.options import AnyFormat, OutputFile


def links(
    name: str | None = Argument(
        None, metavar="[NAME]", help="A link or an accelerator, such as ib-ndr or h100."
    ),
    published: bool = Option(
        False, "--published", help="Print bus bandwidths that others published."
    ),
    format_: AnyFormat = None,
    output: OutputFile = None,
) -> None:
    """Print the speed of links in one direction, with sources. --peak takes their names.

    \b
    commbench links
    commbench links h100
    commbench links --published
    """
    from commbench.links.document import VIEW
    from commbench.links.speeds import find_links
    from commbench.views.formats import choose_format, show

    VIEW.require(choose_format(format_, output))
    show(VIEW, find_links(name, published), format_, output)
