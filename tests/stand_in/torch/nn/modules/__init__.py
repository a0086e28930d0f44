from ... import Tensor
from . import batchnorm  # noqa: F401


class Parameter(Tensor):
    def __init__(self, data, requires_grad=True):
        super().__init__(data._memory, data.shape)
        self.requires_grad = requires_grad


class Module:
    def __init__(self):
        self.__dict__.update(_parameters={}, _modules={}, _buffers={}, _non_persistent_buffers_set=set(), training=True)

    def __setattr__(self, name, value):
        for kind, places in ((Parameter, self._parameters), (Module, self._modules)):
            if isinstance(value, kind):
                places[name] = value
                return
        if name in self._buffers:
            self._buffers[name] = value
        else:
            object.__setattr__(self, name, value)

    def __getattr__(self, name):
        for places in ("_parameters", "_modules", "_buffers"):
            if name in self.__dict__.get(places, ()):
                return self.__dict__[places][name]
        raise AttributeError(name)

    def __call__(self, *given):
        return self.forward(*given)

    def register_buffer(self, name, value, persistent=True):
        self._buffers[name] = value
        if not persistent:
            self._non_persistent_buffers_set.add(name)

    def named_modules(self, prefix=""):
        yield prefix, self
        for name, module in self._modules.items():
            yield from module.named_modules(f"{prefix}.{name}" if prefix else name)

    def modules(self):
        return (module for _, module in self.named_modules())

    def _named(self, places):
        seen = set()
        for prefix, module in self.named_modules():
            for name, value in getattr(module, places).items():
                if value is not None and id(value) not in seen:
                    seen.add(id(value))
                    yield f"{prefix}.{name}" if prefix else name, value

    def named_parameters(self):
        return self._named("_parameters")

    def parameters(self):
        return (p for _, p in self.named_parameters())

    def named_buffers(self):
        return self._named("_buffers")

    def buffers(self):
        return (b for _, b in self.named_buffers())

    def train(self, mode=True):
        for module in self.modules():
            module.__dict__["training"] = mode
        return self

    def eval(self):
        return self.train(False)

    def state_dict(self):
        return {name: value.detach() for name, value in (*self.named_parameters(), *self.named_buffers())}

    def load_state_dict(self, values, strict=True):
        own = dict((*self.named_parameters(), *self.named_buffers()))
        class Keys:
            unexpected_keys = [name for name in values if name not in own]
            missing_keys = [name for name in own if name not in values]
        if strict and (Keys.unexpected_keys or Keys.missing_keys):
            raise RuntimeError(f"unexpected {Keys.unexpected_keys}, missing {Keys.missing_keys}")
        for name, value in values.items():
            if name in own:
                own[name].copy_(value)
        return Keys
