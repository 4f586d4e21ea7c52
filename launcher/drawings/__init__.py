"""Pictures of layouts, of arrays and of memory over time, as SVG, HTML or text, without a plotting library.

Start with `layout_picture`, which decides what is shown; `draw_layout` and `draw_memory` draw it.
"""
