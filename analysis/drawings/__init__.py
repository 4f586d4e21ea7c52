"""Pictures of layouts and of memory over time, as SVG, PNG or text.

Start with `layout_picture`; `figures` is the one door to matplotlib.
"""
