"""The safety drill: a learning rate that is too large and lying users, with and without Burnish's defences."""
