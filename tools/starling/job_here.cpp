#include "tools/starling/job_here.h"

#include <filesystem>
#include <utility>

#include "core/base/s3_place.h"
#include "core/formats/storage.h"
#include "core/job/moved_job.h"
#include "core/job/script_words.h"

namespace starling::tools {
namespace {

// Says where the weights that training begins with are on this machine.
Result<> place_weights(const WorkerCommand& command, const std::optional<Job>& own_job, Job& job) {
  const bool trained = !weights_of(job.model).empty();
  if (trained && own_job) set_weights(job.model, weights_of(own_job->model));
  if (command.weights.empty()) return ok();
  if (!trained) return bad_input("--weights is where [model].from is here, the job has none");
  std::error_code error;
  set_weights(job.model, std::filesystem::absolute(command.weights, error).string());
  return ok();
}

// The same of a script.
Result<> place_script(const WorkerCommand& command, const Job& job, PythonSpec& python) {
  std::error_code error;
  if (!command.script.empty())
    python.script = std::filesystem::absolute(command.script, error).string();
  if (!command.arguments.empty()) {
    Job mine = job;
    std::get<PythonSpec>(mine.model).arguments = command.arguments;
    if (const std::string differences = job_differences(mine, job); !differences.empty())
      return bad_input("every process of a job has the arguments of its script: " + differences);
  }
  if (std::filesystem::is_regular_file(python.script, error)) return ok();
  return bad_input("no script " + python.script +
                   " here; --script says where the job's script lies");
}

}  // namespace

Result<Job> job_here(const WorkerCommand& command, const std::optional<Job>& own_job,
                     const std::string& text) {
  std::error_code error;
  std::string data = own_job ? own_job->data.path : "";
  if (!command.data.empty())
    data = s3::is_place(command.data) ? command.data
                                      : std::filesystem::absolute(command.data, error).string();
  STARLING_TRY(job, parse_moved_job(text, data));
  if (own_job) {
    const std::string differences = job_differences(*own_job, job);
    if (!differences.empty())
      return bad_input("this worker's job file differs from the group's: " + differences + "; " +
                       name_of_job(command.job, job));
    job.data.cache = own_job->data.cache;
    job.data.cache_bytes = own_job->data.cache_bytes;
    if (auto* python = std::get_if<PythonSpec>(&job.model))
      python->script = std::get<PythonSpec>(own_job->model).script;
    if (job.checkpoint.on() && own_job->checkpoint.on())
      job.checkpoint.dir = own_job->checkpoint.dir;
  }
  // A member that cannot write keeps every checkpoint from being complete.
  if (job.checkpoint.on()) {
    STARLING_TRY(may_write(job.checkpoint.dir));
  }
  STARLING_TRY(place_weights(command, own_job, job));
  auto* const python = std::get_if<PythonSpec>(&job.model);
  if (python != nullptr) {
    STARLING_TRY(place_script(command, job, *python));
  } else if (!command.script.empty()) {
    return bad_input("--script is of a Python model, the job has none");
  }
  return std::move(job);
}

}  // namespace starling::tools
