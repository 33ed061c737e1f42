"""Pointing at the attention viewer in a page, wherever the page is shown."""


def pointed_at(page, show):
    """Point at two patches, one after the other; for each what is read out, and a picture of the maps.

    `show` is the view that the viewer must have begun with.
    """
    frame = page.frame_locator("iframe[title^='Attention viewer']")
    picture = frame.locator("canvas.picture")
    assert frame.get_by_role("button", name=show, exact=True).get_attribute("aria-pressed") == "true"
    seen = []
    for place in ({"x": 20, "y": 20}, {"x": 200, "y": 200}):
        picture.hover(position=place)
        seen.append((frame.locator(".readout").inner_text(), frame.locator(".maps").screenshot()))
    assert "row 1, column 1" in seen[0][0] and seen[0][0] != seen[1][0]
    return seen
