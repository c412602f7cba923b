"""The commands: flags -> operation -> view. One module for what shares its flags."""
