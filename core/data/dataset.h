#pragma once
// The samples of a job's data, and which of them a micro-batch of a step holds.
//
// Which sample stands where is a function of the job and the data's size only, never of worker or
// world: all passes over the data, each in its own order (core/data/permutation.h), make one
// endless sequence, of which step s takes the places s*M*B .. (s+1)*M*B - 1. So every sample is
// used exactly once per pass, whatever the number of workers.
// Of [data] order = "lanes" another function of the same says it, with the same promise (core/data/lanes.h).
//
// Threads: after open() everything is const and may be called from any thread. Files are mapped, small ones read into
// memory, and none is opened later; but for lanes, whose chunks are read when they are due.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/ids.h"
#include "core/base/result.h"
#include "core/data/batch.h"
#include "core/job/job.h"

namespace starling {

struct LaneFacts {
  std::uint32_t chunk_samples = 0;  // sample i is of chunk i / chunk_samples
  std::uint64_t lane_bytes = 0;     // at most in a worker's memory for each lane that it reads
};

class Dataset {
 public:
  // Reads or maps job.data.path and checks it against the job's model. Sample i is
  //   text        bytes [i*T, i*T + T], of the file, or of all files below the folder one after the
  //               other in the order of their paths, no symbolic link followed
  //   tokens      tokens [i*T, i*T + T] of token files (core/data/token_file.h), all of one width; of a
  //               folder or a pattern (core/base/data_files.h) one after the other; of files with a loss mask
  //               those i that have a token to learn, and a last one without a token behind it where documents
  //               begin in sequences of T
  //   classified  row i of x [n, inputs] F32 with its label y [n] I32 (safetensors)
  // (T = context; neighbouring sequences share one token, the last target of the first; a tail that
  // is too short is left out). For a synthetic model there is no file: the one sample is empty, and
  // a micro-batch says which it is. For a model of a script there is none either: samples are
  // numbers. Errors: kBadInput, naming the file, what was found and
  // expected.
  static Result<std::unique_ptr<Dataset>> open(const Job& job);
  virtual ~Dataset() = default;

  std::uint64_t samples() const { return samples_; }
  // What people should know of the data, in one line; empty: nothing.
  virtual std::string remark() const { return {}; }
  // A digest of size and content: equal on every worker of a job. All bytes of data up to 64 MiB;
  // of larger data the size, the first and last MiB, and 64 pieces of 64 KiB at fixed places.
  const Digest& identity() const { return identity_; }

  // A digest of every byte: identity(), where that covers them all. Nothing if `go_on` says no or
  // the data cannot be read. Reads all of the data: minutes, or for ever where the storage hangs.
  // Do not call it while the process may not wait.
  virtual std::optional<Digest> content(const std::function<bool()>& go_on) const = 0;

  // Of lanes; nothing of other data.
  virtual std::optional<LaneFacts> lanes() const { return std::nullopt; }
  // Whether a caller has waited for the store of the data for a while, and goes on waiting.
  virtual bool waits() const { return false; }
  // What people should know of what was read since the last call, a line each.
  virtual std::vector<std::string> take_news() const { return {}; }

  // The sample at place `sequence` of micro-batch m of a step.
  virtual std::uint64_t sample_of(std::uint64_t step, MicroBatch m, std::uint32_t sequence) const;
  // Micro-batch m of a step, with what it draws from. kBadInput if a mapped file that it reads was
  // changed since it was opened; in the job's last step also if any was, as far as identity() sees.
  Result<Batch> micro_batch(std::uint64_t step, MicroBatch m) const;
  // Exactly these samples, in this order.
  Result<Batch> fill(std::span<const std::uint64_t> samples) const;

 protected:
  Dataset() = default;
  // Appends sample i < samples() to the batch.
  virtual Result<> append(std::uint64_t i, Batch& batch) const = 0;
  // A micro-batch is about to be filled.
  virtual void expect(std::uint64_t, MicroBatch) const {}
  // Whether identity() is still that of the data. Errors: kBadInput  it is not.
  virtual Result<> unchanged_all() const { return ok(); }

  std::uint64_t samples_ = 0;
  Digest identity_{};

 private:
  std::uint64_t seed_ = 0;
  std::uint32_t micro_batches_ = 0;  // M
  std::uint32_t sequences_ = 0;      // B
  std::uint64_t steps_ = 0;
  mutable std::atomic<bool> seen_at_end_ = false;
};

// Steps that one pass over the data lasts, as a fraction.
inline double passes(const Job& job, std::uint64_t samples) {
  return static_cast<double>(job.steps) * job.micro_batches * job.micro_batch_sequences /
         static_cast<double>(samples);
}

}  // namespace starling
