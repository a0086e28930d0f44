#include "kernels/models/input.h"

#include <algorithm>
#include <string>

namespace starling::kernels {
namespace {

Result<> outside(const char* what, std::int64_t value, std::int64_t end) {
  return Error(Code::kBadInput, std::string(what) + " " + std::to_string(value) +
                                    " in the batch; the model takes 0 to " +
                                    std::to_string(end - 1));
}

}  // namespace

Result<> check(const Input& input, const Batch& batch, std::uint32_t sequences) {
  const std::size_t n = batch.sequences * input.positions;
  if (batch.sequences != sequences)
    return Error(Code::kBadInput, "batch of " + std::to_string(batch.sequences) +
                                      " sequences; the workspace is for " +
                                      std::to_string(sequences));
  const bool whole = batch.targets.size() == n && batch.tokens.size() == (input.features ? 0 : n) &&
                     batch.x.size() == n * input.features;
  if (!whole)
    return Error(Code::kBadInput,
                 "batch of " + std::to_string(batch.sequences) + " sequences with " +
                     std::to_string(batch.tokens.size()) + " tokens, " +
                     std::to_string(batch.x.size()) + " inputs and " +
                     std::to_string(batch.targets.size()) + " targets; expected " +
                     std::to_string(input.features ? 0 : n) + ", " +
                     std::to_string(n * input.features) + " and " + std::to_string(n));
  for (const std::int32_t t : batch.tokens)
    if (t < 0 || t >= input.vocabulary) return outside("token", t, input.vocabulary);
  const auto is_masked = [&](std::int32_t t) { return t == kNotATarget && input.tokens(); };
  for (const std::int32_t t : batch.targets)
    if (!is_masked(t) && (t < 0 || t >= input.classes)) return outside("target", t, input.classes);
  if (std::ranges::all_of(batch.targets, is_masked))
    return Error(Code::kBadInput, "no target is in the batch");
  return ok();
}

std::uint32_t targets_in(const Batch& batch) {
  return static_cast<std::uint32_t>(batch.targets.size() -
                                    std::ranges::count(batch.targets, kNotATarget));
}

}  // namespace starling::kernels
