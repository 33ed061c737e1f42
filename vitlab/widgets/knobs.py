"""Controls above a picture that follows them; the first picture stays when the kernel has gone (all sections)."""

from __future__ import annotations

import base64
import html
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from vitlab.plots.png import as_png, still
from vitlab.plots.style import style

if TYPE_CHECKING:
    import ipywidgets

Draw = Callable[..., tuple[Figure, str]]
_LIVE, _RULE = "vitlab-knobs", "vitlab-knobs-rule"
# A live front end is sent three outputs: the first picture, the widget, and this. Of the first two exactly one is
# seen: the picture where the widget cannot be (no kernel, not trusted, exported), the widget where it can.
_ONE_OF_TWO = f"""<span class="{_RULE}" hidden></span><style>
.jp-OutputArea-child:has(+ .jp-OutputArea-child .{_LIVE}),
.jp-OutputArea-child:not(:has(.{_LIVE}, img)):has(+ .jp-OutputArea-child .{_RULE}) {{ display: none }}
</style>"""


@dataclass(frozen=True)
class Knob:
    """A control with few values: a slider where they are numbers, a list to choose from where they are not.

    Raises:
        ValueError: the value at first is none of those that it can take.
    """

    label: str  # plain words, with the unit
    options: Sequence[Any]  # what it can be turned to, in this order
    value: Any  # at first

    def __post_init__(self) -> None:
        if self.value not in self.options:
            raise ValueError(f"{self.label}: {self.value!r} given at first, expected one of {list(self.options)}")


@dataclass(frozen=True)
class Upload:
    """A control that takes a picture file of the reader's own; its value is bytes [3 height width], None at first."""

    label: str
    value: None = None


@dataclass(frozen=True)
class Knobs:
    """A picture and what can be turned about it; the last line of a cell shows it. Made by `knobs`."""

    draw: Draw
    title: str
    controls: Mapping[str, Knob | Upload]

    def picture(self, **values: Any) -> tuple[bytes, str]:
        """The picture (PNG) at these values and the words that go with it; a knob that is not named is as at first.

        Raises:
            ValueError: whatever `draw` says of values that do not go together.
        """
        before = set(plt.get_fignums())
        try:
            with style():
                figure, words = self.draw(**{name: knob.value for name, knob in self.controls.items()} | values)
                return as_png(figure), words
        finally:
            for number in set(plt.get_fignums()) - before:
                plt.close(number)

    def widget(self) -> ipywidgets.VBox:
        """Controls, picture and words for a front end with a kernel: every turn of a knob draws again.

        Values that are passed while a drawing is being made are left out; the latest is drawn. What `draw` or an upload
        refuses (ValueError) is said below the picture, which stays as it was.
        """
        import ipywidgets

        made = {name: _control(knob) for name, knob in self.controls.items()}
        shown, said = ipywidgets.HTML(), ipywidgets.HTML()

        def complain(message: str) -> None:
            said.value = f'<p role="alert" style="margin: 0">⚠ {html.escape(message)}</p>'

        def turn(_: object = None) -> None:
            try:
                png, words = self.picture(**{name: control.value for name, control in made.items()})
            except ValueError as error:
                complain(str(error))
                return
            shown.value = _image(png, f"{self.title}. {words}")
            said.value = f'<p role="status" style="margin: 0">{html.escape(words)}</p>'

        def heard(change: dict[str, Any]) -> None:
            if change["new"]:
                complain(change["new"])

        turn()
        for control in made.values():
            control.observe(turn, "value")
            if control.has_trait("complaint"):
                control.observe(heard, "complaint")
        box = ipywidgets.VBox([*made.values(), shown, said])
        box.add_class(_LIVE)
        return box

    def _ipython_display_(self) -> None:
        from IPython.display import publish_display_data

        try:
            png, words = self.picture()
        except ValueError as error:  # a model without classes, say: no reason to stop the notebook
            publish_display_data({"text/plain": f"{self.title}: {error}"})
            return
        publish_display_data(*still(png, f"{self.title}. {words}"))
        if somebody_is_there():
            view = self.widget()._repr_mimebundle_()
            publish_display_data(view | {"text/plain": ""})
            publish_display_data({"text/html": _ONE_OF_TWO, "text/plain": ""})

    def __repr__(self) -> str:
        return f"Knobs({self.title!r}: {', '.join(knob.label for knob in self.controls.values())})"


def knobs(draw: Draw, title: str, **controls: Knob | Upload) -> Knobs:
    """What `draw` makes of its knobs' values: to be turned where there is a kernel, and still where there is none.

    Args:
        draw: the values by name → (figure, one or two sentences that say what it shows: the numbers, for those who
            do not see it). Pure. What cannot be drawn it refuses with a ValueError.
        title: what the picture is of.
        controls: one for each argument of `draw`.

    >>> def square(side):
    ...     figure = Figure(figsize=(2, 1))
    ...     figure.text(0.5, 0.5, f"{side**2}")
    ...     return figure, f"Its area is {side**2} cm²."
    >>> areas = knobs(square, "A square", side=Knob("side (cm)", (1, 2, 3), 2))
    >>> areas
    Knobs('A square': side (cm))
    >>> areas.picture(side=3)[1]
    'Its area is 9 cm².'
    """
    return Knobs(draw, title, controls)


def somebody_is_there() -> bool:
    """Whether this cell was run by a front end whose user can be asked, and so can turn a knob.

    papermill, nbconvert and all else that runs notebooks with nbclient say with each cell that nobody can be asked.

    >>> somebody_is_there()
    False
    """
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    kernel = getattr(shell, "kernel", None)
    return kernel is not None and bool(kernel.get_parent("shell").get("content", {}).get("allow_stdin"))


def _control(knob: Knob | Upload) -> Any:
    from vitlab.widgets.choice import Choice  # brings ipywidgets
    from vitlab.widgets.upload import PictureUpload

    if isinstance(knob, Upload):
        return PictureUpload(label=knob.label)
    numbers = all(isinstance(option, Real) for option in knob.options)
    return Choice(knob.options, knob.value, label=knob.label, slider=numbers)


def _image(png: bytes, alt: str) -> str:
    source = base64.b64encode(png).decode()
    return f'<img alt="{html.escape(alt, quote=True)}" style="max-width: 100%" src="data:image/png;base64,{source}">'
