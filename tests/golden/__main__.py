"""`scripts/golden`: rewrites what is expected, or lists facts that JSON has lost."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from golden.cases import CASES
from golden.facts import print_lost_facts
from golden.options import PAGE, make_page
from golden.runner import rewrite

if sys.argv[1:2] == ["--lost"]:
    print_lost_facts(sys.argv[2])
else:
    with tempfile.TemporaryDirectory() as scratch:
        rewrite(CASES, Path(scratch))
    PAGE.write_text(make_page())
