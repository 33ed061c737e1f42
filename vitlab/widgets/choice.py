"""A labelled slider or list in the browser's own kind: known to every keyboard and screen reader (all sections)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anywidget
import traitlets

_SCRIPT = """
function element(name, properties) { return Object.assign(document.createElement(name), properties); }
function render({ model, el }) {
  const texts = model.get("texts"), range = { type: "range", min: 0, max: texts.length - 1 };
  const shown = element("span", { ariaHidden: "true" }); // a reader hears the slider's own text
  const input = model.get("slider") ? element("input", range) : element("select");
  if (!model.get("slider")) input.append(...texts.map((text, value) => element("option", { text, value })));
  input.setAttribute("aria-label", model.get("label"));
  const follow = () => {
    input.value = model.get("index");
    if (!model.get("slider")) return;
    shown.textContent = texts[input.value];
    input.setAttribute("aria-valuetext", texts[input.value]);
  };
  input.addEventListener("input", () => { model.set("index", Number(input.value)); model.save_changes(); });
  model.on("change:index", follow);
  follow();
  const label = element("label");
  label.style.cssText = "display: grid; grid-template-columns: minmax(0, 16em) minmax(0, 18em) auto; gap: 0 1em";
  label.append(element("span", { textContent: model.get("label") }), input, shown);
  // JupyterLab would take the arrows for its own, and the focus to its active cell.
  el.setAttribute("data-lm-suppress-shortcuts", "true");
  el.addEventListener("keydown", (event) => event.stopPropagation());
  el.append(label);
  return () => model.off("change:index", follow);
}
export default { render };
"""


class Choice(anywidget.AnyWidget):
    """One of a few values; a class because ipywidgets asks for one.

    The browser sends its latest choice only once the kernel is free again: those between are never drawn.

    Traits:
        value: the value chosen; not sent to the browser, which knows its number among the options, `index`.

    >>> patch = Choice([8, 16, 32], value=16, label="patch size (px)", slider=True)
    >>> patch.index = 2
    >>> patch.value
    32
    """

    _esm = _SCRIPT
    label = traitlets.Unicode().tag(sync=True)
    slider = traitlets.Bool().tag(sync=True)
    texts = traitlets.List(traitlets.Unicode()).tag(sync=True)
    index = traitlets.Int().tag(sync=True)
    value = traitlets.Any()

    def __init__(self, options: Sequence[Any], value: Any, **traits: Any) -> None:
        self._options = list(options)
        texts = [str(option) for option in options]
        super().__init__(texts=texts, index=self._options.index(value), value=value, **traits)

    @traitlets.validate("value")
    def _check_value(self, proposal: Any) -> Any:
        if proposal["value"] not in self._options:
            raise traitlets.TraitError(f"value {proposal['value']!r} given, expected one of {self._options}")
        return proposal["value"]

    @traitlets.validate("index")
    def _check_index(self, proposal: Any) -> Any:
        if not 0 <= proposal["value"] < len(self._options):
            raise traitlets.TraitError(f"index {proposal['value']} given, expected 0…{len(self._options) - 1}")
        return proposal["value"]

    @traitlets.observe("index")
    def _turned(self, change: Any) -> None:
        self.value = self._options[change["new"]]

    @traitlets.observe("value")
    def _set(self, change: Any) -> None:
        self.index = self._options.index(change["new"])
