"""For maintainers: what README, the site's first page and docs/ledger.md say of the results.

python -m tools.pages    between the markers of README.md and docs/site/index.md; docs/ledger.md whole
"""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path

from vitlab import paths


def with_part(text: str, part: str, name: str) -> str:
    """Put a part between the markers <!-- name:begin --> and <!-- name:end --> of a page.

    Raises ValueError where they are not there once.
    """
    pattern = rf"(<!-- {name}:begin -->\n).*?(\n<!-- {name}:end -->)"
    made, count = re.subn(pattern, lambda found: found[1] + part + found[2], text, flags=re.S)
    if count != 1:
        raise ValueError(f"expected the markers <!-- {name}:begin --> and <!-- {name}:end --> once, found {count}")
    return made


def main(root: Path = paths.ROOT) -> int:
    """Write the pages; returns the exit status."""
    from vitlab.claims import report

    findings = "\n".join(textwrap.wrap(report.findings(), 119))
    readme, index = root / "README.md", root / "docs" / "site" / "index.md"
    pages = {
        readme: {"findings": findings, "ledger": report.readme_table()},
        index: {"findings": findings},
    }
    for page, parts in pages.items():
        text = page.read_text(encoding="utf-8")
        for name, part in parts.items():
            text = with_part(text, part, name)
        with paths.writing(page) as temporary:
            temporary.write_text(text, encoding="utf-8")
    with paths.writing(root / "docs" / "ledger.md") as temporary:
        temporary.write_text(report.ledger(), encoding="utf-8")
    print(*pages, root / "docs" / "ledger.md", sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
