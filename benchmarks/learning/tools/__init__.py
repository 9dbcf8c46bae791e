"""The tool agent: several turns a session, exit codes and an outcome; the arms differ in their rewards."""
