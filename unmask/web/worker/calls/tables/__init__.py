"""Tables as people have them: which task they may be for, and how other programs saved them."""
