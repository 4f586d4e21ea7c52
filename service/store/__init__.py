"""The store: uploaded programs and finished artifacts by content, in a folder or in object storage.

Start with `store`.
"""
