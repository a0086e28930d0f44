#pragma once
// This is Starling inside a program of your own: the whole `starling` command line with your
// models, data, optimizers and schedules beside the built-in ones. docs/embed.md shows how.
//
//   int main(int argc, char** argv) {
//     starling::Registry mine;
//     mine.model("line", make_line, open_points).optimizer("sign", sign);
//     return starling::main(argc, argv, mine);
//   }
//
// This header and what it includes is the public face; other headers of the package change as the
// project does.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/base/hash.h"
#include "core/base/philox.h"
#include "core/base/result.h"
#include "core/data/batch.h"
#include "core/data/own_data.h"
#include "core/job/job.h"
#include "core/job/layout.h"
#include "core/job/schedule.h"
#include "kernels/models/model.h"
#include "kernels/models/own.h"
#include "kernels/optim/own.h"

namespace starling {

// A Registry has what the program brings, by the names that its job files
// use. It stays for the life of the process, so that actors that the program
// spawns itself find it too. Threads: one, before Starling does anything.
class Registry {
 public:
  using MakeModel = std::function<Result<std::unique_ptr<kernels::Model>>(const OwnSpec& spec)>;
  using OpenData = std::function<Result<OwnData>(const OwnSpec& spec, const std::string& path)>;
  using Rate = std::function<double(const OptimizerSpec&, std::uint64_t step, std::uint64_t steps)>;

  // Adds [model] kind = "own", name = NAME. Without `data` a batch has the numbers of its
  // samples, of which the job file says how many there are; `data` gets [data] path, where
  // this machine has them, or an empty text. An exception of either is reported as an error.
  Registry& model(const std::string& name, MakeModel make, OpenData data = {});
  // Adds [optimizer] kind = "own", name = NAME. Elementwise: kernels/optim/own.h.
  Registry& optimizer(const std::string& name, kernels::OwnOptimizer optimizer);
  // Adds [optimizer] schedule = NAME, with any optimizer.
  Registry& schedule(const std::string& name, Rate rate);

  // Returns the first name that was taken already; empty: none.
  const std::string& taken() const { return taken_; }

 private:
  void note(const char* what, const std::string& name, bool added);
  std::string taken_;
};

// Does all that `starling` does, with this registry: run, worker, coordinator,
// chaos, check and all the others, whose processes are this program again.
// Returns the exit code (`--help` lists them). Call it first in main(), with
// main's arguments; it changes limits and signal masks of the process.
int main(int argc, char** argv, const Registry& registry = {});

}  // namespace starling
