#include "tests/sim/bulk.h"

#include <algorithm>

#include "tests/sim/worker_process.h"
#include "tests/sim/world.h"

namespace starling::sim {

Bulk::Key Bulk::key_of(const EpochId& epoch, Nonce a, Nonce b) {
  return {epoch, std::min(a, b), std::max(a, b)};
}

bool Bulk::blocked(const Pair& pair, int towards) const {
  const End& from = pair.ends[1 - towards];
  const End& to = pair.ends[towards];
  return world_.blocked(from.process->place(), to.process->place());
}

void Bulk::connect(WorkerProcess& self, Rank self_rank, const EpochId& epoch, Nonce peer_nonce,
                   Rank) {
  const Key key = key_of(epoch, self.nonce(), peer_nonce);
  Pair& pair = pairs_[key];
  pair.epoch = epoch;
  const int side = side_of(self.nonce(), peer_nonce);
  pair.ends[side] = {&self, self_rank, true};
  world_.after(world_.settings().connect_timeout,
               [this, key, side] { connect_deadline(key, side); });
  if (pair.ends[1 - side].open)
    world_.after(world_.draw(random_, world_.settings().bulk_delay) * 3,
                 [this, key] { try_establish(key); });
}

void Bulk::try_establish(const Key& key) {
  Pair& pair = pairs_.at(key);
  if (pair.up || pair.broken || !pair.ends[0].open || !pair.ends[1].open) return;
  if (blocked(pair, 0) || blocked(pair, 1)) {
    world_.after(10 * kMs, [this, key] { try_establish(key); });
    return;
  }
  pair.up = true;
  for (int side : {0, 1}) {
    WorkerProcess* process = pair.ends[side].process;
    process->submit([process, epoch = pair.epoch] { process->on_up(epoch); });
  }
}

void Bulk::connect_deadline(const Key& key, int side) {
  Pair& pair = pairs_.at(key);
  if (pair.up || !pair.ends[side].open) return;
  WorkerProcess* process = pair.ends[side].process;
  const auto [epoch, low, high] = key;
  const Nonce peer = side == 0 ? high : low;
  pair.broken = true;
  // Of two between whom no connection stands a joiner is left out, whichever of them names the other.
  unreached_.insert({low, high});
  process->submit([process, epoch = epoch, peer] { process->on_unreached(epoch, peer); });
}

void Bulk::send(WorkerProcess& from, const EpochId& epoch, Nonce to_nonce, BulkFrame frame) {
  const Key key = key_of(epoch, from.nonce(), to_nonce);
  const auto at = pairs_.find(key);
  if (at == pairs_.end()) return;
  Pair& pair = at->second;
  const int side = side_of(from.nonce(), to_nonce);
  if (!pair.up || pair.broken || !pair.ends[side].open) return;
  const Micros due = world_.now() + world_.draw(random_, world_.settings().bulk_delay);
  const Micros apart = world_.settings().move_delay;
  if (apart > 0 && frame.frame.header.kind == FrameKind::kMove) {
    world_.after(apart, [&pair, epoch, side, nonce = from.nonce(), frame] {
      WorkerProcess* to = pair.ends[1 - side].process;
      if (pair.ends[1 - side].open)
        to->submit([to, epoch, nonce, frame] { to->on_frame(epoch, nonce, frame); });
    });
    return;
  }
  put(key, pair, 1 - side, {due, false, std::move(frame)});
}

void Bulk::put(const Key& key, Pair& pair, int towards, Item item) {
  Direction& direction = pair.towards[towards];
  if (!direction.queue.empty()) item.due = std::max(item.due, direction.queue.back().due);
  const Micros due = item.due;
  direction.queue.push_back(std::move(item));
  if (direction.pumping) return;
  direction.pumping = true;
  world_.at(due, [this, key, towards] { pump(key, towards); });
}

void Bulk::pump(const Key& key, int towards) {
  Pair& pair = pairs_.at(key);
  Direction& direction = pair.towards[towards];
  direction.pumping = false;
  if (direction.queue.empty()) return;
  Micros next = world_.now();
  // Nothing gets through a partition; both ends' own timeouts end it (on_partition).
  if (blocked(pair, towards) && !direction.queue.front().end_of_file) {
    next += 5 * kMs;
  } else if (next < direction.stalled_until) {
    next = direction.stalled_until;
  } else {
    const Item item = std::move(direction.queue.front());
    direction.queue.pop_front();
    const auto [epoch, low, high] = key;
    WorkerProcess* to = pair.ends[towards].process;
    const Nonce from = towards == 0 ? high : low;
    if (item.end_of_file)
      to->submit([to, epoch = epoch, from] { to->on_end_of_file(epoch, from); });
    else
      to->submit(
          [to, epoch = epoch, from, frame = item.frame] { to->on_frame(epoch, from, frame); });
    if (direction.queue.empty()) return;
    next = std::max(next, direction.queue.front().due);
  }
  direction.pumping = true;
  world_.at(next, [this, key, towards] { pump(key, towards); });
}

void Bulk::close_end(const Key& key, Pair& pair, int side, Micros end_of_file) {
  if (!pair.ends[side].open) return;
  pair.ends[side].open = false;
  // What had not left the kernel is lost: a random tail of what is under way to the peer. Where R1
  // is broken on purpose, everything arrives.
  Direction& out = pair.towards[1 - side];
  const std::size_t lost = random_.below(out.queue.size() + 1);
  if (!world_.settings().bugs.r1_accept_other_epochs) {
    out.queue.resize(out.queue.size() - lost);
    pair.towards[side].queue.clear();
  }
  if (pair.up && pair.ends[1 - side].open)
    put(key, pair, 1 - side, {world_.now() + end_of_file, true, {}});
  pair.broken = true;
}

void Bulk::close(WorkerProcess& self, const EpochId& epoch, Micros end_of_file) {
  for (auto& [key, pair] : pairs_)
    for (int side : {0, 1})
      if (pair.epoch == epoch && pair.ends[side].process == &self)
        close_end(key, pair, side, end_of_file);
}

void Bulk::close_one(WorkerProcess& self, const EpochId& epoch, Nonce peer_nonce) {
  const Key key = key_of(epoch, self.nonce(), peer_nonce);
  const auto at = pairs_.find(key);
  if (at == pairs_.end()) return;
  // Everything was flushed before: nothing is cut off.
  at->second.ends[side_of(self.nonce(), peer_nonce)].open = false;
}

void Bulk::close_all(WorkerProcess& self, Micros end_of_file) {
  for (auto& [key, pair] : pairs_)
    for (int side : {0, 1})
      if (pair.ends[side].process == &self)
        close_end(key, pair, side, random_.range(0, end_of_file));
}

void Bulk::break_pair(const Key& key, Pair& pair) {
  pair.broken = true;
  for (int side : {0, 1}) {
    Direction& in = pair.towards[side];
    in.queue.resize(in.queue.size() - random_.below(in.queue.size() + 1));
    put(key, pair, side, {world_.now() + random_.range(0, 5 * kMs), true, {}});
  }
}

bool Bulk::break_one() {
  std::vector<const Key*> keys;
  for (const auto& [key, pair] : pairs_)
    if (pair.up && !pair.broken && pair.ends[0].open && pair.ends[1].open) keys.push_back(&key);
  if (keys.empty()) return false;
  const Key key = *keys[random_.below(keys.size())];
  break_pair(key, pairs_.at(key));
  return true;
}

bool Bulk::stall_one(Micros duration) {
  std::vector<Pair*> up;
  for (auto& [key, pair] : pairs_)
    if (pair.up && !pair.broken && pair.ends[0].open && pair.ends[1].open) up.push_back(&pair);
  if (up.empty()) return false;
  Pair& pair = *up[random_.below(up.size())];
  pair.towards[random_.below(2)].stalled_until = world_.now() + duration;
  return true;
}

void Bulk::stall(const WorkerProcess& from, const WorkerProcess& to, Micros duration) {
  for (auto& [key, pair] : pairs_)
    for (int towards : {0, 1})
      if (pair.up && pair.ends[towards].process == &to && pair.ends[1 - towards].process == &from)
        pair.towards[towards].stalled_until = world_.now() + duration;
}

void Bulk::break_between(const WorkerProcess& a, const WorkerProcess& b) {
  for (auto& [key, pair] : pairs_)
    if (pair.up && !pair.broken && std::get<1>(key) == std::min(a.nonce(), b.nonce()) &&
        std::get<2>(key) == std::max(a.nonce(), b.nonce()))
      break_pair(key, pair);
}

void Bulk::on_cut() {
  for (auto& [key, pair] : pairs_) {
    if (!pair.up || pair.broken) continue;
    for (int side : {0, 1}) {
      if (!blocked(pair, side)) continue;
      world_.after(random_.range(20 * kMs, world_.settings().partition_noticed),
                   [this, key = key, side] { fall_silent(key, side); });
    }
  }
}

void Bulk::fall_silent(const Key& key, int side) {
  Pair& pair = pairs_.at(key);
  if (!pair.up || pair.broken || !pair.ends[side].open || !blocked(pair, side)) return;
  const auto [epoch, low, high] = key;
  const Nonce peer = side == 0 ? high : low;
  WorkerProcess* process = pair.ends[side].process;
  process->submit([process, epoch = epoch, peer] { process->on_silent(epoch, peer); });
  world_.count("connection fell silent");
}

void Bulk::on_partition() {
  for (auto& [key, pair] : pairs_) {
    if (!pair.up || pair.broken || (!blocked(pair, 0) && !blocked(pair, 1))) continue;
    world_.after(random_.range(20 * kMs, world_.settings().partition_noticed), [this, key = key] {
      Pair& cut = pairs_.at(key);
      if (cut.up && !cut.broken && (blocked(cut, 0) || blocked(cut, 1))) break_pair(key, cut);
    });
  }
}

}  // namespace starling::sim
