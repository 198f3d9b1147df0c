"""Numbers as gradwire's options take them."""


def count(text):
    """Reads 64Ki, 16Mi or a plain number, at least 1."""
    for suffix, scale in ("Ki", 1 << 10), ("Mi", 1 << 20), ("Gi", 1 << 30):
        if text.endswith(suffix):
            return count(text[:-2]) * scale
    if int(text) < 1:
        raise ValueError(text)
    return int(text)
