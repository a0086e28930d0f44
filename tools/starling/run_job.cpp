#include "tools/starling/run_job.h"

#include <ctime>
#include <filesystem>
#include <fstream>
#include <tuple>

#include "core/formats/job_file.h"
#include "core/formats/storage.h"
#include "core/job/script_words.h"
#include "tools/starling/names.h"
#include "tools/starling/resume.h"

namespace starling::tools {
namespace {

namespace fs = std::filesystem;

// Turns "steps must be .., is 0; [job].steps" into an error of --steps 0.
std::string named_as_option(std::string text, const RunOptions& options) {
  const std::tuple<bool, const char*, const char*> given[] = {
      {options.steps.has_value(), "[job].steps", "--steps"},
      {options.seed.has_value(), "[job].seed", "--seed"},
      {options.replicas.has_value(), "[job].replicas", "--replicas"},
      {options.lease_ms.has_value(), "[elastic].lease_ms", "--lease-ms"},
      {options.peak_rate.has_value(), "[optimizer].peak_rate", "--peak-rate"},
  };
  for (const auto& [said, key, option] : given)
    if (said && text.ends_with(std::string("; ") + key))
      return text.substr(0, text.size() - std::string(key).size()) + option;
  return text;
}

}  // namespace

Result<Job> job_to_run(const RunOptions& options) {
  STARLING_TRY(job, load_job(options.job));
  if (options.steps) job.steps = *options.steps;
  if (options.seed) job.seed = *options.seed;
  if (options.lease_ms) job.elastic.lease_ms = *options.lease_ms;
  if (options.replicas) job.replicas = *options.replicas;
  if (options.peak_rate) job.optimizer.peak_rate = *options.peak_rate;
  const bool of_script = kind_of(job.model).is_script;
  if (!options.checkpoints.empty() && !job.checkpoint.on())
    return Error(Code::kBadInput,
                 of_script ? "--checkpoints needs checkpoint= in the script's starling.train()"
                           : "--checkpoints needs a [checkpoint] section in " + options.job);
  if (!options.checkpoints.empty()) {
    STARLING_TRY(dir, storage_named(options.checkpoints));
    job.checkpoint.dir = std::move(dir);
  }
  // An option's value is checked as the file's is, and the error names the option.
  if (auto valid = validate(job); !valid) {
    const std::string text = named_as_option(valid.error().text(), options);
    return Error(Code::kBadInput,
                 is_described_by_script(options.job) ? in_words_of_script(text) : text);
  }
  STARLING_TRY(check_names(job, options.job));
  if (options.resume)
    return job_to_go_on(std::move(job), {options.steps.has_value(), options.peak_rate.has_value()});
  return job;
}

std::string default_folder(const Job& job) {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%d-%H%M%S", &utc);
  return "runs/" + job.name + "-" + text;
}

Result<> write_job(const Job& job, const std::string& path) {
  std::ofstream file(path);
  file << format_job(job);
  file.close();
  if (!file) return Error(Code::kBadInput, "cannot write " + path);
  return ok();
}

}  // namespace starling::tools
