"""Orders of axes that backends ask for in the regions that they get as graphs."""
