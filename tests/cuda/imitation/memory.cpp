#include "tests/cuda/imitation/memory.h"

#include <cuda_runtime.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <vector>

#include "tests/cuda/imitation/errors.h"
#include "tests/cuda/imitation/hidden.h"
#include "tests/cuda/imitation/imitation.h"
#include "tests/cuda/imitation/streams.h"

namespace imitation = starling::imitation;

namespace starling::imitation {
namespace {

constexpr std::align_val_t kBoundary{256};
constexpr int kPattern = 0xa5;  // what memory holds at first

struct Piece {
  std::size_t bytes;
  Kind kind;
  bool hidden;
  bool mapped = false;  // neighbours that the driver has mapped are one piece for copies
};
struct Pieces {
  std::mutex mutex;
  std::map<const std::byte*, Piece> by_address;
  std::size_t device_bytes = 0;
};
Pieces& pieces() {
  static auto* const pieces = new Pieces;
  return *pieces;
}

std::atomic<std::size_t> chosen_bytes = 0;

std::size_t total_bytes() {
  if (chosen_bytes != 0) return chosen_bytes;
  return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

cudaError_t take(void** at, std::size_t bytes, Kind kind) {
  if (at == nullptr) return cudaErrorInvalidValue;
  if (refused_by_capture()) return cudaErrorStreamCaptureUnsupported;
  *at = nullptr;
  if (bytes == 0) return cudaSuccess;
  Pieces& all = pieces();
  const std::lock_guard guard(all.mutex);
  if (all.device_bytes + bytes > total_bytes()) return cudaErrorMemoryAllocation;
  // Of that size and not rounded up, so that a sanitizer sees what lies outside.
  const bool hidden = kind == Kind::kDevice && hides();
  void* const made = hidden ? take_hidden(bytes) : ::operator new(bytes, kBoundary, std::nothrow);
  if (made == nullptr) return cudaErrorMemoryAllocation;
  {
    const AtWork at_work;
    std::memset(made, kPattern, bytes);
  }
  all.by_address[static_cast<const std::byte*>(made)] = {bytes, kind, hidden};
  if (kind == Kind::kDevice) all.device_bytes += bytes;
  *at = made;
  return cudaSuccess;
}

cudaError_t give_back(void* at, Kind kind) {
  if (at == nullptr) return cudaSuccess;
  if (refused_by_capture()) return cudaErrorStreamCaptureUnsupported;
  finish_all();  // as CUDA does
  Pieces& all = pieces();
  const std::lock_guard guard(all.mutex);
  const auto found = all.by_address.find(static_cast<const std::byte*>(at));
  if (found == all.by_address.end() || found->second.kind != kind) return cudaErrorInvalidValue;
  const Piece piece = found->second;
  if (kind == Kind::kDevice) all.device_bytes -= piece.bytes;
  all.by_address.erase(found);
  if (piece.hidden)
    give_back_hidden(at, piece.bytes);
  else
    ::operator delete(at, kBoundary);
  return cudaSuccess;
}

struct Copy {
  void* to;
  const void* from;
  std::size_t bytes;
  bool from_pageable, to_pageable;
};

// What CUDA says of places and direction.
cudaError_t check(const Copy& copy, Place from, Place to, cudaMemcpyKind kind) {
  if (!from.whole || !to.whole) return cudaErrorInvalidValue;
  if (kind == cudaMemcpyDefault) return cudaSuccess;
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault)
    return cudaErrorInvalidMemcpyDirection;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  // Pinned memory is both the host's and the device's.
  if (copy.from_pageable == from_device && from.kind != Kind::kPinned) return cudaErrorInvalidValue;
  if (copy.to_pageable == to_device && to.kind != Kind::kPinned) return cudaErrorInvalidValue;
  return cudaSuccess;
}

void run(const Copy& copy) {
  const AtWork at_work;
  std::memmove(copy.to, copy.from, copy.bytes);
}

// Pageable memory is read before the call returns, also if the copy is made later.
Task keep(const Copy& copy, bool captured) {
  if (!copy.from_pageable || captured) return [copy] { run(copy); };
  const auto* const from = static_cast<const std::byte*>(copy.from);
  return [copy, bytes = std::vector(from, from + copy.bytes)] {
    run({copy.to, bytes.data(), copy.bytes, true, copy.to_pageable});
  };
}

}  // namespace

void set_memory(std::size_t bytes) {
  chosen_bytes = bytes;
}

bool has_room(std::size_t bytes) {
  Pieces& all = pieces();
  const std::lock_guard guard(all.mutex);
  return all.device_bytes + bytes <= total_bytes();
}

void note_mapped(const void* at, std::size_t bytes) {
  Pieces& all = pieces();
  const std::lock_guard guard(all.mutex);
  all.by_address[static_cast<const std::byte*>(at)] = {bytes, Kind::kDevice, /*hidden=*/false,
                                                       /*mapped=*/true};
  all.device_bytes += bytes;
}

void forget_mapped(const void* at) {
  Pieces& all = pieces();
  const std::lock_guard guard(all.mutex);
  const auto found = all.by_address.find(static_cast<const std::byte*>(at));
  all.device_bytes -= found->second.bytes;
  all.by_address.erase(found);
}

Place place_of(const void* at, std::size_t bytes) {
  const auto* const first = static_cast<const std::byte*>(at);
  Pieces& all = pieces();
  const std::lock_guard guard(all.mutex);
  auto next = all.by_address.upper_bound(first);
  Place place;
  if (next != all.by_address.begin()) {
    const auto& [begin, piece] = *std::prev(next);
    const std::byte* end = begin + piece.bytes;
    if (first < end) {
      for (; piece.mapped && next != all.by_address.end() && next->first == end &&
             next->second.mapped;
           ++next)
        end += next->second.bytes;
      place.kind = piece.kind;
      place.whole = bytes <= static_cast<std::size_t>(end - first);
      return place;
    }
  }
  place.whole = next == all.by_address.end() || first + bytes <= next->first;
  return place;
}

}  // namespace starling::imitation

cudaError_t cudaMalloc(void** at, std::size_t bytes) {
  return imitation::told(imitation::take(at, bytes, imitation::Kind::kDevice));
}

cudaError_t cudaFree(void* at) {
  return imitation::told(imitation::give_back(at, imitation::Kind::kDevice));
}

cudaError_t cudaHostAlloc(void** at, std::size_t bytes, unsigned) {
  return imitation::told(imitation::take(at, bytes, imitation::Kind::kPinned));
}

cudaError_t cudaMallocHost(void** at, std::size_t bytes, unsigned flags) {
  return cudaHostAlloc(at, bytes, flags);
}

cudaError_t cudaFreeHost(void* at) {
  return imitation::told(imitation::give_back(at, imitation::Kind::kPinned));
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const std::lock_guard guard(imitation::pieces().mutex);
  *total = imitation::total_bytes();
  *free = *total - std::min(*total, imitation::pieces().device_bytes);
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* at) {
  const imitation::Kind kind = imitation::place_of(at, 1).kind;
  auto* const address = const_cast<void*>(at);
  *attributes = {cudaMemoryTypeUnregistered, 0, nullptr, nullptr};
  if (kind == imitation::Kind::kPinned) *attributes = {cudaMemoryTypeHost, 0, address, address};
  if (kind == imitation::Kind::kDevice) *attributes = {cudaMemoryTypeDevice, 0, address, nullptr};
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  CUstream_st* const at = imitation::stream_of(stream);
  if (at == nullptr) return imitation::told(cudaErrorInvalidResourceHandle);
  if (bytes == 0) return cudaSuccess;
  if (to == nullptr || from == nullptr) return imitation::told(cudaErrorInvalidValue);
  const imitation::Place source = imitation::place_of(from, bytes);
  const imitation::Place target = imitation::place_of(to, bytes);
  const imitation::Copy copy{to, from, bytes, source.kind == imitation::Kind::kPageable,
                             target.kind == imitation::Kind::kPageable};
  if (const cudaError_t error = imitation::check(copy, source, target, kind); error != cudaSuccess)
    return imitation::told(error);
  const auto guard = imitation::lock(*at);
  const bool captured = at->capture != nullptr;
  imitation::do_or_add(
      *at, [&] { imitation::run(copy); }, [&] { return imitation::keep(copy, captured); });
  // A copy to pageable memory is there when the call returns.
  if (copy.to_pageable && !captured) imitation::finish(*at);
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  if (imitation::refused_by_capture()) return imitation::told(cudaErrorStreamCaptureUnsupported);
  const cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, nullptr);
  return error == cudaSuccess ? cudaStreamSynchronize(nullptr) : error;
}

cudaError_t cudaMemsetAsync(void* at, int value, std::size_t bytes, cudaStream_t stream) {
  CUstream_st* const of = imitation::stream_of(stream);
  if (of == nullptr) return imitation::told(cudaErrorInvalidResourceHandle);
  if (bytes == 0) return cudaSuccess;
  const imitation::Place place = imitation::place_of(at, bytes);
  if (!place.whole || place.kind == imitation::Kind::kPageable)
    return imitation::told(cudaErrorInvalidValue);
  const auto guard = imitation::lock(*of);
  const auto set = [at, value, bytes] {
    const imitation::AtWork at_work;
    std::memset(at, value, bytes);
  };
  imitation::do_or_add(*of, set, [&] { return set; });
  return cudaSuccess;
}

cudaError_t cudaMemset(void* at, int value, std::size_t bytes) {
  if (imitation::refused_by_capture()) return imitation::told(cudaErrorStreamCaptureUnsupported);
  const cudaError_t error = cudaMemsetAsync(at, value, bytes, nullptr);
  return error == cudaSuccess ? cudaStreamSynchronize(nullptr) : error;
}
