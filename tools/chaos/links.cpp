#include "tools/chaos/links.h"

#include <algorithm>
#include <chrono>

#include "tools/chaos/fronts.h"

namespace starling::chaos {
namespace {

constexpr std::chrono::milliseconds kProbe{150};  // for a packet to arrive, if it can

// Returns whether the plan has faults that a network makes better than the proxy.
bool loses_packets(const Plan& plan) {
  return kind_with(plan, FaultKind::Link::kCut) || kind_with(plan, FaultKind::Link::kApart);
}

Witness not_done(const std::string& what, const Error& error) {
  return {what + " (" + error.text() + ")", [] { return false; }, {}};
}

}  // namespace

Result<LinkChoice> parse_link_choice(const std::string& word) {
  if (word == "auto") return LinkChoice::kAuto;
  if (word == "namespaces") return LinkChoice::kNamespaces;
  if (word == "proxy") return LinkChoice::kProxy;
  return Error(Code::kBadInput, "--links is " + word + "; expected auto, namespaces or proxy");
}

LinkMeans link_means(LinkChoice choice, const Plan& plan, const std::string& why_none,
                     const std::string& why_no_delay) {
  using enum FaultKind::Link;
  const FaultKind *delays = kind_with(plan, kDelay), *flips = kind_with(plan, kFlip);
  const bool cuts = loses_packets(plan);
  LinkMeans means;
  const bool there = choice != LinkChoice::kProxy && why_none.empty();
  const bool of_use = cuts || (delays && why_no_delay.empty());
  means.network = there && (choice == LinkChoice::kNamespaces || of_use);
  means.network_delays = means.network && why_no_delay.empty();
  const bool proxy_delays = delays && !means.network_delays;
  means.proxy = flips || proxy_delays || (cuts && !means.network);
  if (means.network) {
    means.text = "network namespaces";
    if (flips) means.text += std::string(", proxy for ") + flips->word;
    if (proxy_delays)
      means.text +=
          std::string(flips ? " and " : ", proxy for ") + delays->word + " (" + why_no_delay + ")";
  } else if (means.proxy) {
    const std::string why = choice == LinkChoice::kProxy ? "as told"
                            : !why_none.empty()          ? why_none
                            : delays                     ? why_no_delay
                                                         : "only it can flip bits";
    means.text = "proxy (" + why + ")";
  }
  return means;
}

Result<std::unique_ptr<Links>> Links::make(LinkChoice choice, const Plan& plan) {
  auto links = std::make_unique<Links>();
  std::string why_none, why_no_delay;
  const bool asked = choice == LinkChoice::kNamespaces;
  const bool of_use = loses_packets(plan) || kind_with(plan, FaultKind::Link::kDelay);
  if (!asked && !disturbs_links(plan)) return std::unique_ptr<Links>();
  if (asked || (choice == LinkChoice::kAuto && of_use)) {
    auto network = Network::make();
    if (!network && asked)
      return Error(Code::kBadInput, "--links namespaces: " + network.error().text() +
                                        "; expected root and iproute2, or --links auto");
    if (network) {
      links->network_ = std::move(network).value();
      why_no_delay = links->network_->why_no_delay();
    } else {
      why_none = network.error().text();
    }
  }
  links->means_ = link_means(choice, plan, why_none, why_no_delay);
  if (!links->means_.network) links->network_.reset();
  if (links->network_) links->means_.text += "; " + links->network_->text();
  if (links->means_.proxy) {
    STARLING_TRY(proxy, Proxy::start(links->host()));
    links->proxy_ = std::move(proxy);
  }
  return links;
}

std::string Links::host() const {
  return network_ ? network_->host() : "127.0.0.1";
}

Result<Links::Place> Links::place(const std::string& worker,
                                  const std::vector<std::string>& coordinators) {
  apart_.erase(worker);
  Network::Home home;
  if (network_) {
    STARLING_TRY(made, network_->home(worker));
    home = made;
  }
  if (proxy_) {
    STARLING_TRY(arguments, addresses_behind(*proxy_, worker, coordinators, home.address));
    return Place{std::move(arguments), home.netns};
  }
  std::string join;
  for (const std::string& address : coordinators) join += (join.empty() ? "" : ",") + address;
  return Place{{"--join", join, "--host", home.address}, home.netns};
}

std::string Links::address_of(const std::string& worker) const {
  return network_ ? network_->address_of(worker) : std::string();
}

void Links::set_id(const std::string& worker, std::uint64_t id) {
  if (proxy_) proxy_->set_id(worker, id);
}

Witness Links::cut(const std::string& worker) {
  if (network_) {
    const std::string what = "packets from " + worker + " are lost, and it gets none";
    if (auto done = network_->cut(worker); !done) return not_done(what, done.error());
    const auto loss = [this, worker] { return network_->loss(worker); };
    return {what,
            [loss] {
              const auto now = loss();
              return now.lost > 0 && now.passed == 0;
            },
            [loss] { return loss().passed == 0; }};
  }
  const auto held = [this, worker] { return counts(worker).held; };
  const auto before = held();
  proxy_->set(worker, {.cut = true});
  return {"bytes from or for " + worker + " are held back", [=] { return held() > before; }, {}};
}

Witness Links::set_apart(const std::vector<std::string>& workers) {
  std::string names;
  for (const std::string& worker : workers) names += (names.empty() ? "" : ", ") + worker;
  apart_.insert(workers.begin(), workers.end());
  if (network_) {
    const std::string what = "no packet passes between " + names;
    for (const std::string& worker : workers)
      if (auto done = network_->set_apart(worker, true); !done) return not_done(what, done.error());
    const auto silent = [this, workers] {
      const auto heard = network_->heard(workers, kProbe);
      return heard && heard.value() == 0;
    };
    return {what, [first = silent()] { return first; }, silent};
  }
  const auto held = [this, workers] {
    std::vector<std::uint64_t> bytes;
    for (const std::string& worker : workers) bytes.push_back(counts(worker).held);
    return bytes;
  };
  const auto before = held();
  for (const std::string& worker : workers) proxy_->set(worker, {.apart = true});
  return {"bytes between " + names + " are held back",
          [=] {
            const auto now = held();
            for (std::size_t i = 0; i < now.size(); ++i)
              if (now[i] <= before[i]) return false;
            return true;
          },
          {}};
}

bool Links::hear_one_another(const std::vector<std::string>& workers) const {
  if (!network_)
    return std::none_of(workers.begin(), workers.end(),
                        [&](const std::string& worker) { return apart_.count(worker) > 0; });
  const auto heard = network_->heard(workers, kProbe);
  return heard && heard.value() == workers.size() * (workers.size() - 1);
}

Witness Links::delay(const std::string& worker, double seconds) {
  if (means_.network_delays) {
    const std::string what = "packets for " + worker + " are late";
    if (auto done = network_->delay(worker, seconds); !done) return not_done(what, done.error());
    return {what, [this, worker] { return network_->delayed(worker) > 0; }, {}};
  }
  const auto delayed = [this, worker] { return counts(worker).delayed; };
  const auto before = delayed();
  proxy_->set(worker, {.cut = false, .delay_s = seconds});
  return {"bytes from or for " + worker + " are late", [=] { return delayed() > before; }, {}};
}

void Links::mend(const std::string& worker) {
  apart_.erase(worker);
  // An error here shows later: the worker neither goes on nor comes back.
  if (network_) static_cast<void>(network_->home(worker));
  if (proxy_) proxy_->set(worker, {});
}

void Links::flip(const std::string& worker) {
  proxy_->flip(worker);
}

LinkCounts Links::counts(const std::string& worker) const {
  return proxy_ ? proxy_->counts(worker) : LinkCounts{};
}

std::vector<std::string> Links::close() {
  proxy_.reset();
  return network_ ? network_->close() : std::vector<std::string>();
}

}  // namespace starling::chaos
