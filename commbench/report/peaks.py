"""What is said under a table that has a column of shares of a peak."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill

from commbench.analysis.peak import share_of_peak, why_no_share
from commbench.analysis.rows import Row
from commbench.links import Peak
from commbench.report.findings import WIDTH


def peak_text(rows: Sequence[Row], peak: Peak) -> str:
    """What the column of shares is of, and why a share may exceed 100 %."""
    shares = [share for row in rows if (share := share_of_peak(row, peak))]
    texts = [f"Of peak: what the links had to carry, over {peak.text}"]
    if shares:
        texts[0] += f" ({shares[0].bound} bound)."
    elif rows:
        texts[0] += f"; there are no shares: {why_no_share(rows[0], peak)}."
    if any(1 < share.fraction <= share.ceiling for share in shares):
        texts.append(
            "Above 100 % is no error here: a network that itself reduces (NVLS, SHARP) moves less "
            f"than the bound says, so that {max(s.ceiling for s in shares):.5g} times the peak is "
            "the limit. `commbench explain` has the figures."
        )
    return "\n".join(
        fill(text, width=WIDTH, initial_indent="  ", subsequent_indent="  ") for text in texts
    )
