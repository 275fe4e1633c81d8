"""The command `doctor`: what is installed, what is missing, and the commands that install it."""
