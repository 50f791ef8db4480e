"""No deadline for single examples: on a shared machine any may take long, the first above all."""

from hypothesis import settings

settings.register_profile("shared", deadline=None)
settings.load_profile("shared")
