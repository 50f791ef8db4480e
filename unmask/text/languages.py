"""Names of files by language."""

_CODES = (
    "af am ar as az be bg bn br bs ca cs cy da de el en eo es et eu fa fi fr fy ga gd gl gu ha he "
    "hi hr hu hy id ig is it ja jv ka kk km kn ko ku ky la lo lt lv mg mk ml mn mr ms my ne nl no "
    "om or pa pl ps pt ro ru sa sd si sk sl so sq sr su sv sw ta te th tl tr ug uk ur uz vi xh yi "
    "yo zh zu"
)
LANGUAGE_ENDINGS = frozenset(_CODES.split())
"""ISO 639-1: parallel corpora name their sides by language (`train.de`, `train.en`)."""
