#pragma once
// EmulatedDevice needs no hardware: the host's loops run over memory that the host
// cannot read at the addresses that it is given. Code that follows one ends with a
// segmentation fault, code that gives a queue an address of the host ends by a check:
// so every test over this device shows that no code took its memory for the host's. Work with
// sparse memory that is not backed ends by a check, too.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <shared_mutex>

#include "core/base/stream.h"
#include "kernels/device/device.h"

namespace starling::kernels {

inline constexpr const char* kEmulated = "emulated";  // as a job's `isa`

class EmulatedDevice : public Device {
 public:
  // exports: exported() memory is for other processes, which map it as memory of the host.
  explicit EmulatedDevice(bool exports = false) : exports_(exports) {}
  ~EmulatedDevice() override;  // all memory was given back, unless a keeper still holds it

  struct Copies {                   // between host and device
    std::uint64_t in = 0, out = 0;  // bytes
  };
  Copies copies() const { return {in_, out_}; }
  std::size_t pieces() const;  // of taken memory, with what keep_memory() keeps
  std::size_t backed() const;  // bytes of sparse memory that are there, with what is kept

  const std::string& name() const override { return name_; }
  bool host_memory() const override { return false; }
  std::unique_ptr<Queue> make_queue() override;
  std::shared_ptr<Stream> make_stream() override;  // its native() is a StreamCounts

 private:
  friend class EmulatedQueue;
  struct Piece {  // by the address that the host gets
    std::size_t bytes = 0;
    std::byte* real = nullptr;              // the same address: pinned
    std::shared_ptr<SharedPages> shared{};  // has `real`; null: pages that no other process maps
    std::optional<Granules> sparse{};       // of pages; nothing: all of it is there
  };

  std::byte* take(std::size_t bytes, bool pinned) override;
  std::byte* take_sparse(std::size_t bytes) override;
  void back(std::byte* at, std::size_t offset, std::size_t count) override;
  void unback(std::byte* at, Granules::Run granules, std::uint64_t give) override;
  std::byte* take_exported(std::size_t bytes) override;
  std::optional<SharedPlace> place_of(const std::byte* at) const override;
  void give_back(std::byte* at, std::size_t bytes) override;
  void expect(std::byte* at, std::size_t offset, std::size_t count, bool used) override;
  void prepare(std::byte* at, std::size_t offset, std::size_t count,
               const std::stop_token& stop) override;
  void release(std::byte* at, std::size_t offset, std::size_t count) override;
  // Hides a piece: returns the address that the host gets.
  std::byte* hide(Piece piece);
  // Returns where that memory really is. Requires that it is this device's, and backed.
  std::byte* real(const void* at, std::size_t bytes) const;

  const bool exports_;
  const std::string name_ = kEmulated;
  mutable std::shared_mutex mutex_;
  std::map<const std::byte*, Piece> pieces_;
  std::atomic<std::uint64_t> in_{0}, out_{0};
};

}  // namespace starling::kernels
