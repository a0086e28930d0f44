#include "core/formats/job_file.h"

#include <variant>

#include "core/formats/pretrained.h"
#include "core/job/models/from_weights.h"

namespace starling {

Result<> name_base(Job& job) {
  return std::visit(
      [](auto& spec) -> Result<> {
        if constexpr (requires { spec.lora; }) {
          if (!spec.lora.on() || !spec.lora.base.empty()) return ok();
          STARLING_TRY(weights, PretrainedWeights::open(spec.from));
          STARLING_TRY(digest, digest_of_weights(weights, spec));
          spec.lora.base = to_string(digest);
        }
        return ok();
      },
      job.model);
}

Result<Job> load_job(const std::string& path) {
  STARLING_TRY(job, read_job(path));
  if (auto named = name_base(job); !named)
    return std::move(named).error().in("the weights that are adapted; reading " + path);
  return std::move(job);
}

}  // namespace starling
