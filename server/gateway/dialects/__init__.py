"""The dialects: one file or package for each, which turns requests into a Call and answers back."""
