from ... import Tensor, stack, tensor
from ._utils import worker


def get_worker_info():
    return worker._worker_info


class Dataset:
    """Map-style."""


class IterableDataset(Dataset):
    """Gives its samples in an order of its own."""


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


class SequentialSampler:
    def __init__(self, data_source):
        self.data_source = data_source

    def __len__(self):
        return len(self.data_source)

    def __iter__(self):
        return iter(range(len(self.data_source)))


class RandomSampler(SequentialSampler):
    def __init__(self, data_source, replacement=False, num_samples=None, generator=None):
        super().__init__(data_source)
        self.replacement, self.num_samples = replacement, num_samples or len(data_source)

    def __len__(self):
        return self.num_samples


class WeightedRandomSampler:
    def __init__(self, weights, num_samples, replacement=True, generator=None):
        self.weights, self.num_samples, self.replacement, self.generator = weights, num_samples, replacement, generator

    def __len__(self):
        return self.num_samples

    def __iter__(self):
        raise NotImplementedError


class BatchSampler:
    """Of a DataLoader that makes its batches itself."""


class DataLoader:
    """What is said to one, and no iteration."""

    def __init__(self, dataset, batch_size=1, shuffle=False, sampler=None, batch_sampler=None, num_workers=0, collate_fn=None,
                 pin_memory=False, drop_last=False, worker_init_fn=None, prefetch_factor=None, generator=None):
        self.dataset, self.num_workers, self.worker_init_fn, self.generator = dataset, num_workers, worker_init_fn, generator
        self.batch_size, self.drop_last, self.prefetch_factor = None if batch_sampler else batch_size, drop_last, prefetch_factor
        self.pin_memory = pin_memory
        self.sampler = sampler or (RandomSampler if shuffle else SequentialSampler)(dataset)
        self.batch_sampler = batch_sampler or BatchSampler()
        self.collate_fn = collate_fn or default_collate

    def __iter__(self):
        return self._get_iterator()

    def _get_iterator(self):
        raise NotImplementedError
