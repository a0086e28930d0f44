class LambdaLR:
    """The rate that each group began with, times a function of the number of steps."""

    def __init__(self, optimizer, lr_lambda):
        self.optimizer, self.lr_lambda, self.last_epoch = optimizer, lr_lambda, 0
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
        self._set()

    def _set(self):
        for group in self.optimizer.param_groups:
            group["lr"] = group["initial_lr"] * self.lr_lambda(self.last_epoch)

    def step(self):
        self.last_epoch += 1
        self._set()

    def state_dict(self):
        return {"last_epoch": self.last_epoch}

    def load_state_dict(self, state):
        self.last_epoch = state["last_epoch"]
