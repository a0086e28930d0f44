// Links that do not stand: whom the next plan leaves out. Workers n with nonce n, by rank.

#include "elastic/membership/links.h"

#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <vector>

namespace starling::elastic {
namespace {

// What worker `from` reports: at version 5, or without a state.
Reporter reporter(std::uint64_t from, std::vector<std::uint64_t> broken, bool joiner = false,
                  LinkFault fault = LinkFault::kEnded) {
  Reporter r;
  r.who = {from, Nonce(from)};
  r.report.version = joiner ? kNoVersion : Version{5};
  for (const std::uint64_t n : broken) r.report.broken.push_back({n, Nonce(n)});
  r.report.fault = fault;
  return r;
}

std::string names(const std::vector<Reporter>& reporters) {
  std::string nonces;
  for (const Reporter& r : reporters) nonces += std::to_string(r.who.nonce);
  return nonces;
}

struct FiveKnown {
  FiveKnown() {
    group.apply(JobStarted{});
    for (const std::uint64_t n : {1, 2, 3, 4, 5}) {
      Joined joined;
      joined.join.who = {0, Nonce(n)};
      joined.join.name = "w";
      joined.join.host = "host";
      joined.join.port = 9;
      group.apply(joined);
    }
  }
  // The others can do without all but these.
  std::string leave_out_one(std::vector<Reporter> reporters, std::string needed = {},
                            bool ran = false) {
    const auto suffice = [&](const std::vector<Reporter>& others) {
      const std::string left = names(others);
      return needed.find_first_not_of(left) == std::string::npos;
    };
    apart = links.leave_out_one(reporters, ran, suffice, warnings);
    return names(reporters);
  }

  const LeaderConfig config;
  Group group;
  Roster roster{config, group, 1};
  Links links{roster};
  std::vector<std::string> warnings;
  std::optional<Links::Apart> apart;
};

TEST_CASE("links: one of a pair that breaks two plans in a row is left out") {
  FiveKnown k;
  const std::vector<Reporter> broken{reporter(1, {3}), reporter(2, {}), reporter(3, {})};
  CHECK(k.leave_out_one(broken) == "123");
  CHECK(k.leave_out_one(broken) == "12");  // of equals the higher rank
}

TEST_CASE("links: the one with more broken links goes, whatever its rank") {
  FiveKnown k;
  const std::vector<Reporter> broken{reporter(1, {2, 3}), reporter(2, {}), reporter(3, {})};
  k.leave_out_one(broken);
  CHECK(k.leave_out_one(broken) == "23");
}

TEST_CASE("links: nobody is left out whose state the others lack") {
  FiveKnown k;
  const std::vector<Reporter> broken{reporter(1, {2}), reporter(2, {})};
  k.leave_out_one(broken);
  CHECK(k.leave_out_one(broken, /*needed=*/"12") == "12");
}

TEST_CASE("links: if the others lack something of the one the other one is left out") {
  FiveKnown k;
  const std::vector<Reporter> broken{reporter(1, {2, 3}), reporter(2, {}), reporter(3, {})};
  k.leave_out_one(broken);
  CHECK(k.leave_out_one(broken, /*needed=*/"1") == "13");
  CHECK(k.leave_out_one(broken, /*needed=*/"12") == "12");
}

// Since when two have not connected to each other that both have to stay.
TEST_CASE("links: two apart count from the first plan in which their link never stood") {
  const std::vector<Reporter> apart{reporter(1, {}), reporter(2, {3}, false, LinkFault::kUnreached),
                                    reporter(3, {1})};
  const std::vector<Reporter> ended{reporter(1, {}), reporter(2, {3}), reporter(3, {2})};
  FiveKnown k;
  const auto at = [&](std::uint64_t now_ms, const std::vector<Reporter>& reporters,
                      bool ran = false) {
    k.roster.look(now_ms);
    CHECK(k.leave_out_one(reporters, /*needed=*/"23", ran) == "123");
    return k.apart ? k.apart->names + " " + std::to_string(k.apart->since_ms) : "";
  };
  CHECK(at(100, apart) == "");  // it may have been a moment
  CHECK(at(200, apart) == "w and w 100");
  CHECK(at(300, apart) == "w and w 100");
  CHECK(k.warnings.size() == 1);
  SUBCASE("not through a plan in which it stood") {
    CHECK(at(400, ended) == "");
    CHECK(at(500, apart) == "");
    CHECK(at(600, apart) == "w and w 500");
  }
  SUBCASE("not through an epoch that ran") {
    CHECK(at(400, apart, /*ran=*/true) == "");
    CHECK(at(500, apart) == "w and w 400");
  }
  SUBCASE("not through a loss") {
    k.links.forget();
    CHECK(at(400, apart) == "");
  }
  SUBCASE("not if one can be spared") {
    CHECK(k.leave_out_one(apart, /*needed=*/"3") == "13");
    CHECK_FALSE(k.apart.has_value());
  }
}

TEST_CASE("links: another pair, or a loss in between, begins anew") {
  FiveKnown k;
  const std::vector<Reporter> first{reporter(1, {2}), reporter(2, {}), reporter(3, {})};
  const std::vector<Reporter> other{reporter(1, {3}), reporter(2, {}), reporter(3, {})};
  k.leave_out_one(first);
  CHECK(k.leave_out_one(other) == "123");
  k.links.forget();
  CHECK(k.leave_out_one(other) == "123");
}

TEST_CASE("links: a joiner that somebody names is left out at once, by nobody's but others' word") {
  FiveKnown k;
  std::vector<std::string> warnings;
  std::vector<Reporter> named{reporter(1, {3}), reporter(2, {}), reporter(3, {}, /*joiner=*/true)};
  CHECK(k.links.leave_out_joiners(named, warnings));
  CHECK(names(named) == "12");
  CHECK(warnings.empty());  // the link had stood
  std::vector<Reporter> names_others{reporter(1, {}), reporter(3, {1}, /*joiner=*/true)};
  CHECK_FALSE(k.links.leave_out_joiners(names_others, warnings));
  CHECK(names(names_others) == "13");
}

// Two that a switch keeps apart say so; what the others saw end followed from it.
TEST_CASE("links: ends of file say nothing beside a link that is known to be bad") {
  for (const LinkFault fault : {LinkFault::kSilent, LinkFault::kUnreached}) {
    FiveKnown k;
    const std::vector<Reporter> apart{reporter(1, {4}), reporter(2, {3}, false, fault),
                                      reporter(3, {2}, false, fault), reporter(4, {1})};
    k.leave_out_one(apart);
    CHECK(k.leave_out_one(apart) == "124");
    REQUIRE(k.warnings.size() == 1);
    CHECK(k.warnings[0].find("w is left out: ") == 0);
    CHECK(k.links.reason({3, Nonce(3)}) == k.warnings[0].substr(15));
    CHECK(k.links.reason({2, Nonce(2)}).empty());
  }
}

TEST_CASE("links: one that does not report is told of if its connections were silent") {
  FiveKnown k;
  const std::vector<Reporter> reporters{reporter(1, {3}, false, LinkFault::kSilent),
                                        reporter(2, {1})};
  const std::vector<Incarnation> missing{{3, Nonce(3)}, {4, Nonce(4)}};
  k.links.tell_silent(missing, reporters, k.warnings);
  k.links.tell_silent(missing, reporters, k.warnings);  // once
  REQUIRE(k.warnings.size() == 1);
  CHECK(k.warnings[0].find("nothing comes over its connections") != std::string::npos);
  CHECK_FALSE(k.links.reason({3, Nonce(3)}).empty());
  CHECK(k.links.reason({4, Nonce(4)}).empty());
}

TEST_CASE("links: a joiner's own word counts of a link that never stood") {
  FiveKnown k;
  std::vector<Reporter> reporters{reporter(1, {}), reporter(2, {}),
                                  reporter(3, {2}, /*joiner=*/true, LinkFault::kUnreached)};
  CHECK(k.links.leave_out_joiners(reporters, k.warnings));
  CHECK(names(reporters) == "12");
  // Of two joiners the one that is named.
  std::vector<Reporter> both{reporter(1, {}), reporter(2, {}, /*joiner=*/true),
                             reporter(3, {2}, /*joiner=*/true, LinkFault::kUnreached)};
  CHECK(k.links.leave_out_joiners(both, k.warnings));
  CHECK(names(both) == "13");
}

TEST_CASE("links: of a fresh plan whoever cannot be reached is left out, and nobody else") {
  struct Case {
    const char* name;
    std::vector<Reporter> reporters;
    std::string left;
  };
  const auto never = [](std::uint64_t from, std::vector<std::uint64_t> peers) {
    return reporter(from, std::move(peers), /*joiner=*/true, LinkFault::kUnreached);
  };
  const auto ended = [](std::uint64_t from, std::vector<std::uint64_t> peers) {
    return reporter(from, std::move(peers), /*joiner=*/true);
  };
  const Case cases[] = {
      {"nothing is known", {ended(1, {}), ended(2, {}), ended(3, {})}, "123"},
      {"connections ended", {ended(1, {2}), ended(2, {1}), ended(3, {1})}, "123"},
      {"the second one's address is wrong", {never(1, {2}), ended(2, {3}), ended(3, {1})}, "13"},
      {"the third one does not answer", {never(1, {3}), never(2, {3}), never(3, {1})}, "12"},
      {"two", {never(1, {2}), ended(2, {}), never(3, {4}), ended(4, {})}, "13"},
      {"nobody reaches anybody", {never(1, {2}), never(2, {3}), never(3, {1})}, "1"},
      {"needed, by all", {never(1, {5}), never(3, {5}), never(5, {1})}, "135"},
      {"needed, and another pair",
       {never(1, {5}), never(2, {3}), never(3, {5}), ended(5, {})},
       "125"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    FiveKnown k;
    std::vector<Reporter> reporters = c.reporters;
    const bool needed = names(reporters).find('5') != std::string::npos;
    const auto suffice = [&](const std::vector<Reporter>& others) {
      return !needed || names(others).find('5') != std::string::npos;
    };
    k.links.leave_out_unreached(reporters, suffice, k.warnings);
    CHECK(names(reporters) == c.left);
    CHECK(k.warnings.size() == c.reporters.size() - c.left.size());
  }
}

struct Unreached : FiveKnown {
  // A joining life of "w" is left out, as worker 1 could not connect to it.
  void left_out(std::uint64_t joiner) {
    std::vector<Reporter> reporters{reporter(1, {joiner}, /*joiner=*/false, LinkFault::kUnreached),
                                    reporter(joiner, {}, /*joiner=*/true)};
    links.leave_out_joiners(reporters, warnings);
  }
};

TEST_CASE("links: after three lives that nobody could connect to the next is refused, once") {
  Unreached k;
  for (const std::uint64_t joiner : {2, 3, 3}) k.left_out(joiner);  // 3 is one life
  CHECK(k.warnings ==
        std::vector<std::string>(2, "w is left out: others cannot connect to it at host:9"));
  CHECK(k.links.entry("w") == Links::Entry::kFree);
  k.left_out(4);
  CHECK(k.links.entry("w") == Links::Entry::kRefused);
  CHECK(k.links.entry("w") == Links::Entry::kFree);
}

TEST_CASE("links: a name that others once connected to is not refused, it waits") {
  Unreached k;
  k.links.reached("w");
  for (const std::uint64_t joiner : {2, 3}) k.left_out(joiner);
  CHECK(k.links.entry("w") == Links::Entry::kFree);
  k.left_out(4);
  SUBCASE("each time longer") {
    CHECK(k.links.entry("w") == Links::Entry::kLater);
    k.roster.look(10001);
    CHECK(k.links.entry("w") == Links::Entry::kFree);
    k.left_out(5);
    k.roster.look(30000);
    CHECK(k.links.entry("w") == Links::Entry::kLater);
    k.roster.look(30001);
    CHECK(k.links.entry("w") == Links::Entry::kFree);
  }
  SUBCASE("until one comes through") {
    k.links.reached("w");
    CHECK(k.links.entry("w") == Links::Entry::kFree);
  }
}

}  // namespace
}  // namespace starling::elastic
