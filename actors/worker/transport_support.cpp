#include "actors/worker/transport_support.h"

#include <utility>

#include "collectives/nccl/library.h"
#include "core/base/environment.h"
#include "kernels/device/emulated.h"
#include "kernels/device/plugin.h"

namespace starling::actors {
namespace {

std::string why_none(const Job& job, TransportChoice rule) {
  if (rule == TransportChoice::kTcp) return "--transport tcp";
  const bool emulated = job.isa == kernels::kEmulated;
  if (job.isa != kernels::kCuda && !emulated) return "isa is " + job.isa + ", and no GPU's";
  if (emulated && rule == TransportChoice::kAuto && !environment().is_set(EnvVar::kNccl))
    return "the emulated device has no library of its own; STARLING_NCCL";
  return {};
}

}  // namespace

Result<TransportSupport> open_transport(
    const Job& job, TransportChoice rule,
    std::function<void(const std::string& why, Rank self)> on_stuck) {
  TransportSupport transports;
  transports.why = why_none(job, rule);
  if (transports.why.empty()) {
    auto opened = collectives::open_nccl({.on_stuck = std::move(on_stuck)});
    if (opened)
      transports.library = std::move(opened).value();
    else if (opened.error().code() == Code::kBadInput)
      return std::move(opened).error();
    else
      transports.why = opened.error().text();
  }
  if (rule == TransportChoice::kNccl && !transports.library)
    return Error(Code::kBadInput,
                 "--transport nccl, but there is no device transport here: " + transports.why);
  return transports;
}

}  // namespace starling::actors
