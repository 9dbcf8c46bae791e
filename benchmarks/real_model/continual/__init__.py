"""Continual use: three populations of users one after another, each with wishes of its own."""
