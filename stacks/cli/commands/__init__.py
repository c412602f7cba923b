"""The commands: flags -> operation -> view. One module for commands that share flags."""
