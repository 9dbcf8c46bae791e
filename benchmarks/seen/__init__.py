"""What people see of an agent, and what seeing costs."""
