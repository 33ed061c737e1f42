"""The style changes what is drawn inside it, and nothing else."""

import matplotlib as mpl

from vitlab import plots


def test_settings_come_back():
    before = dict(mpl.rcParams)
    with plots.style():
        assert mpl.rcParams["axes.spines.top"] is False
    assert dict(mpl.rcParams) == before


def test_interactive_switched_on_inside_stays_on():
    """As the inline backend does with the first figure: without it no later cell of a notebook shows one."""
    before = mpl.is_interactive()
    try:
        mpl.interactive(False)
        with plots.style():
            mpl.interactive(True)
        assert mpl.is_interactive()
    finally:
        mpl.interactive(before)
