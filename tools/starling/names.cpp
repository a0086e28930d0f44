#include "tools/starling/names.h"

#include <filesystem>

#include "core/job/schedule.h"
#include "kernels/models/own.h"
#include "kernels/optim/optimizer.h"

namespace starling::tools {

Result<> check_names(const Job& job) {
  STARLING_TRY(check_schedule(job.optimizer));
  STARLING_TRY(kernels::check_optimizer(job.optimizer));
  if (const auto* own = std::get_if<OwnSpec>(&job.model)) {
    STARLING_TRY(kernels::check_own_model(*own));
  }
  if (const auto* python = std::get_if<PythonSpec>(&job.model)) {
    std::error_code error;
    if (!std::filesystem::is_regular_file(python->script, error))
      return Error(Code::kBadInput, "no script " + python->script + " here; [model].script");
  }
  return ok();
}

}  // namespace starling::tools
