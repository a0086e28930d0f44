#include "actors/worker/paths.h"

#include <cstdlib>
#include <utility>

#include "collectives/nccl/library.h"
#include "kernels/device/emulated.h"
#include "kernels/device/plugin.h"

namespace starling::actors {
namespace {

std::string why_none(const Job& job, PathRule rule) {
  if (rule == PathRule::kHost) return "--path host";
  const bool emulated = job.isa == kernels::kEmulated;
  if (job.isa != kernels::kCuda && !emulated) return "isa is " + job.isa + ", and no GPU's";
  if (emulated && rule == PathRule::kAuto && std::getenv("STARLING_NCCL") == nullptr)
    return "the emulated device has no library of its own; STARLING_NCCL";
  return {};
}

}  // namespace

Result<Paths> open_paths(const Job& job, PathRule rule,
                         std::function<void(const std::string& why, Rank self)> on_stuck) {
  Paths paths;
  paths.why = why_none(job, rule);
  if (paths.why.empty()) {
    auto opened = collectives::open_nccl({.on_stuck = std::move(on_stuck)});
    if (opened)
      paths.library = std::move(opened).value();
    else if (opened.error().code() == Code::kBadInput)
      return std::move(opened).error();
    else
      paths.why = opened.error().text();
  }
  if (rule == PathRule::kDirect && !paths.library)
    return Error(Code::kBadInput, "--path direct, but there is no direct path here: " + paths.why);
  return paths;
}

}  // namespace starling::actors
