#include "tools/chaos/links.h"

#include <doctest/doctest.h>

#include <chrono>
#include <string>
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

constexpr auto kCut = &faults::kPartition, kApart = &faults::kApart, kSlow = &faults::kSlowLink,
               kFlip = &faults::kCorrupt, kKill = &faults::kKill;

bool soon_heard(const Links& links, const std::vector<std::string>& workers) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!links.hear_one_another(workers))
    if (std::chrono::steady_clock::now() > end) return false;
  return true;
}

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
      {automatic, {kApart}, "", "no netem", true, false, false, "network namespaces"},
      {automatic, {kApart}, "not root", "", false, true, false, "proxy (not root)"},
      {automatic,
       {kApart, kFlip},
       "",
       "",
       true,
       true,
       true,
       "network namespaces, proxy for corrupt"},
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

TEST_CASE("links: workers are apart until each is mended") {
  for (const LinkChoice choice : {LinkChoice::kProxy, LinkChoice::kAuto}) {
    auto made = Links::make(choice, plan_of({kApart}));
    REQUIRE(made);
    Links& links = *made.value();
    const std::vector<std::string> coordinators{links.host() + ":7777"}, both{"one", "two"};
    for (const std::string& worker : both) REQUIRE(links.place(worker, coordinators));
    CHECK(soon_heard(links, both));
    const Witness witness = links.set_apart(both);
    CHECK(links.some_are_apart());
    CHECK_FALSE(links.hear_one_another(both));
    const bool lost = links.text().find("namespaces") != std::string::npos;
    CHECK(witness.seen() == lost);  // the proxy has nothing to hold back yet
    CHECK(bool(witness.tight) == lost);
    if (lost) CHECK(witness.tight());
    links.mend("one");
    CHECK(links.some_are_apart());
    // The next worker of a name has links as they should be.
    REQUIRE(links.place("two", coordinators));
    CHECK_FALSE(links.some_are_apart());
    CHECK(soon_heard(links, both));
    CHECK(links.close().empty());
  }
}

TEST_CASE("a choice of links is one of three words") {
  CHECK(parse_link_choice("auto").value() == LinkChoice::kAuto);
  CHECK(parse_link_choice("namespaces").value() == LinkChoice::kNamespaces);
  CHECK(parse_link_choice("proxy").value() == LinkChoice::kProxy);
  CHECK(parse_link_choice("Proxy").error().code() == Code::kBadInput);
}

}  // namespace starling::chaos
