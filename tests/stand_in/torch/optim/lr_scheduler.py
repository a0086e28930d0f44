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


class OneCycleLR(LambdaLR):
    """A rise and a fall, along lines. Its peak is no factor of the rate that the optimizer had, which it forgets."""

    def __init__(self, optimizer, max_lr, total_steps, cycle_momentum=True, base_momentum=0.85, max_momentum=0.95):
        self.momenta = (max_momentum, base_momentum) if cycle_momentum else None
        for group in optimizer.param_groups:
            group["initial_lr"] = max_lr / 25
        super().__init__(optimizer, lambda k: 1 + 24 * (1 - abs(2 * k / (total_steps - 1) - 1)))

    def _set(self):
        super()._set()
        for group in self.optimizer.param_groups:
            if self.momenta is not None:
                group["momentum"] = self.momenta[self.last_epoch % 2]


class ChainedScheduler:
    """It has no last_epoch, as torch's."""

    def __init__(self, schedulers):
        self._schedulers, self.optimizer = schedulers, schedulers[0].optimizer

    def step(self):
        for one in self._schedulers:
            one.step()

    def state_dict(self):
        return {"_schedulers": [one.state_dict() for one in self._schedulers]}

    def load_state_dict(self, state):
        for one, its in zip(self._schedulers, state["_schedulers"]):
            one.load_state_dict(its)
