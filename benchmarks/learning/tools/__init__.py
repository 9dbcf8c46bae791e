"""The tool agent: several turns a session, exit codes and an outcome; arms differ in which of them are rewards."""
