"""Digests by which processes know that they compute the same: of data, of modules' texts, of a gradient. 16 bytes."""

from __future__ import annotations

import hashlib
import struct
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence

from .digest import Digest, Opaque
from .script import Refused, Script, texts

DRAWN = 256   # samples of which the digest of data is
REPEATED = 4  # of them that are read twice


def of_state(state: "Optional[Mapping[str, Any]]") -> str:
    """Hexadecimal, of a state that a job begins with; "" of none. Raises Refused."""
    if state is None:
        return ""
    # Of a tensor no field of the script's is loaded.
    loaded = {name: value.detach() if hasattr(value, "detach") else value for name, value in sorted(state.items())}
    try:
        return Digest().take(loaded).bytes().hex()
    except Opaque as what:
        raise Refused(f"init holds {what}, whose content cannot be compared; give a state_dict of tensors and plain"
                      " values") from None


def drawn(count: int) -> "list[int]":
    """Up to DRAWN numbers of samples, spread over all: the same everywhere."""
    if count <= DRAWN:
        return list(range(count))
    numbers = []
    for k in range(DRAWN):
        first, end = k * count // DRAWN, (k + 1) * count // DRAWN
        draw = hashlib.blake2b(struct.pack("<Q", k), digest_size=8).digest()
        numbers.append(first + int.from_bytes(draw, "little") % (end - first))
    return numbers


def of_samples(data: Any, numbers: "Sequence[int]", collate: "Callable[[list[Any]], Any]", size: int,
               seed: "Callable[[int], None]", each: "Optional[list[bytes]]" = None) -> bytes:
    """Of batches of `size`, of which the last one begins anew where there are no more. seed: called with the number of
    each sample before it is read, since reading may draw. each: gets the digest of each batch. Raises Opaque."""

    def sample(number: int) -> Any:
        seed(number)
        return data[number]

    digest = Digest()
    for first in range(0, len(numbers), size):
        batch = collate([sample(numbers[i % len(numbers)]) for i in range(first, first + size)])
        try:
            digest.take(batch)
            if each is not None:
                each.append(Digest().take(batch).bytes())
        except Opaque as what:
            raise Opaque(f"a sample of {type(data).__name__} holds {what}, whose content cannot be compared; give the"
                         " Dataset an `identity`, a text or number that says which data these are") from None
    return digest.bytes()


def of_batches(data: Any, batches: "Sequence[int]", collate: "Callable[[list[Any]], Any]", size: int,
               seed: "Callable[[int], None]") -> bytes:
    """Of these of all samples in their order, with their numbers; nothing where of_data() has seen all."""
    if getattr(data, "identity", None) is not None or len(data) <= DRAWN:
        return b""
    digest = Digest()
    for number in batches:
        first = number * size
        digest.take(number).take(of_samples(data, range(first, min(first + size, len(data))), collate, size, seed))
    return digest.bytes()


def check_unchanged(data: Any, number: int, collate: "Callable[[list[Any]], Any]", size: int,
                    seed: "Callable[[int], None]", before: "Sequence[bytes]", batches: int) -> None:
    """Reads the batches of drawn samples again that belong to batch `number` of so many: in a round over them each
    once. before: their digests when the process began. Raises Refused if one is another."""
    numbers = drawn(len(data))
    for k in range(number * len(before) // batches, (number + 1) * len(before) // batches):
        again: "list[bytes]" = []
        of_samples(data, [numbers[i % len(numbers)] for i in range(k * size, (k + 1) * size)], collate, size, seed, again)
        if again != [before[k]]:
            raise Refused(f"samples of {type(data).__name__} are others than when this process began: the data must not"
                          " change while a job runs; what this run has computed, its checkpoints too, may be of the"
                          " changed samples")


def check_repeats(data: Any, numbers: "Sequence[int]", collate: "Callable[[list[Any]], Any]", size: int,
                  seed: "Callable[[int], None]") -> None:
    """Raises Refused if samples are others when they are read again."""
    if len({of_samples(data, numbers, collate, size, seed) for _ in range(2)}) > 1:
        raise Refused(f"samples of {type(data).__name__} are others when they are read again: what a Dataset or collate"
                      " draws has to come from torch, random or numpy.random themselves, which are seeded for each"
                      " micro-batch, and not from a generator or a counter of its own")


def of_data(data: Any, collate: "Callable[[list[Any]], Any]", size: int, seed: "Callable[[int], None]",
            each: "Optional[list[bytes]]" = None) -> bytes:
    """Of the Dataset's own `identity`, a value or a method, if it has one; else of some of its samples, in batches of
    `size`; each: gets the digest of each of these batches. Raises Refused."""
    if getattr(data, "identity", None) is None:
        numbers = drawn(len(data))
        check_repeats(data, numbers[:REPEATED], collate, size, seed)
        return of_samples(data, numbers, collate, size, seed, each)
    return Digest().take("identity").take(identity_of(data)).bytes()


def identity_of(data: Any) -> "str | bytes | int":
    """What a Dataset says by its `identity` which data it is of. Raises Refused."""
    own = data.identity
    value = own() if callable(own) else own
    if not isinstance(value, (str, bytes, int)):
        raise Refused(f"the identity of {type(data).__name__} must be a text, bytes or a whole number, is a"
                      f" {type(value).__name__}")
    return value


def with_sampler(data: bytes, sampler: bytes) -> bytes:
    """The digest of the data, and of what draws samples of them."""
    return Digest().take(data).take("sampler").take(sampler).bytes()


def with_held_out(data: bytes, held_out: bytes, count: int) -> bytes:
    """The digest of the data that are trained on, and of those that are held out."""
    return Digest().take(data).take("held out").take(held_out).take(count).bytes()


def with_untrained(data: bytes, net: Any) -> bytes:
    """The digest of data, and of the net's parameters that are not trained and its buffers where it has any: a first
    gradient need not depend on every bit of a base model."""
    digest, kept = Digest().take(data), 0
    for name, tensor in (*net.named_parameters(), *net.named_buffers()):
        if not tensor.requires_grad:
            kept += 1
            try:
                digest.take(name).take(tensor.detach())
            except Opaque:  # a tensor that cannot be looked into, as one on the device "meta"
                digest.take(str(type(tensor)))
    return digest.bytes() if kept else data


def of_texts(script: Script) -> bytes:
    """Of the script, the first half, and of all modules beside it that are imported by now, the second; the script's
    own name does not count."""
    own, *modules = texts(script)
    return bytes.fromhex(own.rpartition(":")[2]) + Digest().take(modules).bytes()[:8]


def of_dense(tensor: Any) -> bytes:
    """Of a gradient or a parameter as the worker has it, dense."""
    return Digest().take(tensor.to_dense() if tensor.is_sparse else tensor).bytes()


def of_gradient(loss: float, metrics: "Sequence[float]", gradients: "Iterable[Optional[bytes]]") -> bytes:
    """gradients: the digest of each parameter's, None where it has none."""
    digest = Digest().take(struct.pack(f"<d{len(metrics)}d", loss, *metrics))
    for gradient in gradients:
        digest.take(gradient)
    return digest.bytes()
