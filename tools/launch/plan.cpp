#include "tools/launch/plan.h"

#include <algorithm>

#include "core/base/s3_place.h"
#include "tools/launch/text.h"

namespace starling::tools {
namespace {

Result<> at_least(const char* key, std::uint64_t is, const char* what) {
  if (is >= kEngineWaitMs) return ok();
  return Error(Code::kBadInput, std::string("[elastic].") + key + " is " + std::to_string(is) +
                                    ", and " + what + ", expected " +
                                    std::to_string(kEngineWaitMs) + " (ten minutes) or more");
}

}  // namespace

std::uint32_t keys_for(std::uint32_t workers) {
  return std::clamp<std::uint32_t>(2 * workers, 16, std::max<std::uint32_t>(workers, 4096));
}

std::string store_text(const LaunchPlan& plan) {
  const std::string &checkpoints = plan.job.checkpoint.dir,
                    &data = plan.data.empty() ? plan.job.data.path : plan.data;
  std::string text;
  if (s3::is_place(checkpoints)) text = "The checkpoints are in " + checkpoints;
  if (s3::is_place(data)) text += (text.empty() ? "The data are in " : ", the data in ") + data;
  return text;
}

std::string addresses(const LaunchPlan& plan) {
  std::string all;
  for (const Address& at : plan.coordinators) all += (all.empty() ? "" : ",") + to_string(at);
  return all;
}

std::string begin_lines(const std::string& state, const Job& job, const std::string& between) {
  const char* const anew = job.checkpoint.on() ? "'--new --resume'" : "--new";
  return "new=" + between + "[ -e " + state + " ] || new=" + anew;
}

std::uint64_t wait_s(const Job& job) {
  return job.elastic.coordinator_timeout_ms / 1000;
}

Result<> check_patience(const Job& job) {
  STARLING_TRY(at_least("start_timeout_ms", job.elastic.start_timeout_ms,
                        "the job ends where its workers take longer to begin, as in a queue"));
  return at_least("coordinator_timeout_ms", job.elastic.coordinator_timeout_ms,
                  "workers end where a coordinator takes longer to be started again");
}

}  // namespace starling::tools
