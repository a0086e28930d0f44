from ... import Tensor, stack, tensor


class Dataset:
    """Map-style."""


class IterableDataset(Dataset):
    """Refused by the starling package."""


class TensorDataset(Dataset):
    def __init__(self, *tensors):
        self.tensors = tensors

    def __len__(self):
        return len(self.tensors[0])

    def __getitem__(self, i):
        return tuple(t[i] for t in self.tensors)


def default_collate(samples):
    first = samples[0]
    if isinstance(first, (tuple, list)):
        return [default_collate(list(column)) for column in zip(*samples)]
    return stack(samples) if isinstance(first, Tensor) else tensor(samples)
