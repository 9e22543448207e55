"""Tables, logs and pages of applications."""
