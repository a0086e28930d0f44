#include "collectives/tcp/mesh.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>
#include <thread>
#include <utility>

#include "collectives/tcp/dialler.h"
#include "collectives/tcp/frame_reader.h"
#include "collectives/tcp/listener.h"
#include "collectives/tcp/outbox.h"
#include "core/base/check.h"
#include "core/base/mutex.h"
#include "core/base/silence.h"
#include "core/base/thread_name.h"

namespace starling::collectives {
namespace {
using Clock = std::chrono::steady_clock;
constexpr std::uint64_t kWakeTag = ~std::uint64_t{0};
constexpr int kWordsInSilence = 6;  // an end speaks so often in the least that it may be silent
}  // namespace

class Mesh::Impl {
 public:
  Impl(MeshOptions options, MeshEvents events, Listener& listener);
  void start();
  void push(std::span<const Rank> to, const FrameHeader& header, const Payload& payload);
  void hold() { held_ = true; }
  void flush();
  void leave();
  void stop();
  void read_on() { wake(wake_); }
  std::vector<Rank> broken() const;

  const MeshOptions options;
  std::atomic<bool> connected{false};

 private:
  enum class State : std::uint8_t { kAwaited, kStands, kClosed };
  struct Peer {
    Peer(Rank r, const Impl& mesh);
    const Rank rank;
    std::atomic<State> state{State::kAwaited};  // written by the communication thread
    std::optional<Dialler> dialler;             // only while awaited and of a higher rank
    Outbox outbox;
    FrameReader reader;
    bool left = false;    // its LEFT has come
    bool paused = false;  // nothing of it is read: may_read() was false
    Silence silence;
    std::uint64_t judged_ms = 0;  // since when its silence counts: all stand, and it is read
  };

  FrameHeader complete(const FrameHeader& header, const Payload& payload) const;
  void run();
  int timeout_ms() const;
  void on_event(Peer& peer, std::uint32_t events);
  void take_adopted();
  void stand(Peer& peer, Stood stood);
  void all_stand();
  bool pause(Peer& peer);
  void go_on_reading();
  void read(Peer& peer);
  bool deliver(Peer& peer, Frame frame);
  void gone(Peer& peer, const std::string& why, LinkFault fault = LinkFault::kEnded);
  void broke(Peer& peer, const std::string& why, LinkFault fault);
  void close(Peer& peer);
  void check_outboxes();
  void check_time();
  void look();
  void say_alive();
  void check_silence();
  std::uint64_t word_ms() const;
  void close_drained();

  MeshEvents events_;
  Listener& listener_;
  EpochSecret secret_;
  const Fd epoll_ = make_epoll();
  const Fd wake_ = make_wake();
  const std::shared_ptr<BufferPool> pool_ = std::make_shared<BufferPool>();
  std::vector<std::unique_ptr<Peer>> peers_;  // index = rank; null for self
  std::atomic<bool> stopping_{false};
  std::atomic<bool> leaving_{false};
  bool held_ = false;  // belongs to the thread that sends

  // Owned by the communication thread.
  Clock::time_point connect_deadline_;
  Rank standing_ = 0;
  bool broken_ = false;
  bool drained_ = false;
  // Judges silences; from 1. A late thread reads before it judges: it adds at most word_ms() a look.
  std::uint64_t now_ms_ = 1;
  Clock::time_point looked_ = Clock::now();
  std::uint64_t said_ms_ = 0;

  mutable Mutex mutex_;
  std::vector<std::pair<Rank, Stood>> adopted_ STARLING_GUARDED_BY(mutex_);
  std::optional<std::vector<Rank>> broken_peers_ STARLING_GUARDED_BY(mutex_);  // set at the break

  Mutex stop_mutex_;
  std::thread thread_ STARLING_GUARDED_BY(stop_mutex_);
};

Mesh::Impl::Peer::Peer(Rank r, const Impl& mesh)
    : rank(r),
      outbox(mesh.epoll_, r, mesh.wake_, mesh.options.queue_bytes_max),
      reader(mesh.pool_, mesh.options.frame_bytes_max) {
  if (r < mesh.options.self) return;
  const MeshPeer& target = mesh.options.peers[r];
  const bool local = mesh.options.local_sockets && loopback(target.host);
  dialler.emplace(mesh.secret_, DialTarget{r, target.host, target.port, local}, mesh.epoll_, r,
                  mesh.options.handshake_timeout);
}

Mesh::Impl::Impl(MeshOptions opts, MeshEvents events, Listener& listener)
    : options(std::move(opts)), events_(std::move(events)), listener_(listener) {
  STARLING_CHECK(options.self < options.peers.size());
  STARLING_CHECK(options.frame_bytes_max <= kFrameBytesMax);
  secret_.job = options.job;
  secret_.epoch = options.epoch;
  secret_.key = options.key;
  secret_.self = options.self;
  for (const MeshPeer& peer : options.peers) {
    secret_.members.push_back(peer.who);
    secret_.seals.push_back(seal_of(options.seal, peer.host));
  }
  for (Rank r = 0; r < options.peers.size(); ++r)
    peers_.push_back(r == options.self ? nullptr : std::make_unique<Peer>(r, *this));
}

void Mesh::Impl::start() {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWakeTag;
  STARLING_CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event) == 0);
  listener_.add(secret_, [this](Rank from, Stood stood) {
    {
      const MutexLock lock(mutex_);
      adopted_.emplace_back(from, std::move(stood));
    }
    wake(wake_);
  });
  const MutexLock lock(stop_mutex_);
  STARLING_CHECK(!thread_.joinable() && !stopping_);
  connect_deadline_ = Clock::now() + options.connect_timeout;
  thread_ = std::thread([this] { run(); });
}

void Mesh::Impl::stop() {
  const MutexLock lock(stop_mutex_);
  if (!thread_.joinable()) return;
  STARLING_CHECK(std::this_thread::get_id() != thread_.get_id());
  listener_.remove(options.epoch);
  stopping_ = true;
  wake(wake_);
  thread_.join();
}

void Mesh::Impl::push(std::span<const Rank> to, const FrameHeader& header, const Payload& payload) {
  if (to.empty()) return;
  const FrameHeader whole = complete(header, payload);
  for (const Rank rank : to) {
    STARLING_CHECK(rank < peers_.size());
    if (!peers_[rank]) continue;
    peers_[rank]->outbox.push(whole, payload, held_);
    FrameCounts::add(options.counts->sent, whole.kind, sizeof whole + payload.size());
  }
}

void Mesh::Impl::flush() {
  held_ = false;
  for (const auto& peer : peers_)
    if (peer) peer->outbox.flush();
}

void Mesh::Impl::leave() {
  if (leaving_.exchange(true)) return;
  FrameHeader header;
  header.kind = FrameKind::kLeft;
  const FrameHeader last = complete(header, {});
  for (const auto& peer : peers_)
    if (peer) peer->outbox.push_last(last);
  wake(wake_);
}

// On connections with keys a tag takes the checksum's place.
FrameHeader Mesh::Impl::complete(const FrameHeader& header, const Payload& payload) const {
  return options.seal == SealRule::kOff ? checked(header, payload) : measured(header, payload);
}

std::vector<Rank> Mesh::Impl::broken() const {
  const MutexLock lock(mutex_);
  if (broken_peers_) return *broken_peers_;
  std::vector<Rank> ranks;
  for (const auto& peer : peers_)
    if (peer && peer->state == State::kAwaited) ranks.push_back(peer->rank);
  return ranks;
}

void Mesh::Impl::run() {
  name_thread("mesh");
  std::array<epoll_event, 64> events;
  if (peers_.size() == 1) all_stand();
  while (!stopping_) {
    check_time();
    const int n = epoll_wait(epoll_.get(), events.data(), events.size(), timeout_ms());
    for (int i = 0; i < n && !stopping_; ++i) {
      if (events[i].data.u64 == kWakeTag) {
        drain_wake(wake_);
      } else {
        on_event(*peers_[events[i].data.u64], events[i].events);
      }
    }
    if (stopping_) break;
    take_adopted();
    go_on_reading();
    check_outboxes();
    look();
    if (leaving_) close_drained();
  }
  for (const auto& peer : peers_)
    if (peer) close(*peer);
}

int Mesh::Impl::timeout_ms() const {
  const bool speaks = options.silence.count() > 0 && standing_ > 0 && !broken_;
  const auto word = static_cast<int>(std::max(said_ms_ + word_ms(), now_ms_ + 1) - now_ms_);
  if (connected || broken_ || leaving_) return speaks ? word : -1;
  auto at = connect_deadline_;
  if (speaks) at = std::min(at, Clock::now() + std::chrono::milliseconds(word));
  for (const auto& peer : peers_)
    if (peer && peer->dialler) at = std::min(at, peer->dialler->wake_at());
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(at - Clock::now());
  return static_cast<int>(std::max<std::int64_t>(0, left.count()));
}

void Mesh::Impl::on_event(Peer& peer, std::uint32_t events) {
  if (peer.dialler) {
    if (auto stood = peer.dialler->on_event(Clock::now())) stand(peer, std::move(*stood));
    return;
  }
  if (peer.state != State::kStands) return;  // closed earlier in this round
  if (events & EPOLLOUT) peer.outbox.on_writable();
  if (connected) {
    const bool ended = (events & (EPOLLHUP | EPOLLERR)) != 0;
    if ((events & EPOLLIN) != 0 && !peer.paused)
      peer.silence.hear(now_ms_, static_cast<std::uint64_t>(options.silence.count()));
    if (ended || ((events & EPOLLIN) != 0 && !pause(peer))) read(peer);
  } else if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
    gone(peer, "it closed before all connections stood");
  }
}

void Mesh::Impl::take_adopted() {
  std::vector<std::pair<Rank, Stood>> adopted;
  {
    const MutexLock lock(mutex_);
    adopted.swap(adopted_);
  }
  for (auto& [rank, stood] : adopted) {
    Peer& peer = *peers_[rank];  // the handshake has checked the rank
    // A second connection of a rank is dropped; the first carries the epoch.
    if (peer.state == State::kAwaited && !leaving_) stand(peer, std::move(stood));
  }
}

void Mesh::Impl::stand(Peer& peer, Stood stood) {
  peer.dialler.reset();
  peer.state = State::kStands;
  peer.reader.open(stood.keys);
  peer.outbox.open(std::move(stood.socket), stood.keys);
  if (++standing_ == peers_.size() - 1) all_stand();
}

void Mesh::Impl::all_stand() {
  connected = true;
  if (events_.on_connected) events_.on_connected();
  for (const auto& peer : peers_) {
    if (!peer || peer->state != State::kStands) continue;
    peer->judged_ms = now_ms_;
    peer->outbox.start_reading();
  }
}

// Stops reading a peer while may_read() is false. Returns false if the peer may be read.
bool Mesh::Impl::pause(Peer& peer) {
  if (options.may_read()) return false;
  peer.paused = true;
  peer.outbox.pause_reading();
  return true;
}

void Mesh::Impl::go_on_reading() {
  for (const auto& peer : peers_) {
    if (!peer || !peer->paused || peer->state != State::kStands) continue;
    if (!options.may_read()) return;
    peer->paused = false;
    peer->judged_ms = now_ms_;
    peer->outbox.start_reading();
  }
}

void Mesh::Impl::read(Peer& peer) {
  const auto end = peer.reader.read(peer.outbox.socket(),
                                    [&](Frame frame) { return deliver(peer, std::move(frame)); });
  if (peer.state != State::kStands) return;
  if (end == FrameReader::End::kEndOfFile) gone(peer, "it closed the connection");
  if (end == FrameReader::End::kError) gone(peer, peer.reader.error());
}

bool Mesh::Impl::deliver(Peer& peer, Frame frame) {
  FrameCounts::add(options.counts->received, frame.header.kind,
                   sizeof frame.header + frame.header.length);
  if (peer.left) {
    gone(peer, "it sent a frame after LEFT");
  } else if (frame.header.kind == FrameKind::kAlive) {
    if (frame.header.length > 0) gone(peer, "it sent a word that it is there and more with it");
  } else if (frame.header.kind == FrameKind::kLeft) {
    peer.left = true;
    if (events_.on_left) events_.on_left(peer.rank);
  } else if (events_.on_frame) {
    events_.on_frame(peer.rank, std::move(frame));
  }
  return peer.state == State::kStands && !stopping_;
}

// R1: end of file after LEFT, or after we have left, is no break.
void Mesh::Impl::gone(Peer& peer, const std::string& why, LinkFault fault) {
  if (leaving_ || peer.left) return close(peer);
  broke(peer, why, fault);
}

void Mesh::Impl::broke(Peer& peer, const std::string& why, LinkFault fault) {
  broken_ = true;
  std::vector<Rank> ranks;
  for (const auto& other : peers_)
    if (other && (other->rank == peer.rank || other->state == State::kAwaited))
      ranks.push_back(other->rank);
  {
    const MutexLock lock(mutex_);
    broken_peers_ = std::move(ranks);
  }
  // on_broken comes before close(), which shows peers an end of file that they report at once.
  if (events_.on_broken) events_.on_broken(peer.rank, why, fault);
  for (const auto& other : peers_)
    if (other) close(*other);
}

void Mesh::Impl::close(Peer& peer) {
  peer.dialler.reset();
  peer.outbox.close();
  peer.state = State::kClosed;
}

void Mesh::Impl::check_outboxes() {
  for (const auto& peer : peers_) {
    if (!peer || peer->state != State::kStands || !peer->outbox.failed()) continue;
    // What the peer sent before it closed, LEFT perhaps, may still be there to be read.
    if (connected) read(*peer);
    if (peer->state == State::kStands) gone(*peer, peer->outbox.failure());
  }
}

void Mesh::Impl::check_time() {
  if (connected || broken_ || leaving_) return;
  const auto now = Clock::now();
  Peer* missing = nullptr;
  for (const auto& peer : peers_) {
    if (!peer || peer->state != State::kAwaited) continue;
    if (missing == nullptr) missing = peer.get();
    if (!peer->dialler) continue;
    peer->dialler->on_time(now);
    if (!peer->dialler->refused()) continue;
    const std::string why = peer->dialler->failure();  // a copy: broke() ends the dialler
    return broke(*peer, why, LinkFault::kUnreached);
  }
  if (now < connect_deadline_ || missing == nullptr) return;
  std::string why =
      "it did not stand within " + std::to_string(options.connect_timeout.count()) + " ms";
  const std::string cause =
      missing->dialler ? missing->dialler->failure() : listener_.counters().last_refusal;
  if (!cause.empty()) why += "; " + cause;
  broke(*missing, why, LinkFault::kUnreached);
}

// ---- Silence ----------------------------------------------------------------------------------

std::uint64_t Mesh::Impl::word_ms() const {
  return std::max<std::uint64_t>(
      1, static_cast<std::uint64_t>(options.silence.count()) / kWordsInSilence);
}

void Mesh::Impl::look() {
  if (options.silence.count() == 0) return;
  const auto passed = std::chrono::floor<std::chrono::milliseconds>(Clock::now() - looked_);
  looked_ += passed;
  now_ms_ += std::min(static_cast<std::uint64_t>(passed.count()), word_ms());
  if (now_ms_ - said_ms_ >= word_ms()) say_alive();
  if (connected && !broken_) check_silence();
}

void Mesh::Impl::say_alive() {
  said_ms_ = now_ms_;
  FrameHeader header;
  header.kind = FrameKind::kAlive;
  for (const auto& peer : peers_)
    if (peer && peer->state == State::kStands) peer->outbox.push_if_idle(complete(header, {}));
}

// Skips a peer that has left, which says nothing more, and one that is not read now.
void Mesh::Impl::check_silence() {
  const auto least = static_cast<std::uint64_t>(options.silence.count());
  const auto judged = [](const std::unique_ptr<Peer>& peer) {
    return peer && peer->state == State::kStands && !peer->left && !peer->paused;
  };
  std::vector<std::uint64_t> longest;
  for (const auto& peer : peers_)
    if (judged(peer)) longest.push_back(peer->silence.longest_ms(now_ms_, peer->judged_ms, least));
  Peer* latest = nullptr;
  std::uint64_t silent_ms = tolerance_ms(std::move(longest), least);
  for (const auto& peer : peers_) {
    if (!judged(peer)) continue;
    const std::uint64_t open = peer->silence.open_ms(now_ms_, peer->judged_ms);
    if (open > silent_ms) latest = peer.get(), silent_ms = open;
  }
  if (latest == nullptr) return;
  gone(*latest, "nothing came from it for " + std::to_string(silent_ms) + " ms, though it stands",
       LinkFault::kSilent);
}

void Mesh::Impl::close_drained() {
  bool all_closed = true;
  for (const auto& peer : peers_) {
    if (!peer || peer->state == State::kClosed) continue;
    const bool over = peer->left && peer->outbox.flushed_last();
    if (over || peer->state == State::kAwaited) {
      close(*peer);
    } else {
      all_closed = false;
    }
  }
  if (!all_closed || drained_ || broken_) return;
  drained_ = true;
  if (events_.on_drained) events_.on_drained();
}

Mesh::Mesh(MeshOptions options, MeshEvents events, Listener& listener)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(events), listener)) {}
Mesh::~Mesh() {
  impl_->stop();
}

void Mesh::start() {
  impl_->start();
}
void Mesh::hold() {
  impl_->hold();
}
void Mesh::flush() {
  impl_->flush();
}
void Mesh::leave() {
  impl_->leave();
}
void Mesh::stop() {
  impl_->stop();
}
Rank Mesh::self() const {
  return impl_->options.self;
}
std::uint32_t Mesh::world() const {
  return static_cast<std::uint32_t>(impl_->options.peers.size());
}
void Mesh::read_on() {
  impl_->read_on();
}
std::vector<Rank> Mesh::broken() const {
  return impl_->broken();
}
bool Mesh::connected() const {
  return impl_->connected;
}

void Mesh::send(Rank to, FrameHeader header, Payload payload) {
  STARLING_CHECK(to != self());
  impl_->push({&to, 1}, header, payload);
}

void Mesh::send_all(std::span<const Rank> to, FrameHeader header, const Payload& payload) {
  impl_->push(to, header, payload);
}

}  // namespace starling::collectives
