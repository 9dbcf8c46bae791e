"""Adapter versions as files: the store, what a file must contain, import, export, retention."""
