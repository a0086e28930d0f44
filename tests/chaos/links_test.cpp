#include "tools/chaos/links.h"

#include <doctest/doctest.h>

#include <vector>

namespace starling::chaos {
namespace {

Plan plan_of(const std::vector<const FaultKind*>& kinds) {
  Plan plan;
  for (const FaultKind* kind : kinds) {
    Fault fault;
    fault.kind = kind;
    plan.faults.push_back(fault);
  }
  return plan;
}

constexpr auto kCut = &faults::kPartition, kSlow = &faults::kSlowLink, kFlip = &faults::kCorrupt,
               kKill = &faults::kKill;

}  // namespace

// Goal: each fault of links has exactly one who makes it. Method: a table of what is chosen, what
// the plan has and what the machine can.
TEST_CASE("links: a network where it is of use and can be had, the proxy for the rest") {
  struct Case {
    LinkChoice choice;
    std::vector<const FaultKind*> kinds;
    const char *why_none, *why_no_delay;
    bool network, proxy, network_delays;
    const char* text;
  };
  const auto automatic = LinkChoice::kAuto, namespaces = LinkChoice::kNamespaces,
             proxy = LinkChoice::kProxy;
  const Case cases[] = {
      {automatic, {kKill, kCut}, "", "", true, false, true, "network namespaces"},
      {automatic, {kCut}, "", "no netem", true, false, false, "network namespaces"},
      {automatic, {kCut}, "not root", "", false, true, false, "proxy (not root)"},
      {automatic, {kCut, kSlow}, "", "", true, false, true, "network namespaces"},
      {automatic,
       {kCut, kSlow},
       "",
       "no netem",
       true,
       true,
       false,
       "network namespaces, proxy for slow-link (no netem)"},
      {automatic, {kSlow}, "", "", true, false, true, "network namespaces"},
      {automatic, {kSlow}, "", "no netem", false, true, false, "proxy (no netem)"},
      {automatic, {kFlip}, "", "", false, true, false, "proxy (only it can flip bits)"},
      {automatic,
       {kFlip, kCut, kSlow},
       "",
       "no netem",
       true,
       true,
       false,
       "network namespaces, proxy for corrupt and slow-link (no netem)"},
      {automatic, {kFlip, kCut}, "", "", true, true, true, "network namespaces, proxy for corrupt"},
      {namespaces, {kKill}, "", "", true, false, true, "network namespaces"},
      {namespaces, {kFlip}, "", "", true, true, true, "network namespaces, proxy for corrupt"},
      {proxy, {kCut, kSlow}, "", "", false, true, false, "proxy (as told)"},
  };
  for (const Case& c : cases) {
    const auto means = link_means(c.choice, plan_of(c.kinds), c.why_none, c.why_no_delay);
    CAPTURE(c.text);
    CHECK(means.network == c.network);
    CHECK(means.proxy == c.proxy);
    CHECK(means.network_delays == c.network_delays);
    CHECK(means.text == c.text);
  }
}

TEST_CASE("links are left alone by a plan that has no fault of them") {
  auto links = Links::make(LinkChoice::kAuto, plan_of({kKill}));
  REQUIRE(links);
  CHECK((links.value() == nullptr));
}

TEST_CASE("a choice of links is one of three words") {
  CHECK(parse_link_choice("auto").value() == LinkChoice::kAuto);
  CHECK(parse_link_choice("namespaces").value() == LinkChoice::kNamespaces);
  CHECK(parse_link_choice("proxy").value() == LinkChoice::kProxy);
  CHECK(parse_link_choice("Proxy").error().code() == Code::kBadInput);
}

}  // namespace starling::chaos
