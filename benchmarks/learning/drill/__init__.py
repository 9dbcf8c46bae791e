"""The safety drill: too large a learning rate and users who lie, with and without what Burnish has against them."""
