"""What people see of Burnish: the pages, how fast they come from a long journal, and what they cost."""
