"""Whether Burnish learns from its users, and learns safely: runs through the live gateway, with controls and seeds."""
