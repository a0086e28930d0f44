#include "core/data/batch.h"

#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>

#include "core/base/check.h"

namespace starling {

Result<Batch> part_of(const Batch& batch, std::uint32_t i, std::uint32_t parts) {
  STARLING_CHECK(i < parts);
  const auto apart = [parts](std::size_t rows) { return rows % parts == 0; };
  if (batch.sequences == 0 || !apart(batch.sequences) || !apart(batch.tokens.size()) ||
      !apart(batch.targets.size()) || !apart(batch.x.size()) || !apart(batch.samples.size()))
    return Error(Code::kBadInput, "a micro-batch of " + std::to_string(batch.sequences) +
                                      " sequences is no " + std::to_string(parts) + " equal parts");
  const auto rows_of = [&](const auto& all) {
    const std::size_t each = all.size() / parts;
    const auto from = all.begin() + static_cast<std::ptrdiff_t>(i * each);
    return std::remove_cvref_t<decltype(all)>(from, from + static_cast<std::ptrdiff_t>(each));
  };
  Batch part;
  part.tokens = rows_of(batch.tokens);
  part.targets = rows_of(batch.targets);
  part.x = rows_of(batch.x);
  part.samples = rows_of(batch.samples);
  part.sequences = batch.sequences / parts;
  part.draw = batch.draw;
  part.draw.micro_batch = MicroBatch(batch.draw.micro_batch.value() * parts + i);
  part.held_out = batch.held_out;
  return part;
}

}  // namespace starling
