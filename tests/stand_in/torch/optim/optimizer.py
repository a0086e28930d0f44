def register_optimizer_step_pre_hook(_):
    """There are no optimizers here."""
