#pragma once
// A Device is where a worker's arrays live, and does the work on them. All work on each
// parameter goes through a Queue, so that the arrays may lie where the host cannot read them.
//
// Memory has three kinds: a device's own; pinned memory, which host and device
// both read and write; and the host's, which a device only sees in copies.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/mutex.h"
#include "core/base/result.h"
#include "core/base/stream.h"
#include "kernels/device/granules.h"
#include "kernels/device/jobs.h"
#include "kernels/device/shared_pages.h"

namespace starling::kernels {

class Device;
class GradientMaker;
struct MakerSpec;

// Memory is a piece of a device's memory, given back at its end. It starts as zeros,
// at a 256-byte boundary. Threads: none; different threads may use different bytes.
class Memory {
 public:
  Memory() = default;
  ~Memory();
  Memory(Memory&& o) noexcept { *this = std::move(o); }
  Memory& operator=(Memory&& o) noexcept;

  std::byte* data() const { return at_; }
  std::size_t size() const { return bytes_; }
  bool host() const { return host_; }  // the host may follow data()
  // Returns where other processes map the memory from; nothing: they cannot (Device::shared(),
  // Device::exported()).
  std::optional<SharedPlace> place() const;

  // Advises on [offset, offset + count). used: all of it is going to be written,
  // so large pages may lie within it. Not used: only parts of it are, and large
  // pages would cost memory for the gaps. The last call counts. Changes no byte.
  void expect(std::size_t offset, std::size_t count, bool used);
  // Has the memory of [offset, offset + count) found now, bit by bit, and
  // not when it is first written. Changes no byte: any thread may ask while
  // others read and write. Ends early once `stop` is asked for; advice only.
  void prepare(std::size_t offset, std::size_t count, const std::stop_token& stop) const;
  // Takes the memory of [offset, offset + count) of sparse memory (Device::sparse()): zeros, which may be
  // used until they are released. Other memory is there from its beginning. Requires that nothing
  // of it is backed. Throws std::bad_alloc, and nothing of it is backed then.
  void back(std::size_t offset, std::size_t count);
  // Makes [offset, offset + count) zeros, which cost no memory until they are written; of sparse memory, gives
  // back what one call of back() has taken. No queue may have work with them.
  void release(std::size_t offset, std::size_t count);

 private:
  friend class Device;
  Memory(Device* device, std::byte* at, std::size_t bytes, bool host)
      : device_(device), at_(at), bytes_(bytes), host_(host) {}
  Memory(Device* device, std::unique_ptr<SharedPages> shared, std::size_t bytes)
      : device_(device),
        at_(shared->data()),
        bytes_(bytes),
        host_(true),
        shared_(std::move(shared)) {}

  Device* device_ = nullptr;
  std::byte* at_ = nullptr;
  std::size_t bytes_ = 0;
  bool host_ = false;
  std::unique_ptr<SharedPages> shared_;  // null: the device took the memory
};

// A Queue does work in order on one device. Host memory that a call names must stay until wait().
// A queue over the host's memory has done all when a call returns. Threads: one at a time.
class Queue {
 public:
  virtual ~Queue() = default;

  virtual void zero(void* at, std::size_t bytes) = 0;
  virtual void copy_in(void* to, ByteView from) = 0;
  virtual void copy_out(std::span<std::uint8_t> to, const void* from) = 0;
  // Copies within the device's memory; the two do not overlap.
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;

  virtual void add(const AddJob& job) = 0;
  virtual void gather(const GatherJob& job) = 0;
  virtual void weigh(const WeighJob& job) = 0;
  virtual void sum(const SumJob& job) = 0;
  virtual void wide_means(const WideJob& job) = 0;
  virtual void squares(const SquaresJob& job) = 0;
  virtual void apply(const ApplyJob& job) = 0;
  virtual void publish(const PublishJob& job) = 0;
  virtual void multiple(const MultipleJob& job) = 0;
  virtual void difference(const DifferenceJob& job) = 0;
  virtual void norm(const NormJob& job) = 0;
  virtual void local_step(const LocalStepJob& job) = 0;
  virtual void checksum(const ChecksumJob& job) = 0;
  virtual void digest(const DigestJob& job) = 0;

  // Waits until all work above is done. A device that is lost ends the process.
  virtual void wait() = 0;
  // Marks the work asked for until now; wait_marked() waits for that, and not for what came later.
  virtual void mark() {}
  virtual void wait_marked() { wait(); }
};

// Threads: any. A Device outlives all that was made from it.
class Device {
 public:
  virtual ~Device() = default;

  virtual const std::string& name() const = 0;
  virtual bool host_memory() const = 0;  // the host may follow addresses of this device
  // True: gradients of its makers may have other bits than the host's.
  virtual bool has_arithmetic() const { return false; }
  // The memory costs something only where it is touched, if the device
  // can do that. Throws std::bad_alloc as the standard containers do.
  Memory allocate(std::size_t bytes);
  Memory pinned(std::size_t bytes);
  // Takes addresses of the device whose memory is there only where it is backed (Memory::back()), if the
  // device can do that; else as allocate().
  Memory sparse(std::size_t bytes);
  // Takes memory of the host that another process can map (kernels/device/shared_pages.h),
  // if the device was opened for that; else as pinned().
  Memory shared(std::size_t bytes);
  // Takes memory of the device that another process can map, if the device was opened for that
  // and its driver can do it; else as allocate(). Of the host: as shared().
  Memory exported(std::size_t bytes);
  // Returns how other programs name the device ("GPU-..."); empty: they see no other one.
  virtual std::string uuid() const { return {}; }
  // While a caller holds one of these, memory that its owner gives back meanwhile stays taken; the
  // last of those who held one then frees it. Hold one while kernels of a library run that may wait
  // for a peer for ever: a GPU frees memory when all kernels have ended, and the thread that frees
  // would wait with them.
  std::shared_ptr<void> keep_memory();
  virtual std::unique_ptr<Queue> make_queue() = 0;
  // Makes a stream for another library that works on this device; a
  // thread calls enter_thread() before it asks the stream for anything.
  virtual std::shared_ptr<Stream> make_stream() = 0;
  virtual void enter_thread() {}
  // Returns the maker that computes this model's gradients on the device; null: the
  // device has no such model, and the host computes (kernels/models/gradient_maker.h).
  virtual std::unique_ptr<GradientMaker> make_maker(const MakerSpec& spec);
  // Measures which ways of computing this model's gradients are the fastest, and writes them to
  // a file that others may use. Errors: kBadInput  there is nothing to choose; kUnavailable.
  virtual Result<> tune(const MakerSpec& spec, const std::string& file);

 protected:
  friend class Memory;
  virtual std::byte* take(std::size_t bytes, bool pinned) = 0;
  // Takes addresses for Memory::back(). Default: as take(), and nothing is to be backed.
  virtual std::byte* take_sparse(std::size_t bytes) { return take(bytes, /*pinned=*/false); }
  virtual void back(std::byte* /*at*/, std::size_t /*offset*/, std::size_t /*count*/) {}
  // Gives back those granules of a piece of take_sparse() that nobody has used since this give(); `at` may be
  // gone. Any thread.
  virtual void unback(std::byte* /*at*/, Granules::Run /*granules*/, std::uint64_t /*give*/) {}
  // Has unback() called for what has no user any more: now, or after the last keeper of this moment.
  void retire(std::byte* at, const Granules::Given& given);
  // True: the host's memory is this device's as well, and shared() memory is for other processes.
  virtual bool shares() const { return false; }
  // Takes memory that place_of() knows, if the device can. Default: as take().
  virtual std::byte* take_exported(std::size_t bytes) { return take(bytes, /*pinned=*/false); }
  // Returns where other processes map a piece from that begins at `at`. Default: nothing.
  virtual std::optional<SharedPlace> place_of(const std::byte* /*at*/) const {
    return std::nullopt;
  }
  virtual void give_back(std::byte* at, std::size_t bytes) = 0;
  // Advises on a piece that was taken and begins at `at`: Memory::expect().
  virtual void expect(std::byte* /*at*/, std::size_t /*offset*/, std::size_t /*count*/,
                      bool /*used*/) {}
  virtual void prepare(std::byte* at, std::size_t offset, std::size_t count,
                       const std::stop_token& stop) = 0;
  virtual void release(std::byte* at, std::size_t offset, std::size_t count) = 0;
  bool keeps_memory() const;

 private:
  struct Kept {
    std::byte* at = nullptr;
    Granules::Run granules{};   // of sparse memory; none: all of the piece
    std::uint64_t give = 0;     // of these granules
    std::size_t bytes = 0;      // of the piece
    std::uint64_t keepers = 0;  // those below this number keep it
  };
  void dismiss(std::byte* at, std::size_t bytes);  // give_back(), now or after the last keeper
  void keep_or_free(Kept kept);
  void free(const Kept& kept) STARLING_REQUIRES(keeping_);
  void let_go(std::uint64_t keeper);

  mutable Mutex keeping_;  // held while memory is given back, so that no keeper begins meanwhile
  std::uint64_t next_keeper_ STARLING_GUARDED_BY(keeping_) = 0;
  // In the order in which they began, and in which it was given back.
  std::set<std::uint64_t> keepers_ STARLING_GUARDED_BY(keeping_);
  std::vector<Kept> kept_ STARLING_GUARDED_BY(keeping_);
};

// Returns the device that is the memory and the processor of this process.
Device& host_device();

// Makes such a device whose shared() memory other processes can map.
std::shared_ptr<Device> make_sharing_host();

// Checks that this machine has the device that a job's `isa` names, without
// taking any of it. Errors: kBadInput  it has none; the text says why.
Result<> check_device(const std::string& isa);
struct DeviceChoice {
  bool shares = false;    // other processes can map shared() and exported() memory
  std::uint32_t gpu = 0;  // of several, counted from 0 and around
  // Called when a GPU fails, with the reason, on the thread that noticed it; must end the
  // process, as the GPU's memory cannot be trusted. Empty: one line, and exit code 5.
  std::function<void(const std::string& why)> on_lost;
};
// Opens the device that a job's `isa` names: the host, an imitation of another
// device, or a GPU. Errors: kBadInput  there is none; the text says why.
Result<std::shared_ptr<Device>> open_device(const std::string& isa,
                                            const DeviceChoice& choice = {});

}  // namespace starling::kernels
