// Whether a job that a program has made keeps the rules of job files.

#include <utility>

#include "core/job/job.h"

namespace starling {
namespace {

// Cuts the line from "[job].steps, line 4": it is that of a text which the user has not seen.
std::string without_line(std::string text) {
  const auto at = text.rfind(", line ");
  if (at != std::string::npos && text.find_first_not_of("0123456789", at + 7) == std::string::npos)
    text.erase(at);
  return text;
}

}  // namespace

Result<> validate(const Job& job) {
  auto read = parse_job(format_job(job), "/");
  if (!read) return Error(Code::kBadInput, without_line(read.error().text()));
  return ok();
}

Result<> validate_training(Job job) {
  if (job.name.empty()) job.name = "embedded";
  job.model = SyntheticSpec{};
  job.data = {};
  job.evaluate = {};
  return validate(job);
}

}  // namespace starling
