"""Of optimizers what a job is made of: parameters in groups, and their hyperparameters. None makes a step."""
from . import lr_scheduler, optimizer  # noqa: F401


class Optimizer:
    def __init__(self, params, defaults):
        groups = list(params)
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        self.state, self.defaults = {}, dict(defaults)
        self._optimizer_step_pre_hooks, self._optimizer_step_post_hooks = {}, {}
        self.param_groups = [{**defaults, **group, "params": list(group["params"])} for group in groups]

    def register_step_pre_hook(self, hook):
        self._optimizer_step_pre_hooks[len(self._optimizer_step_pre_hooks)] = hook

    def register_step_post_hook(self, hook):
        self._optimizer_step_post_hooks[len(self._optimizer_step_post_hooks)] = hook


class AdamW(Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, amsgrad=False, *, maximize=False,
                 foreach=None, capturable=False, differentiable=False, fused=None):
        super().__init__(params, {key: value for key, value in locals().items()
                                  if key not in ("self", "params", "__class__")})


class Adam(AdamW):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, **others):
        super().__init__(params, lr, betas, eps, weight_decay, **others)


class SGD(Optimizer):
    def __init__(self, params, lr=1e-3, momentum=0, dampening=0, weight_decay=0, nesterov=False, *, maximize=False,
                 foreach=None, differentiable=False, fused=None):
        super().__init__(params, {key: value for key, value in locals().items()
                                  if key not in ("self", "params", "__class__")})


class Rprop(Adam):
    pass


class RMSprop(Optimizer):
    def __init__(self, params, lr=1e-2, alpha=0.99, eps=1e-8, weight_decay=0, momentum=0, centered=False, capturable=False,
                 foreach=None, maximize=False, differentiable=False):
        super().__init__(params, {key: value for key, value in locals().items()
                                  if key not in ("self", "params", "__class__")})


class Adagrad(Optimizer):
    """Its state is there before a step is made."""

    def __init__(self, params, lr=1e-2, lr_decay=0, weight_decay=0, initial_accumulator_value=0, eps=1e-10, foreach=None, *,
                 maximize=False, differentiable=False, fused=None):
        super().__init__(params, {key: value for key, value in locals().items()
                                  if key not in ("self", "params", "__class__")})
        self.state = {id(p): {"step": 0.0} for group in self.param_groups for p in group["params"]}
