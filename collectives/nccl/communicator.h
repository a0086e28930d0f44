#pragma once
// One communicator of NCCL's, from its making to its end (decisions about time are transport.h's).
//
// Every call returns soon, but revoke() and abort(), and begin() and launch() where CUDA itself
// blocks. Threads: one makes all calls, as NCCL wants no two of them in one communicator.

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/device_transport.h"
#include "collectives/nccl/abi.h"
#include "core/base/bytes.h"
#include "core/base/ids.h"
#include "core/base/result.h"

namespace starling::collectives::nccl {

// Blocks of a GPU that NCCL's kernels take at most: some 6 % of a large one.
inline constexpr int kBlocksMax = 8;

class Communicator {
 public:
  explicit Communicator(const abi::Functions& nccl) : nccl_(nccl) {}
  ~Communicator();  // abort() was called, or begin() was not
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Errors of all functions: kPeerLost  NCCL reports one. After an error call revoke() and abort().

  // `id`: of TransportLibrary::make_id(). The communicator stands once settled() says so.
  Result<> begin(ByteView id, Rank self, std::uint32_t world);
  // Starts all transfers in one group. They are in the stream only once settled() says so.
  Result<> launch(const std::vector<Transfer>& sends, const std::vector<Transfer>& receives,
                  void* stream);
  // Whether the last begin() or launch() is done, as far as the host is concerned.
  Result<bool> settled();
  // Stops the kernels of a communicator that stands: NCCL works on none of our memory here any
  // more, and only abort() may follow. False: the kernels could not be stopped, or it does not
  // stand. Blocks, at worst for ever.
  bool revoke();
  // Gives everything back; kernels of peers may still work on that memory. Blocks, at worst for
  // ever. False: there was nothing.
  bool abort();
  bool stood() const { return stood_; }

 private:
  // EMPTY -> CREATING -> STANDING <-> LAUNCHING; any -> REVOKED -> GONE
  enum class Stage : std::uint8_t { kEmpty, kCreating, kStanding, kLaunching, kRevoked, kGone };

  Error failed(const char* call, int result) const;

  const abi::Functions& nccl_;
  Stage stage_ = Stage::kEmpty;
  bool stood_ = false;
  abi::Comm comm_ = nullptr;
};

}  // namespace starling::collectives::nccl
