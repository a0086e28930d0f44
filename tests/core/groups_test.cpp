// Groups: which tensors a pattern names, what they are updated with, and what job files say.

#include "core/job/groups.h"

#include <doctest/doctest.h>

#include <string>

#include "tests/core/job_text.h"

namespace starling {
namespace {

const Layout& layout() {
  static const Layout all({{"embed.weight", {4, 8}},
                           {"body.norm.weight", {8}},
                           {"body.norm.bias", {8}},
                           {"head.weight", {8, 4}},
                           {"head.bias", {4}}});
  return all;
}

// "rate/decay" of each tensor.
std::string of_each(const OptimizerSpec& o) {
  const UpdateGroups all = update_groups(o, layout().tensors());
  std::string text;
  for (const std::uint8_t g : all.of_tensor) {
    const auto shown = [](double x) { return std::to_string(x).substr(0, 4); };
    text += (text.empty() ? "" : " ") + shown(all.groups[g].rate_factor) + "/" +
            shown(all.groups[g].weight_decay);
  }
  return text;
}

TEST_CASE("groups: a pattern names what has its form") {
  const std::pair<const char*, const char*> yes[] = {
      {"*", ""},         {"*", "a.b"},          {"*.bias", "head.bias"}, {"h?.w", "h1.w"},
      {"a*b*c", "abbc"}, {"a*b*c", "a.b.b.xc"}, {"head.*", "head."},     {"a", "a"},
      {"**a", "ba"},     {"*a*a*", "aa"}};
  for (const auto& [pattern, name] : yes) CHECK_MESSAGE(matches(pattern, name), pattern);
  const std::pair<const char*, const char*> no[] = {{"", "a"},          {"a", ""},
                                                    {"*.bias", "bias"}, {"h?.w", "h.w"},
                                                    {"a*b*c", "abbd"},  {"head.*", "ahead.x"},
                                                    {"*a*a*", "a"},     {"?", ""}};
  for (const auto& [pattern, name] : no) CHECK_MESSAGE(!matches(pattern, name), pattern);
}

TEST_CASE("groups: without any, what has two dimensions decays") {
  OptimizerSpec o;
  CHECK(of_each(o) == "1.00/0.10 1.00/0.00 1.00/0.00 1.00/0.10 1.00/0.00");
  CHECK(update_groups(o, layout().tensors()).groups == std::vector<UpdateGroup>{{1, 0}, {1, 0.1}});
}

TEST_CASE("groups: the last one that has a key counts, also against a tensor's dimensions") {
  OptimizerSpec o;
  o.groups = {{{"*"}, {}, 0.5}, {{"*.bias", "*norm*"}, {}, 0.0}, {{"head.*"}, 0.25, {}}};
  CHECK(of_each(o) == "1.00/0.50 1.00/0.00 1.00/0.00 0.25/0.50 0.25/0.00");
  o.groups.push_back({{"head.bias"}, 2.0, 0.5});
  CHECK(of_each(o) == "1.00/0.50 1.00/0.00 1.00/0.00 0.25/0.50 2.00/0.50");
  CHECK(check_groups(o, layout().tensors()));
}

TEST_CASE("groups: one that names nothing is told, and too many are") {
  OptimizerSpec o;
  o.groups = {{{"*.bais"}, {}, 0.0}};
  CHECK(check_groups(o, layout().tensors()).error().text() ==
        "no tensor of the model is \"*.bais\", expected a name or pattern of embed.weight, "
        "body.norm.weight, body.norm.bias, ..; [optimizer].groups");
  std::vector<TensorSpec> tensors;
  o.groups.clear();
  for (std::size_t i = 0; i < kGroupsMax - 1; ++i) {
    tensors.push_back({"t" + std::to_string(i), {2}});
    o.groups.push_back({{tensors.back().name}, 0.5 + double(i), {}});
  }
  o.groups.pop_back();
  CHECK(check_groups(o, Layout(tensors).tensors()));
  o.groups.push_back({{tensors.back().name}, 0.25, {}});
  CHECK(check_groups(o, Layout(tensors).tensors()).error().text().find("at most 64") !=
        std::string::npos);
}

TEST_CASE("groups: statistics have no rate and no decay of another group") {
  OptimizerSpec o;
  o.weight_decay = 0.1;
  o.groups = {
      {{"*"}, 0.5, 0.25}, {.tensors = {"body.norm.*"}, .statistics = true}, {{"*"}, 2.0, {}}};
  const UpdateGroups all = update_groups(o, layout().tensors());
  const auto of = [&](std::size_t tensor) { return all.groups[all.of_tensor[tensor]]; };
  CHECK(of(0) == UpdateGroup{2, 0.25});
  CHECK(of(1) == UpdateGroup{1, 0, true});
  CHECK(of(2) == UpdateGroup{1, 0, true});
}

TEST_CASE("groups: job files have them, and hashes") {
  const auto with = [](const std::string& groups) {
    return replaced(kGood, "[data]", groups + "\n[data]");
  };
  const auto one = parse_job(
      with("groups = [{ tensors = [\"*.bias\"], weight_decay = 0.0 },\n"
           "          { tensors = [\"wte\", \"wpe\"], rate_factor = 0.1, weight_decay = 0.5 }]"),
      ".");
  REQUIRE_MESSAGE(one, one.error().text());
  CHECK(one.value().optimizer.groups ==
        std::vector<GroupSpec>{{{"*.bias"}, {}, 0.0}, {{"wte", "wpe"}, 0.1, 0.5}});
  CHECK(parse_job(format_job(one.value()), "/").value() == one.value());
  const auto other =
      parse_job(with("[[optimizer.groups]]\ntensors = [\"*\"]\nrate_factor = 1"), ".");
  REQUIRE_MESSAGE(other, other.error().text());
  CHECK(parse_job(format_job(other.value()), "/").value() == other.value());
  CHECK(state_hash(one.value()) != state_hash(other.value()));
  CHECK(job_hash(one.value()) != job_hash(parse_job(kGood, ".").value()));
  const auto third =
      parse_job(with("groups = [{ tensors = [\"*\"], rate_factor = 1 },\n"
                     "          { tensors = [\"*.running_mean\"], statistics = true }]"),
                ".");
  REQUIRE_MESSAGE(third, third.error().text());
  CHECK(parse_job(format_job(third.value()), "/").value() == third.value());
  CHECK(state_hash(third.value()) != state_hash(other.value()));

  const std::pair<const char*, const char*> cases[] = {
      {"groups = 3", "groups must be an array"},
      {"groups = [3]", "groups must be tables like"},
      {"groups = [{ weight_decay = 0.0 }]", "tensors is missing; [optimizer.groups].tensors"},
      {"groups = [{ tensors = [] }]", "tensors must be at least one"},
      {"groups = [{ tensors = [3] }]", "tensors must be names or patterns like \"*.bias\", is 3"},
      {"groups = [{ tensors = [\"*\"], rate_factor = -1 }]",
       "rate_factor must be a number from 0.0"},
      {"groups = [{ tensors = [\"*\"], weight_decay = true }]", "weight_decay must be a number"},
      {"groups = [{ tensors = [\"*\"], momentum = 1 }]",
       "unknown key `momentum`, known are tensors, rate_factor, weight_decay, "
       "statistics; "
       "[optimizer.groups].momentum"},
      {"groups = [{ tensors = [\"*\"], statistics = 1 }]", "statistics must be true or false"},
      {"groups = [{ tensors = [\"*\"], statistics = true, weight_decay = 0.0 }]",
       "weight_decay does not apply to statistics, which no rate and no decay changes"},
  };
  for (const auto& [groups, text] : cases) {
    const std::string error = error_of(with(groups));
    CHECK_MESSAGE(error.find(text) != std::string::npos, error);
  }
  const std::string adam = replaced(with("groups = [{ tensors = [\"*\"], weight_decay = 0.1 }]"),
                                    "kind = \"adamw\"", "kind = \"adam\"");
  CHECK(error_of(adam).find("weight_decay does not apply to kind \"adam\"") != std::string::npos);
}

}  // namespace
}  // namespace starling
