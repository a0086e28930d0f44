def is_initialized():
    return False


is_available = is_initialized
