"""Memory as compiled code sees it: pages, copies, and how fast this machine moves bytes.

Start with `pages`; `speed` measures copies and products on one thread or several.
"""
