"""A button that stops a training from the cell that runs it. No section of the paper."""

from __future__ import annotations

import anywidget
import traitlets


class StopButton(anywidget.AnyWidget):
    """A line of text and a button that interrupts the kernel, as the notebook's own stop button does.

    A kernel that trains reads no message of a widget: so the browser asks the server, and the server signals the
    kernel. A front end that does not let a widget ask says where its own button is.

    Traits:
        says: the text.

    >>> StopButton(says="step 3 of 10").says
    'step 3 of 10'
    """

    _esm = """
    function render({ model, el }) {
      const text = document.createElement("span"), button = document.createElement("button");
      const follow = () => { text.textContent = model.get("says"); };
      const elsewhere = () => { button.replaceWith("(to stop: the stop button of the notebook, ■)"); };
      button.className = "jupyter-button";
      button.textContent = "Stop after this step";
      button.style.cssText = "margin-right: 1em; width: auto";
      button.setAttribute("data-lm-suppress-shortcuts", "true"); // JupyterLab's own keys: Enter would edit the cell
      button.addEventListener("click", async () => {
        button.disabled = true;
        button.textContent = "Stopping…";
        try { await model.widget_manager.kernel.interrupt(); } catch { elsewhere(); }
      });
      el.append(button, text);
      if (!model.widget_manager?.kernel?.interrupt) elsewhere();
      model.on("change:says", follow);
      follow();
      return () => model.off("change:says", follow);
    }
    export default { render };
    """
    says = traitlets.Unicode().tag(sync=True)
