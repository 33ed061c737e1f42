"""A field for a picture file of the reader's own: sent in pieces, and what is wrong with it said (§4.1)."""

from __future__ import annotations

from typing import Any

import anywidget
import traitlets

from vitlab.widgets import pictures

# In pieces, since a Jupyter server closes the connection to the kernel on a message of more than 10 MiB.
_SCRIPT = """
const PIECE = 1 << 20;
function render({ model, el }) {
  const label = document.createElement("label"), input = document.createElement("input");
  el.setAttribute("data-lm-suppress-shortcuts", "true"); // JupyterLab's own keys: Enter would edit the cell
  el.addEventListener("keydown", (event) => event.stopPropagation());
  Object.assign(input, { type: "file", accept: "image/*" });
  label.append(model.get("label") + " ", input);
  el.append(label);
  let latest = 0;
  input.addEventListener("change", async () => {
    const mine = ++latest, file = input.files[0];
    if (!file) return;
    const refused = file.size > model.get("_max_bytes");
    for (let start = 0; start === 0 || (start < file.size && !refused); start += PIECE) {
      const piece = await file.slice(start, refused ? start : start + PIECE).arrayBuffer();
      if (mine !== latest) return;
      model.send({ start, size: file.size }, undefined, [piece]);
    }
  });
}
export default { render };
"""


class PictureUpload(anywidget.AnyWidget):
    """A field that takes a picture file; a class because ipywidgets asks for one.

    Traits:
        value: the last good picture, bytes [3 height width]; None before there is one. Not sent to the browser.
        complaint: why the last file was refused; empty when it was not.

    >>> field = PictureUpload(label="your own picture")
    >>> field.receive({"start": 0, "size": 4}, [b"junk"])
    >>> field.value, field.complaint.split(":")[0]
    (None, 'not a picture that can be read')
    """

    _esm = _SCRIPT
    label = traitlets.Unicode().tag(sync=True)
    _max_bytes = traitlets.Int(pictures.MAX_BYTES).tag(sync=True)
    value = traitlets.Any(None)
    complaint = traitlets.Unicode()

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._content = bytearray()
        self.on_msg(lambda _, content, buffers: self.receive(content, buffers))

    def receive(self, content: dict[str, int], buffers: list[Any]) -> None:
        """A piece of a file of `size` bytes that begins at `start`; with the last one the picture is read."""
        if content["start"] == 0:
            self._content.clear()
            self.complaint = ""  # the same complaint about another file is a new one
        try:
            pictures.check_bytes(content["size"])
            self._content += bytes(buffers[0])
            if len(self._content) < content["size"]:
                return
            picture = pictures.picture_from(bytes(self._content))
        except ValueError as error:
            self.complaint = str(error)
        else:
            self.value = picture
