"""Pictures of plans and models as PNG, SVG or PDF files. Drawing needs matplotlib, an optional extra.

`plan`, `models` and `canvas` can be imported without it; the other modules here only when something is drawn.
"""
