"""As much of Lightning as the callback touches."""
