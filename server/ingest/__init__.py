"""The ingester: segments become rows of the journal, linked to the turns that they continue."""
