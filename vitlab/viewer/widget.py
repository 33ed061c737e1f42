"""The attention viewer with a kernel: its selection is a pair of traits, in Python and in the browser (§4.5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anywidget
import traitlets

from vitlab.viewer import payload
from vitlab.viewer.assets import SHOWS, asset


class AttentionWidget(anywidget.AnyWidget):
    """A `View` whose selection can be read, set and observed; blocks, heads and patches count from 0, as in Python.

    A class because ipywidgets asks for one: what the browser and Python share are its traits.

    Traits:
        query: (row, column) of a patch, or the name of a token ("class token"); see `tokens`.
        block: number of the block in the model; head: number of the head in it.
        show: what the page shows, one of `SHOWS`.

    >>> import torch
    >>> from vitlab.viewer import attention_view
    >>> made = attention_view([torch.full((1, 2, 5, 5), 1 / 5)], torch.zeros(3, 32, 32), (2, 2), 16).widget()
    >>> made.query = (1, 0)
    >>> made.block, made.head, made.query, round(made.distance_px, 2)
    (0, 0, (1, 0), 10.93)
    """

    _esm = asset("viewer.js") + "\nexport default { render: renderWidget };\n"
    _css = asset("viewer.css")
    _meta = traitlets.Dict().tag(sync=True)
    _packed = traitlets.Bytes().tag(sync=True)
    query = traitlets.Union([traitlets.Tuple(traitlets.Int(), traitlets.Int()), traitlets.Unicode()]).tag(sync=True)
    block = traitlets.Int().tag(sync=True)
    head = traitlets.Int().tag(sync=True)
    show = traitlets.Enum(SHOWS, "heads").tag(sync=True)

    def __init__(self, meta: Mapping[str, Any], packed: bytes, **options: Any) -> None:
        self._arrays = payload.unpack(packed, meta["arrays"])
        meta = dict(meta)
        rows, cols = meta["grid"]
        query = meta["tokens"][0] if meta["show"] == "rollout" else (rows // 2, cols // 2)
        start = {"show": meta["show"], "query": query, "block": meta["blocks"][0], "head": 0}
        super().__init__(_meta=meta, _packed=packed, **(start | options))

    @property
    def tokens(self) -> list[str]:
        """Names that `query` may have beside (row, column)."""
        return list(self._meta["tokens"])

    @property
    def distance_px(self) -> float:
        """How far the chosen head (or rollout) looks from the chosen patch, on average, in pixels; NaN from a token."""
        return float(self._arrays["distance"][self._map(), self._query()])

    def _map(self) -> int:
        if self.show == "rollout":
            return len(self._arrays["distance"]) - 1
        return self._meta["blocks"].index(self.block) * self._meta["heads"] + self.head

    def _query(self) -> int:
        if isinstance(self.query, str):
            return self.tokens.index(self.query)
        return len(self.tokens) + self.query[0] * self._meta["grid"][1] + self.query[1]

    @traitlets.validate("query")
    def _check_query(self, proposal: Any) -> Any:
        value, (rows, cols) = proposal["value"], self._meta["grid"]
        known = value in self.tokens if isinstance(value, str) else 0 <= value[0] < rows and 0 <= value[1] < cols
        if not known:
            raise traitlets.TraitError(
                f"query {value!r} given, expected (row, column) in 0…{rows - 1}, 0…{cols - 1} or one of {self.tokens}"
            )
        return value

    @traitlets.validate("block")
    def _check_block(self, proposal: Any) -> Any:
        if proposal["value"] not in self._meta["blocks"]:
            raise traitlets.TraitError(f"block {proposal['value']} given, shown are {self._meta['blocks']}")
        return proposal["value"]

    @traitlets.validate("head")
    def _check_head(self, proposal: Any) -> Any:
        if not 0 <= proposal["value"] < self._meta["heads"]:
            raise traitlets.TraitError(f"head {proposal['value']} given, expected 0…{self._meta['heads'] - 1}")
        return proposal["value"]
