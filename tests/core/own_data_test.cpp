#include "core/data/own_data.h"

#include <doctest/doctest.h>

#include <span>
#include <string>

#include "core/base/named.h"
#include "core/data/dataset.h"

namespace starling {

// Goal: a model never reads beyond a batch, nor takes a number of one sample for one of another.
// Method: eight samples, of which one has a value less than the others.
TEST_CASE("an application's data: a sample of another size is an error with its number") {
  const auto open = [](const OwnSpec&, const std::string&) -> Result<OwnData> {
    OwnData data;
    data.samples = 8;
    data.append = [](std::uint64_t i, Batch& batch) -> Result<> {
      batch.x.insert(batch.x.end(), i == 5 ? 2 : 3, 1.0f);
      batch.targets.push_back(0);
      return ok();
    };
    return data;
  };
  REQUIRE(Named<OwnDataSource>::add("ragged", {open}));
  Job job;
  job.model = OwnSpec{.name = "ragged"};
  const auto set = Dataset::open(job).value();
  const std::uint64_t whole[] = {0, 1, 7}, ragged[] = {4, 5}, short_alone[] = {5};
  CHECK(set->fill(whole).value().x.size() == 9);
  for (const std::span<const std::uint64_t> samples :
       {std::span<const std::uint64_t>(ragged), std::span<const std::uint64_t>(short_alone)}) {
    const auto refused = set->fill(samples);
    REQUIRE(!refused);
    CHECK(refused.error().code() == Code::kBadInput);
    CHECK(
        refused.error().text() ==
        "sample 5 has 2 values, 0 tokens and 1 targets, expected as many as sample 0, 3 values, 0 "
        "tokens and 1 targets");
  }
}

TEST_CASE("an application's data are told where this machine has them") {
  static std::string told;
  const auto open = [](const OwnSpec&, const std::string& path) -> Result<OwnData> {
    told = path;
    OwnData data;
    data.samples = 1;
    data.append = [](std::uint64_t, Batch&) -> Result<> { return ok(); };
    return data;
  };
  REQUIRE(Named<OwnDataSource>::add("placed", {open}));
  Job job;
  job.model = OwnSpec{.name = "placed"};
  job.data.path = "/here/ratings";
  REQUIRE(Dataset::open(job));
  CHECK(told == "/here/ratings");
}

}  // namespace starling
