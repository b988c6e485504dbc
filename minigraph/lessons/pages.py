"""Pages of the lessons: Markdown whose ``python`` blocks are cells, each followed by what it prints; and notebooks."""

from __future__ import annotations

import json
import re
from typing import Any

CELL = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<output>.*?)^```\n)?", re.MULTILINE | re.DOTALL)


def notebook(page: str) -> str:
    """Return a page as a notebook, with the outputs of its cells."""
    cells: list[dict[str, Any]] = []
    end = 0
    for match in CELL.finditer(page):
        cells += [_cell("markdown", page[end : match.start()]), _cell("code", match["code"], match["output"] or "")]
        end = match.end()
    cells = [cell for cell in [*cells, _cell("markdown", page[end:])] if cell["source"]]
    numbered = [{"id": f"cell-{number}", **cell} for number, cell in enumerate(cells)]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    content = {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": kernel}, "cells": numbered}
    return json.dumps(content, indent=1) + "\n"


def _cell(kind: str, source: str, output: str = "") -> dict[str, Any]:
    cell: dict[str, Any] = {"cell_type": kind, "metadata": {}, "source": source.strip("\n")}
    if kind == "code":
        printed = {"output_type": "stream", "name": "stdout", "text": output}
        cell |= {"execution_count": None, "outputs": [printed] if output else []}
    return cell
