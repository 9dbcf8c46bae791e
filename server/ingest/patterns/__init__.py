"""What the texts of tools and harnesses tell by their form."""
