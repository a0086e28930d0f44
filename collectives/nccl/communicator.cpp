#include "collectives/nccl/communicator.h"

#include <chrono>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

#include "core/base/check.h"

namespace starling::collectives::nccl {

Communicator::~Communicator() {
  STARLING_CHECK(stage_ == Stage::kEmpty || stage_ == Stage::kGone);
}

Result<> Communicator::begin(ByteView id, Rank self, std::uint32_t world) {
  STARLING_CHECK(stage_ == Stage::kEmpty);
  STARLING_CHECK(id.size() == abi::kIdBytes);
  stage_ = Stage::kCreating;
  abi::UniqueId unique;
  std::memcpy(unique.internal, id.data(), abi::kIdBytes);
  abi::Config config;
  config.blocking = 0;
  config.max_ctas = kBlocksMax;
  const int result =
      nccl_.init(&comm_, static_cast<int>(world), unique, static_cast<int>(self.value()), &config);
  if (result != abi::kSuccess && result != abi::kInProgress)
    return failed("ncclCommInitRankConfig", result);
  if (comm_ == nullptr) return Error(Code::kPeerLost, "NCCL made no communicator, and no error");
  return ok();
}

Result<> Communicator::launch(const std::vector<Transfer>& sends,
                              const std::vector<Transfer>& receives, void* stream) {
  STARLING_CHECK(stage_ == Stage::kStanding);
  stage_ = Stage::kLaunching;
  if (const int result = nccl_.group_start(); result != abi::kSuccess)
    return failed("ncclGroupStart", result);
  const auto peer = [](const Transfer& t) { return static_cast<int>(t.peer.value()); };
  const char* call = nullptr;
  int wrong = abi::kSuccess;
  const auto note = [&](const char* name, int result) {
    if (result == abi::kSuccess || result == abi::kInProgress || call != nullptr) return;
    call = name;
    wrong = result;
  };
  for (const Transfer& t : sends)
    note("ncclSend", nccl_.send(t.at, t.bytes, abi::kInt8, peer(t), comm_, stream));
  for (const Transfer& t : receives)
    note("ncclRecv", nccl_.recv(t.at, t.bytes, abi::kInt8, peer(t), comm_, stream));
  // The group belongs to the thread: close it whatever the calls within it returned.
  note("ncclGroupEnd", nccl_.group_end());
  if (call != nullptr) return failed(call, wrong);
  return ok();
}

Result<bool> Communicator::settled() {
  STARLING_CHECK(stage_ == Stage::kCreating || stage_ == Stage::kStanding ||
                 stage_ == Stage::kLaunching);
  int state = abi::kSuccess;
  if (const int result = nccl_.async_error(comm_, &state); result != abi::kSuccess)
    return failed("ncclCommGetAsyncError", result);
  if (state == abi::kInProgress) return false;
  if (state != abi::kSuccess)
    return failed(stage_ == Stage::kCreating ? "making a communicator" : "a communicator", state);
  stage_ = Stage::kStanding;
  stood_ = true;
  return true;
}

bool Communicator::revoke() {
  stage_ = Stage::kRevoked;
  // Before the communicator stands, NCCL's revoke reads memory that is not set up yet.
  if (!stood_) return false;
  int state = nccl_.revoke(comm_, 0);
  while (state == abi::kInProgress) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (nccl_.async_error(comm_, &state) != abi::kSuccess) return false;
  }
  return state == abi::kSuccess;
}

bool Communicator::abort() {
  STARLING_CHECK(stage_ == Stage::kRevoked);
  stage_ = Stage::kGone;
  if (comm_ == nullptr) return false;
  // The result of abort() changes nothing: a second call would end the process.
  nccl_.abort(std::exchange(comm_, nullptr));
  return true;
}

Error Communicator::failed(const char* call, int result) const {
  std::string text = std::string(call) + ": " + nccl_.error_text(result);
  const char* const details = nccl_.last_error(nullptr);
  const std::string_view first(details ? details : "");
  if (const auto line = first.substr(0, first.find('\n')); !line.empty())
    text += " (" + std::string(line) + ")";
  return Error(Code::kPeerLost, std::move(text));
}

}  // namespace starling::collectives::nccl
