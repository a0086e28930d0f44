// Faults of links.

#include <algorithm>
#include <cstddef>
#include <cstdio>

#include "tools/chaos/disturber.h"

namespace starling::chaos {
namespace {
constexpr int kFlipsMore = 3;  // that may meet an epoch which is being left
}

// Members whose links are as they should be.
std::vector<Player*> Disturber::with_links(std::size_t number) {
  if (!calls_.links) {
    hold_back(number, "links cannot be disturbed");
    return {};
  }
  auto members = cast_.members();
  std::erase_if(members, [](const Player* player) { return player->link_disturbed; });
  return choose(number, std::move(members));
}

// Another fault took it.
bool Disturber::taken(const Player& player) {
  return player.over || player.killed || player.leaving;
}

// The name may be another's by now, who began with links as they should be.
void Disturber::restore_link(Player& player) {
  player.link_disturbed = false;
  if (cast_.find(player.name) == &player) calls_.links->mend(player.name);
}

void Disturber::partition(std::size_t number, double now) {
  const auto chosen = with_links(number);
  if (chosen.empty()) return;
  const double for_s = deeds_[number].fault.for_s;
  hit(number, now, "cut off for " + seconds_text(for_s), targets_of(chosen));
  deeds_[number].until_t = now + for_s;
  for (Player* player : chosen) {
    player->link_disturbed = true;
    const Cut cut{player, player->id, story_.epochs.size(), calls_.links->cut(player->name)};
    expect(number, now, for_s + kSoon_s, cut.witness.what,
           [=] { return cut.witness.seen() || taken(*player); });
    agenda_.later(now + for_s, [=, this](double then) { heal(number, cut, then); });
  }
}

void Disturber::heal(std::size_t number, const Cut& cut, double now) {
  deeds_[number].until_t = now;
  if (cut.witness.tight && !taken(*cut.player))
    expect(number, now, 0, "nothing had come to " + cut.player->name + " until the end of that",
           [tight = cut.witness.tight()] { return tight; });
  restore_link(*cut.player);
  const auto left_out = [=, this] {
    for (std::size_t i = cut.epochs; i < story_.epochs.size(); ++i)
      if (!story_.epochs[i].has(cut.id)) return true;
    return false;
  };
  const auto back = [=, this] {  // as a new life
    const EpochSeen* last = story_.last_epoch();
    return cut.player->id > cut.id && last && last->has(cut.player->id);
  };
  const auto goes_on = [=, this, steps = story_.step_lines.size()] {
    const EpochSeen* last = story_.last_epoch();
    return last && last->has(cut.id) && story_.step_lines.size() > steps &&
           story_.step_lines.back().second.epoch == last->id;
  };
  const std::string name = cut.player->name;
  expect(
      number, now, kEpoch_s, name + " goes on, or was left out and is back as a new life",
      [=] { return taken(*cut.player) || (left_out() ? back() : goes_on()); },
      [=, this](double then) {
        if (!taken(*cut.player))
          say(then, "  " + name + (left_out() ? " is back as a new life" : " goes on"));
      });
}

void Disturber::corrupt(std::size_t number, double now) {
  if (cast_.members().size() < 2) return hold_back(number, "there is no bulk connection");
  const auto chosen = with_links(number);
  if (chosen.empty()) return;
  hit(number, now, "flip a bit on its way from or to", targets_of(chosen));
  for (Player* player : chosen) flip(number, now, player, kFlipsMore);
}

// At a switch it may be a connection of the epoch that is being left, which nobody needs any more
// (R1): then another bit is flipped, up to `more` times.
void Disturber::flip(std::size_t number, double now, const Player* player, int more) {
  const std::string name = player->name;
  const auto counts = [=, this] { return calls_.links->counts(name); };
  const LinkCounts before = counts();
  const auto given_up = [=] { return counts().given_up > before.given_up || taken(*player); };
  const auto begun = [this, epochs = story_.epochs.size()](const char* kind) {
    return std::any_of(story_.epochs.begin() + std::ptrdiff_t(epochs), story_.epochs.end(),
                       [&](const EpochSeen& epoch) { return epoch.kind == kind; });
  };
  const auto forced = [=] { return begun("forced") || taken(*player); };
  expect(
      number, now, kEpoch_s, "a bit is flipped from or to " + name,
      [=] { return counts().flipped > before.flipped || taken(*player); },
      [=, this](double then) { deeds_[number].until_t = then; });
  expect(number, now, kEpoch_s, "that connection is given up", given_up);
  expect(
      number, now, kEpoch_s,
      more == 0 ? "an epoch is forced" : "an epoch is forced, or left just then: once more",
      [=] { return forced() || (more > 0 && given_up() && begun("prepared")); },
      [=, this](double then) {
        if (!forced()) flip(number, then, player, more - 1);
      });
  calls_.links->flip(name);
}

void Disturber::slow_link(std::size_t number, double now) {
  const auto chosen = with_links(number);
  if (chosen.empty()) return;
  const Fault& fault = deeds_[number].fault;
  char delay[32];
  std::snprintf(delay, sizeof delay, "%.1f ms", 1000 * fault.delay_s);
  hit(number, now, std::string("delay by ") + delay + " for " + seconds_text(fault.for_s),
      targets_of(chosen));
  deeds_[number].until_t = now + fault.for_s;
  for (Player* player : chosen) {
    player->link_disturbed = true;
    const Witness late = calls_.links->delay(player->name, fault.delay_s);
    expect(number, now, fault.for_s + kSoon_s, late.what,
           [=] { return late.seen() || taken(*player); });
    agenda_.later(now + fault.for_s, [=, this](double then) {
      deeds_[number].until_t = then;
      restore_link(*player);
    });
  }
}

}  // namespace starling::chaos
