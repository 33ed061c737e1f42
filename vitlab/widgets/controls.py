"""Controls of ipywidgets above a picture that follows them; the picture stays when the kernel has gone."""

from __future__ import annotations

import html
import io
import secrets
import sys
import warnings
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any

import ipywidgets
import numpy as np
import torch
from IPython.display import publish_display_data
from jaxtyping import UInt8
from matplotlib.figure import Figure
from PIL import Image, ImageOps
from torch import Tensor

from vitlab.data.loader import to_rgb
from vitlab.plots.style import as_png, still, style

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
MAX_BYTES = 20_000_000  # of a picture file
MAX_PIXELS = 50_000_000  # of a picture: 150 MB once decoded
LARGEST_SIDE = 1024  # pixels that are kept: several times what a model takes


def choice(label: str, options: Sequence[Any], value: Any = None) -> ipywidgets.DOMWidget:
    """Make a control with few values: a slider for numbers, else a list; the first is set without a `value`."""
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
    ...     figure = Figure(figsize=(2, 1))
    ...     figure.text(0.5, 0.5, f"{side**2}")
    ...     return figure, f"Its area is {side**2} cm²."
    >>> areas = Explorer(square, "A square", side=choice("side (cm)", (1, 2, 3), 2))
    >>> areas.picture()[1], areas.picture(side=3)[1]
    ('Its area is 4 cm².', 'Its area is 9 cm².')
    """

    def __init__(self, draw: Callable[..., tuple[Figure, str]], title: str, **controls: ipywidgets.DOMWidget) -> None:
        self.draw, self.title, self.controls = draw, title, controls

    def picture(self, **values: Any) -> tuple[bytes, str]:
        """Draw at these values, else those of the controls: a PNG, and the words that go with it."""
        with style():
            figure, words = self.draw(**{name: control.value for name, control in self.controls.items()} | values)
            return as_png(figure), words

    def _ipython_display_(self) -> None:
        """Show the picture and, where somebody is there to turn them, the controls above it.

        Each turn replaces the picture in the cell's output, which a saved notebook keeps; a refusal is said above it.
        """
        said, place = ipywidgets.HTML(), {"display_id": secrets.token_hex(16)}

        def show(change: object = None) -> None:
            try:
                png, words = self.picture()
            except ValueError as error:  # a model without classes, say: no reason to stop the notebook
                said.value = f'<p role="alert">⚠ {html.escape(str(error))}</p>'
                if not change:
                    publish_display_data({"text/plain": f"{self.title}: {error}"}, transient=place)
                return
            data, metadata = still(png, f"{self.title}. {words}")
            publish_display_data(data, metadata, transient=place, update=bool(change))
            said.value = f'<p role="status">{html.escape(words)}</p>'

        if somebody_is_there():
            box = ipywidgets.VBox([*self.controls.values(), said])
            publish_display_data(box._repr_mimebundle_() | {"text/plain": ""})
            for control in self.controls.values():
                control.observe(show, "value")
        show()

    def __repr__(self) -> str:
        return f"Explorer({self.title!r}: {', '.join(self.controls)})"


def somebody_is_there() -> bool:
    """Say whether this cell was run by a front end whose user can be asked, and so can turn a control.

    papermill, nbconvert and all else that runs notebooks with nbclient say with each cell that nobody can be asked.
    """
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    kernel = getattr(shell, "kernel", None)
    return kernel is not None and bool(kernel.get_parent("shell").get("content", {}).get("allow_stdin"))


def read_picture(content: bytes) -> UInt8[Tensor, "3 H W"]:
    """Read a picture file: upright as the camera was held, on white where it is transparent, at most 1,024 px a side.

    Raises ValueError for more than 20 MB or 50 million pixels, by its header, and for what cannot be read to its end.
    """
    if len(content) > MAX_BYTES:
        raise ValueError(
            f"a file of {len(content) / 1e6:.1f} MB given, expected at most {MAX_BYTES / 1e6:.0f} MB; scale the "
            "picture down, a model sees a few hundred pixels a side"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the limit here is lower
            image: Image.Image = Image.open(io.BytesIO(content), formats=FORMATS)
            if image.width * image.height > MAX_PIXELS:
                raise Image.DecompressionBombError
            if image.has_transparency_data:
                image = ImageOps.exif_transpose(image).convert("RGBA")
                image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
            image = to_rgb(image)
    except Image.DecompressionBombError:
        raise ValueError(
            f"a picture of more than {MAX_PIXELS / 1e6:.0f} million pixels given; scale it down, a model sees a few "
            "hundred a side"
        ) from None
    except Exception as error:  # decoders raise what they like on bytes that are no picture
        raise ValueError(
            f"not a picture that can be read: {len(content):,} bytes given, expected a whole {', '.join(FORMATS)} "
            "file; choose another"
        ) from error
    image.thumbnail((LARGEST_SIDE, LARGEST_SIDE), Image.Resampling.BICUBIC)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()
