"""A real browser and a real JupyterLab, one of each for all tests of this folder; without them the tests are skipped.

`apt-get install --no-install-recommends chromium fonts-dejavu-core` installs the one, the extra `test` the other.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from urllib.request import urlopen

import nbformat
import pytest

from vitlab import paths

SWITCHES = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
            "--disable-component-update", "--disable-sync"]  # fmt: skip
QUIET = {"fetchNews": "false", "checkForUpdates": False, "doNotDisturbMode": True}
TOKEN = "browser-tests"


@pytest.fixture(scope="package")
def browser():
    """Chromium of the distribution, driven by playwright; stopped with the last test of the folder."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (extra `test`)")
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("no chromium on the PATH")
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, headless=True, args=SWITCHES)
        yield started
        started.close()


@pytest.fixture(scope="module")
def open_page(browser):
    """A function that opens a page of its own and gathers in `page.complaints` what the browser finds wrong."""
    contexts = []

    def opened(**options):
        context = browser.new_context(**{"viewport": {"width": 1040, "height": 760}, **options})
        contexts.append(context)
        page = context.new_page()
        page.complaints = []
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("console", lambda said: page.complaints.append(said.text) if said.type == "error" else None)
        return page

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture(scope="package")
def server(browser, tmp_path_factory):
    """A JupyterLab on an empty folder, with settings and figures of its own: (address, folder, figures folder)."""
    home = tmp_path_factory.mktemp("lab")
    root, figures, log = home / "root", home / "figures", home / "log.txt"
    root.mkdir()
    settings = home / "settings" / "@jupyterlab" / "apputils-extension" / "notification.jupyterlab-settings"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps(QUIET))
    environment = {
        **os.environ,
        "VITLAB_FIGURES": str(figures),
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(paths.ROOT), os.environ.get("PYTHONPATH")])),
    }
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        environment[name] = str(home / name.lower())
    environment.pop("MPLBACKEND", None)  # the kernel's own shows figures in cells
    port = free_port()
    options = ["--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}", f"--ServerApp.root_dir={root}",
               f"--IdentityProvider.token={TOKEN}", "--LabApp.expose_app_in_browser=True",
               "--LabApp.extension_manager=readonly"]  # fmt: skip
    command = [sys.executable, "-m", "jupyterlab", *options]
    with log.open("w") as told:
        process = subprocess.Popen(command, env=environment, stdout=told, stderr=subprocess.STDOUT, cwd=home)
    try:
        wait_for_server(f"http://127.0.0.1:{port}/api/status?token={TOKEN}", process, log)
        yield f"http://127.0.0.1:{port}", root, figures
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


def wait_for_server(address, process, log, seconds=60):
    stop = time.monotonic() + seconds
    while time.monotonic() < stop and process.poll() is None:
        try:
            with urlopen(address, timeout=5):
                return
        except OSError:
            time.sleep(0.3)
    raise RuntimeError(f"JupyterLab did not start:\n{log.read_text()[-3000:]}")


def notebook_of(*cells, outputs=()):
    """A notebook of code cells for Python's kernel; `outputs` are those of its first cell."""
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells], metadata=kernel)
    made.cells[0].outputs = list(outputs)
    return made


class Notebook:
    """A notebook open in JupyterLab, for a test to run and to look at."""

    def __init__(self, page, address, name):
        self.page = page
        page.goto(f"{address}/lab/tree/{name}?reset&token={TOKEN}")
        page.wait_for_selector(".jp-NotebookPanel .jp-Cell", timeout=60_000)
        page.evaluate(
            """async () => {
                const panel = jupyterapp.shell.currentWidget;
                await panel.revealed; await panel.sessionContext.ready;
                await panel.sessionContext.session.kernel.info;
            }"""
        )
        kernel = "jupyterapp.shell.currentWidget.sessionContext.session.kernel"
        ready = f"{kernel}.connectionStatus === 'connected' && {kernel}.status === 'idle'"
        page.wait_for_function(ready, timeout=60_000)

    def run(self, cell=None, seconds=120):
        """Run all cells to the end, or the one of this number."""
        self.page.evaluate(
            """cell => {
                window.ran = '';
                if (cell !== null) jupyterapp.shell.currentWidget.content.activeCellIndex = cell;
                const command = cell === null ? 'notebook:run-all-cells' : 'notebook:run-cell';
                jupyterapp.commands.execute(command).then(() => { window.ran = 'to the end'; },
                                                          error => { window.ran = String(error); });
            }""",
            cell,
        )
        self.page.wait_for_function("window.ran", timeout=1000 * seconds, polling=200)
        assert self.page.evaluate("window.ran") == "to the end"

    def outputs(self):
        """Of each code cell, its outputs."""
        cells = self.page.evaluate("jupyterapp.shell.currentWidget.content.model.toJSON().cells")
        return [cell["outputs"] for cell in cells if cell["cell_type"] == "code"]

    def show(self, text):
        """Bring the output of the first cell with this in its source into view."""
        self.page.evaluate(
            """async text => {
                const { content } = jupyterapp.shell.currentWidget;
                const index = content.model.toJSON().cells.findIndex(cell => cell.source.includes(text));
                await content.scrollToItem(index, 'start');
            }""",
            text,
        )

    def close(self):
        """End the kernel: the next notebook has the machine to itself."""
        self.page.evaluate("jupyterapp.shell.currentWidget.sessionContext.shutdown()")


@pytest.fixture(scope="module")
def open_notebook(server, open_page):
    """A function that writes a notebook to the server's folder and opens it in JupyterLab."""
    address, root, _ = server
    opened = []

    def write_and_open(notebook, name):
        nbformat.write(notebook, root / name)
        opened.append(Notebook(open_page(viewport={"width": 1400, "height": 1000}), address, name))
        return opened[-1]

    yield write_and_open
    for notebook in opened:
        notebook.close()
