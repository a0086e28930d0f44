class _NormBase:
    """None here is one."""
