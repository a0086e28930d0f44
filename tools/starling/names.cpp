#include "tools/starling/names.h"

#include <filesystem>
#include <utility>

#include "core/job/groups.h"
#include "core/job/schedule.h"
#include "core/job/script_words.h"
#include "core/job/words.h"
#include "kernels/models/own.h"
#include "kernels/optim/optimizer.h"

namespace starling::tools {
namespace {

Result<> check_names(const Job& job) {
  STARLING_TRY(kernels::check_optimizers(job));
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

Result<> of_file(Result<> checked, const std::string& file) {
  if (checked) return ok();
  if (is_described_by_script(file))
    return Error(checked.error().code(), in_words_of_script(checked.error().text()));
  return std::move(checked).error().in("reading " + file);
}

}  // namespace

Result<> check_names(const Job& job, const std::string& file) {
  return of_file(check_names(job), file);
}

Result<> check_tensors(const Job& job, const Layout& layout, const std::string& file) {
  return of_file(check_groups(job, layout.tensors()), file);
}

std::string local_remark(const Job& job) {
  const OptimizerSpec& outer = job.optimizer;
  const bool adaptive = outer.kind == OptimizerKind::kAdamW || outer.kind == OptimizerKind::kAdam;
  if (!job.local.on() || (!adaptive && outer.clip == 0)) return {};
  const std::string is =
      adaptive ? std::string("is ") + (outer.kind == OptimizerKind::kAdamW ? "adamw" : "adam")
               : "clips at a norm of " + job_words::number_text(outer.clip);
  return "[optimizer] " + is +
         ", and takes what local steps changed for a gradient: beside [local] it is sgd as a rule, "
         "with peak_rate = 0.7, momentum = 0.9 and no clip";
}

}  // namespace starling::tools
