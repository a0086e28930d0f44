#pragma once
// PythonModel is a model of a Python script: a child process computes passes, and
// maps the worker's own parameters and gradient (kernels/device/shared_pages.h),
// so pass() copies nothing that grows with the model; forward_backward() does. A child that dies, hangs or
// sends nonsense is replaced: passes have the same bits in every process.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/base/ids.h"
#include "core/base/result.h"
#include "kernels/device/array.h"
#include "kernels/models/model.h"

namespace starling::actors::script {

// ChildLost hears, in one line, why a child was lost whose place another
// one takes. Called on the thread of the pass. Set before passes begin.
using ChildLost = std::function<void(const std::string& why)>;

class PythonModel : public kernels::Model {
 public:
  using kernels::Model::initialise;
  // Copies nothing where other processes can map `parameters`.
  virtual Result<> initialise(std::uint64_t seed, const Layout& layout,
                              kernels::Array<float>& parameters) const = 0;
  // Returns what the first process said that it is ("python 3.11.2, torch 2.1.0"); "python" before.
  virtual std::string versions() const = 0;
  virtual void on_child_lost(ChildLost told) = 0;
  // Sets micro-batch 0 of step 0: every process makes its net from its seed, and
  // computes it before anything else. A process that comes to other bits than the first
  // one, or has other data or another text, is refused. Set before processes start.
  virtual void begin_with(const Batch& first) = 0;
  // The first process reports this Identity: digests of the script's data, and of the texts
  // of all modules beside it that were imported when the first micro-batch was computed.
  struct Identity {
    Digest data{}, text{};
  };
  virtual Identity identity() const = 0;
  // DataRead says what processes have read of the data beside passes, a batch at a time and in
  // a small part of their time; Identity::data covers only samples that are drawn. Any thread.
  struct DataRead {
    // Whether all processes have read all. Not for ever: another process takes the place of one
    // that is lost, and each goes round again, as data may change.
    bool over = false;
    std::optional<Digest> digest;  // of all samples; over and nothing: they cannot be compared
  };
  virtual DataRead data_read() const = 0;
  // Reads on, at once and with all processes that no workspace has, until they have read all, there
  // is none, or `go_on` says no. For the end of a job, where no pass follows. Any thread.
  virtual void read_rest(const std::function<bool()>& go_on) const = 0;
  // Starts processes until so many wait for passes, all at once: a start takes seconds, for
  // which the first step of each compute thread would wait otherwise. Errors: those of passes.
  virtual Result<> prepare(std::uint32_t processes) const = 0;
  // Times counts all passes, how long they took, and how much of that the
  // script's batches, losses and gradients took. The rest is the bridge's.
  struct Times {
    std::uint64_t passes = 0;
    std::chrono::nanoseconds all{}, script{};
  };
  virtual Times times() const = 0;
  // Returns how long a pass is waited for at the first attempt, before its process counts as lost.
  virtual std::chrono::milliseconds patience() const = 0;
  // Counts bytes of parameters and gradients that were copied,
  // as they lay in memory that no other process can map.
  virtual std::uint64_t copied() const = 0;
};

// Makes the model; starts no process yet. isa: as for make_model(). Errors: kBadInput  no model.
// Errors of the model's functions: kBadInput  the script raised it, or its
// model is not the job's; kUnavailable  several children in a row were lost.
Result<std::unique_ptr<PythonModel>> make_python_model(const PythonSpec& spec,
                                                       const std::string& isa);

}  // namespace starling::actors::script
