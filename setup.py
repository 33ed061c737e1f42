"""What is packed besides the modules: notebooks, weights and references (all else is in pyproject.toml)."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

# Of the checkout; `vitlab.paths.shipped` finds them.
SHARED = ("notebooks", "data", "figures/reference", "figures/evidence")
# What no chapter of an installation reads: sources, the front page's film, the gallery's page, one of the models.
UNREAD = ("source", "film.gif", "[1-9].jpg", "index.html")
LEFT_OUT = shutil.ignore_patterns("downloads", "colab", "__pycache__", ".*", *UNREAD)


class BuildWithShare(build_py):
    """Packs the modules and the shared folders, which an installation for development reads where they are."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for name in SHARED:
                target = Path(self.build_lib) / "vitlab" / "share" / name
                shutil.rmtree(target, ignore_errors=True)  # of an earlier build
                shutil.copytree(name, target, ignore=LEFT_OUT)


setup(cmdclass={"build_py": BuildWithShare})
