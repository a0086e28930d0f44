#include "core/job/lora_reader.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <variant>

namespace starling {
namespace {

using job_words::Section;
using job_words::shown;

constexpr std::size_t kTargetsMax = 64;
constexpr double kAlphaMax = 1e6;

template <class Spec>
concept TakesAdapters = requires(Spec spec) {
  spec.lora;
  Spec::kModules;
};

std::string listed(std::span<const std::string_view> names) {
  std::string all;
  for (const std::string_view name : names)
    all += (all.empty() ? "\"" : ", \"") + std::string(name) + "\"";
  return all;
}

void read_targets(Section& s, std::span<const std::string_view> modules,
                  std::span<const std::string_view> usual, LoraSpec& lora) {
  const std::string expected =
      "a list of some of " + listed(modules) + ", or their ends: of all layers";
  if (const toml::node* const node = s.node("targets"); node && !node->is_array())
    return s.expected("targets", *node, expected);
  const toml::array* const list = s.array("targets", false, kTargetsMax);
  if (list == nullptr) {
    lora.targets.assign(usual.begin(), usual.end());
  } else {
    for (const toml::node& node : *list) {
      const auto* const target = node.as_string();
      const bool fits = target && std::ranges::any_of(modules, [&](std::string_view module) {
                          return module == target->get() || module.ends_with("." + target->get());
                        });
      if (!fits) return s.expected("targets", node, expected);
      lora.targets.push_back(target->get());
    }
    if (lora.targets.empty()) s.wrong("targets", "targets must name a module at least");
  }
  std::ranges::sort(lora.targets);
  const auto twice = std::ranges::unique(lora.targets);
  lora.targets.erase(twice.begin(), twice.end());
}

template <class Spec>
void read_lora_of(Section& s, Spec& spec) {
  LoraSpec& lora = spec.lora;
  s.integer("rank", lora.rank, 1, kLoraRankMax, true);
  lora.alpha = lora.rank;
  s.number("alpha", lora.alpha, 0, kAlphaMax, /*above=*/true);
  read_targets(s, Spec::kModules, Spec::kLoraTargets, lora);
  s.text("base", lora.base, 32, false);
  s.finish();
  if (!s.good()) return;
  const bool digest = lora.base.size() == 32 &&
                      lora.base.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!lora.base.empty() && !digest)
    return s.wrong("base", "base must be 32 hex digits, is " + shown(lora.base));
  if (spec.from.empty()) return s.wrong("rank", kLacksBase);
}

}  // namespace

bool lacks_base(const toml::table& root) {
  const auto kind = root["model"]["kind"].value<std::string>();
  const bool takes_adapters = std::ranges::any_of(all_kinds(), [&](const ModelSpec& each) {
    return kind == kind_of(each).word &&
           std::visit(
               [](const auto& spec) { return TakesAdapters<std::remove_cvref_t<decltype(spec)>>; },
               each);
  });
  return takes_adapters && root["lora"].is_table() && !root["model"]["from"];
}

void read_lora(Section s, Job& job) {
  if (!s.there()) return;
  std::visit(
      [&](auto& spec) {
        if constexpr (TakesAdapters<std::remove_reference_t<decltype(spec)>>)
          read_lora_of(s, spec);
        else
          s.refuse({"rank", "alpha", "targets", "base"},
                   "to a model of kind \"" + std::string(spec.kKind.word) + "\"");
      },
      job.model);
  s.finish();
}

}  // namespace starling
