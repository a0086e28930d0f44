#pragma once
// EpochPath is one epoch's direct path at a worker, with its members' talk about it
// (collectives/path_talk.h) and the clock for a new attempt. For data_plane.cpp; decides nothing.

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "actors/worker/paths.h"
#include "collectives/path_talk.h"
#include "core/base/ids.h"
#include "core/wire/messages.h"
#include "kernels/device/device.h"

namespace starling::actors {

// A path's thread, or the clock, reports PathSaid.
struct PathSaid {
  enum class Kind : std::uint8_t { kReady, kFailed, kRound, kRetry, kLeft };
  EpochId epoch;
  std::uint32_t attempt = 0;
  Kind kind = Kind::kRetry;
  std::optional<Error> error;  // kFailed, and a round that failed
  bool revoked = false;        // kLeft only, which also comes for a path whose epoch is over
};

// The data plane, which has frames and events, makes these calls for EpochPath, on its thread.
struct PathUse {
  std::function<void(Rank to, Bytes word)> send;
  std::function<void(collectives::DevicePath&, std::uint32_t attempt)> ready;
  // A path was made; its end waits for this gate.
  std::function<void(std::uint32_t attempt, std::shared_ptr<collectives::Gate>)> made;
  std::function<void(std::uint32_t attempt, const Error& why)> lost;  // nothing uses it any more
  std::function<void(std::uint32_t attempt, Result<> ended)> round;
  std::function<void(bool direct, const std::string& why)> told;  // for people
  std::function<void(Rank from, const collectives::PathLeft& word)> others_left;
};

struct PathLimits {
  std::size_t staging_bytes = 0;
  // A path's end waits this long for the others' ends. In a lease, silent members are left out.
  std::uint32_t leave_ms = 2'000;
};

// Threads: the data plane's; `say` runs on any thread, and may after
// this object's end. Borrows library and device, which must outlive it.
class EpochPath {
 public:
  EpochPath(const Paths& paths, kernels::Device& device, const Plan& plan, Rank self,
            PathLimits limits, PathUse use, std::function<void(PathSaid)> say);
  ~EpochPath();
  EpochPath(const EpochPath&) = delete;
  EpochPath& operator=(const EpochPath&) = delete;

  void begin();  // all connections of the epoch stand
  // Errors: kCorrupt; then nothing was done.
  Result<> on_word(Rank from, ByteView word);
  void on_said(PathSaid said);
  // No round follows in this epoch: another epoch's path may be made.
  void give_up();

 private:
  void carry_out(collectives::PathCommands commands);
  void carry_out(collectives::path_command::Send& c);
  void carry_out(collectives::path_command::MakeId& c);
  void carry_out(collectives::path_command::Connect& c);
  void carry_out(collectives::path_command::GiveUp& c);
  void carry_out(collectives::path_command::RetryIn& c);
  void carry_out(collectives::path_command::Say& c);
  void drop(const Error& why);
  bool for_good() const { return !library_->closed().empty(); }

  collectives::PathLibrary* const library_;  // null: none
  kernels::Device& device_;
  const EpochId epoch_;
  const Rank self_;
  const std::uint32_t world_;
  const PathLimits limits_;
  const PathUse use_;
  const std::function<void(PathSaid)> say_;
  collectives::PathTalk talk_;
  std::unique_ptr<collectives::DevicePath> path_;
  std::uint32_t attempt_ = 0;  // of path_
  std::optional<Error> why_;   // path_ must go, because of this
  bool over_ = false;
  std::jthread clock_;  // waits for the next attempt
};

}  // namespace starling::actors
