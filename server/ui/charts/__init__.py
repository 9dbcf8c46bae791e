"""Charts as SVG. Colours come from the style sheet, so that both themes look right.

Every chart has a name for screen readers, and every mark a tooltip with its figures.
"""
