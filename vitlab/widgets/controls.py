"""Controls of ipywidgets above a picture that follows them; the picture stays when the kernel has gone."""

from __future__ import annotations

import html
import secrets
import sys
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any

import ipywidgets
from IPython.display import publish_display_data
from matplotlib.figure import Figure

from vitlab.plots.style import drawn, encode, still, style


def choice(label: str, options: Sequence[Any], value: Any = None) -> ipywidgets.DOMWidget:
    """Make a control with few values: a slider for numbers, else a list; the first is set without a `value`."""
    if not options:
        raise ValueError(f"{label}: no value given, expected one or more; run the experiment first")
    value = options[0] if value is None else value
    if value not in options:
        raise ValueError(f"{label}: {value!r} given at first, expected one of {list(options)}")
    kind = ipywidgets.SelectionSlider if all(isinstance(o, Real) for o in options) else ipywidgets.Dropdown
    looks = {"style": {"description_width": "14em"}, "layout": {"width": "36em", "max_width": "100%"}}
    return kind(options=[(str(option), option) for option in options], value=value, description=label, **looks)


class Explorer:
    """A picture and the controls that change it; the last line of a cell shows it.

    `draw` takes the values of the `controls` (ipywidgets) by name, and returns a figure and its numbers in words, for
    those who do not see it; what cannot be drawn it refuses with a ValueError.

    >>> def square(side):
    ...     return Figure(figsize=(2, 1)), f"Its area is {side**2} cm²."
    >>> Explorer(square, "A square", side=choice("side (cm)", (1, 2, 3), 2)).picture()[1]
    'Its area is 4 cm².'
    """

    def __init__(self, draw: Callable[..., tuple[Figure, str]], title: str, **controls: ipywidgets.DOMWidget) -> None:
        self.draw, self.title, self.controls = draw, title, controls

    def picture(self) -> tuple[bytes, str]:
        """Draw at the values of the controls: a picture file, and the words that go with it."""
        with style():
            figure, words = self.draw(**{name: control.value for name, control in self.controls.items()})
            return encode(drawn(figure)), words

    def _ipython_display_(self) -> None:
        """Show the picture and, where somebody can turn them, the controls; a turn replaces it, a refusal is said."""
        said, place = ipywidgets.HTML(), {"display_id": secrets.token_hex(16)}

        def show(change: object = None) -> None:
            try:
                picture, words = self.picture()
            except ValueError as error:  # a model without classes, say: no reason to stop the notebook
                said.value = f'<p role="alert">⚠ {html.escape(str(error))}</p>'
                if not change:
                    publish_display_data({"text/plain": f"{self.title}: {error}"}, transient=place)
                return
            data, metadata = still(picture, f"{self.title}. {words}")
            publish_display_data(data, metadata, transient=place, update=bool(change))
            said.value = f'<p role="status">{html.escape(words)}</p>'

        if somebody_is_there():
            box = ipywidgets.VBox([*self.controls.values(), said])
            publish_display_data(box._repr_mimebundle_() | {"text/plain": ""})
            for control in self.controls.values():
                control.observe(show, "value")
        show()


def somebody_is_there() -> bool:
    """Say whether this cell was run by a front end whose user can be asked, and so can turn a control.

    papermill, nbconvert and all else that runs notebooks with nbclient say with each cell that nobody can be asked.
    """
    kernel = getattr(sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None, "kernel", None)
    return kernel is not None and bool(kernel.get_parent("shell").get("content", {}).get("allow_stdin"))
