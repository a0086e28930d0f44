class WorkerInfo:
    """What a loader process knows of itself."""

    def __init__(self, **fields):
        vars(self).update(fields)


_worker_info = None
