#include "core/data/own_data.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <optional>
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
    data.identity = {1, 1};  // no other sample is read before a batch has it
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

// Opens `samples` samples, of which number `other` is another one than usual.
Result<std::unique_ptr<Dataset>> with_other(std::uint64_t samples, std::uint64_t other,
                                            Digest identity = {}) {
  static std::uint64_t names = 0;
  const auto open = [=](const OwnSpec&, const std::string&) -> Result<OwnData> {
    return OwnData{samples, identity, [=](std::uint64_t i, Batch& batch) -> Result<> {
                     batch.x.push_back(float(i == other ? 0 : i + 1));
                     batch.targets.push_back(0);
                     return ok();
                   }};
  };
  const std::string name = "compared-" + std::to_string(++names);
  REQUIRE(Named<OwnDataSource>::add(name, {open}));
  Job job;
  job.model = OwnSpec{.name = name};
  return Dataset::open(job);
}

// Goal: two copies of the data that differ in one sample differ in identity or content, though the
// application gives no identity.
// Method: 1,000 samples, of which 256 are drawn; one is another one, drawn or not.
TEST_CASE("an application's data: without an identity samples are compared") {
  const auto always = [] { return true; };
  const auto same = with_other(1000, 1000).value(), again = with_other(1000, 1000).value();
  CHECK(same->identity() == again->identity());
  CHECK(same->identity() != Digest{});
  CHECK(same->content(always) == again->content(always));
  CHECK(with_other(999, 1000).value()->identity() != same->identity());
  std::uint64_t drawn = 0;
  for (std::uint64_t i = 0; i < 1000; i += 7) {
    const auto other = with_other(1000, i).value();
    drawn += other->identity() != same->identity();
    CHECK(other->content(always) != same->content(always));
  }
  CHECK(drawn > 20);
  CHECK(drawn < 60);
  CHECK(same->content([] { return false; }) == std::nullopt);
  // All of few are drawn.
  for (const std::uint64_t samples : {1, 2, 255, 256})
    CHECK(with_other(samples, samples - 1).value()->identity() !=
          with_other(samples, samples).value()->identity());
}

TEST_CASE("an application's data: with an identity no sample is compared") {
  const Digest given{1, 2};
  const auto one = with_other(1000, 0, given).value(), other = with_other(1000, 1, given).value();
  CHECK(one->identity() == given);
  CHECK(one->content([] { return true; }) == other->content([] { return true; }));
}

TEST_CASE("an application's data: samples that are others when they are read again are refused") {
  const auto open = [](const OwnSpec&, const std::string&) -> Result<OwnData> {
    return OwnData{
        10, {}, [n = std::make_shared<int>(0)](std::uint64_t i, Batch& batch) -> Result<> {
          batch.x.push_back(i == 3 ? float(++*n) : 1.0f);
          return ok();
        }};
  };
  REQUIRE(Named<OwnDataSource>::add("unsteady", {open}));
  Job job;
  job.model = OwnSpec{.name = "unsteady"};
  const auto refused = Dataset::open(job);
  REQUIRE(!refused);
  CHECK(refused.error().text() ==
        "sample 3 is another one when it is read again, expected the same each time");
}

// Goal: what was changed while the job ran is not said to be the data that it began with.
TEST_CASE("an application's data: samples that change are seen in the last step") {
  static float value = 1;
  const auto open = [](const OwnSpec&, const std::string&) -> Result<OwnData> {
    return OwnData{10, {}, [](std::uint64_t, Batch& batch) -> Result<> {
                     batch.x.push_back(value);
                     return ok();
                   }};
  };
  REQUIRE(Named<OwnDataSource>::add("changing", {open}));
  Job job;
  job.model = OwnSpec{.name = "changing"};
  job.steps = 5;
  const auto set = Dataset::open(job).value();
  value = 2;
  CHECK(set->micro_batch(3, 0));
  const auto refused = set->micro_batch(4, 0);
  REQUIRE(!refused);
  CHECK(refused.error().text().find("were changed while they were in use") != std::string::npos);
}

}  // namespace starling
