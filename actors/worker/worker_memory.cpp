#include "actors/worker/worker_memory.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "actors/sabotage.h"
#include "actors/scheduling.h"
#include "core/base/check.h"
#include "core/base/thread_name.h"
#include "kernels/optim/optimizer.h"

namespace starling::actors {
namespace {

// Segments are checked, applied and published while they are in the cache, where there is one. A GPU
// has one warp for a segment's hash: it is busy only with as many of them as it has warps to run.
constexpr std::uint64_t kCacheBytes = 512 * 1024;
constexpr std::uint32_t kOnDevice = 1024;
// With many side entries few segments go at once: their entries lie in pinned memory meanwhile.
constexpr std::size_t kManyEntries = 64 * 1024;
constexpr std::uint32_t kWithManyEntries = 16;

std::uint32_t segments_at_once(const Layout& layout, const kernels::Device& device) {
  if (!device.host_memory()) return kOnDevice;
  const std::uint64_t bytes =
      std::uint64_t{layout.segment_blocks()} *
      (Layout::block_bytes(What::kSums) + Layout::block_bytes(What::kWeights) +
       2 * Layout::block_bytes(What::kMoment));
  return static_cast<std::uint32_t>(std::max<std::uint64_t>(1, kCacheBytes / bytes));
}

}  // namespace

WorkerMemory::WorkerMemory(std::shared_ptr<const TrainingSetup> setup, std::string worker,
                           StepClock& clock)
    : setup_(std::move(setup)),
      layout_(*setup_->layout),
      worker_(std::move(worker)),
      clock_(clock),
      state_(layout_, setup_->job, *setup_->device),
      accumulators_(layout_, setup_->job.micro_batches, *setup_->device, setup_->job.numbers),
      totals_(layout_, setup_->job.micro_batches, *setup_->device),
      arrivals_(layout_),
      at_once_(segments_at_once(layout_, *setup_->device)),
      workbench_(state_, arrivals_, accumulators_, progress_, setup_->job.seed, worker_) {
  for (SegmentId s = 0; s < layout_.segments(); s += at_once_)
    parts_.push_back(kernels::segment_ids({s, std::min(at_once_, layout_.segments() - s)}));
}

WorkerMemory::~WorkerMemory() = default;

// ---- Segments ---------------------------------------------------------------------------------

Result<> WorkerMemory::hold(const std::vector<bool>& segments, bool fresh) {
  for (SegmentId s = 0; s < layout_.segments(); ++s) {
    if (!segments[s]) drop(s);  // first, as there may be no room for both
    worked();
  }
  for (PartId p = 0; p < layout_.parts().size(); ++p) {
    std::vector<float> initial;
    for (const SegmentId s : layout_.parts()[p].segments) {
      if (segments[s]) hold(s);
      worked();
      if (!fresh || !segments[s] || state_.label(s) != kNoVersion) continue;
      if (initial.empty()) {
        STARLING_TRY(made, setup_->initial_parameters(p));
        initial = std::move(made);
      }
      state_.initialise_segment(s, initial, setup_->exponents);
    }
  }
  return ok();
}

void WorkerMemory::hold(SegmentId segment) {
  state_.hold(segment);
  totals_.hold(segment);
}

void WorkerMemory::drop(SegmentId segment) {
  if (state_.holds(segment)) state_.drop(segment);
  totals_.drop(segment);
}

std::vector<float> WorkerMemory::trained_parameters() {
  for (SegmentId s = 0; s < layout_.segments(); ++s) drop(s);
  worked();
  staged_.reset();
  return state_.copy_parameters();
}

Result<> WorkerMemory::initialise(const std::vector<bool>& segments) {
  for (PartId p = 0; p < layout_.parts().size(); ++p) {
    for (const SegmentId s : layout_.parts()[p].segments)
      if (segments[s]) hold(s);
    STARLING_TRY(initial, setup_->initial_parameters(p));
    state_.initialise_part(p, initial, setup_->exponents);
    for (const SegmentId s : layout_.parts()[p].segments) arrivals_.note(s, 0);
    worked();
  }
  return ok();
}

Result<> WorkerMemory::take_loaded(const SegmentStates& states, Version version) {
  for (const SegmentValues& values : states.all()) {
    hold(values.id);
    STARLING_TRY(state_.set_values(values, version));
    worked();
  }
  return ok();
}

void WorkerMemory::prepare(const Plan& plan, Rank self) {
  sabotage::follow(plan, self, worker_);
  std::vector<bool> held(layout_.segments());
  for (SegmentId s = 0; s < layout_.segments(); ++s)
    held[s] = std::ranges::find(plan.holders[s], self) != plan.holders[s].end();
  for (const Move& move : plan.moves)
    for (const SegmentId s : move.segments)
      if (move.target == self) held[s] = true;
  state_.expect(held);
  totals_.expect(held);
  if (is_preparing_) return;  // harmless: the kernel finds memory at the first write
  std::vector<SegmentId> segments;
  for (SegmentId s = 0; s < layout_.segments(); ++s)
    if (held[s] && !state_.holds(s)) segments.push_back(s);
  const bool first = !std::exchange(prepared_, true);
  if (segments.empty() && !first) return;
  const bool sums = first && computes(plan.members[self].role);
  is_preparing_ = true;
  preparing_ = std::jthread([this, first, sums, segments](const std::stop_token& stop) {
    name_thread("memory");
    run_behind();
    if (first) state_.prepare_parameters(stop);
    if (sums) accumulators_.prepare(stop);
    for (const SegmentId s : segments) {
      totals_.prepare(s, stop);
      state_.prepare(s, stop);
    }
    is_preparing_ = false;
  });
}

Result<> WorkerMemory::take_move(SegmentRange segments, Version version, ByteView states) {
  for (const SegmentId s : segments) hold(s);
  STARLING_TRY(taken, state_.set_state(states, version));
  worked();
  if (!(taken == segments)) return Error(Code::kCorrupt, "a move of other segments");
  return ok();
}

// ---- A step -----------------------------------------------------------------------------------

std::optional<Damage> WorkerMemory::parameters_damage(Version version) {
  sabotage::hang_data_plane(version, worker_);
  sabotage::flip_parameters(state_, version, worker_);
  sabotage::compare_late(version, worker_);
  for (const auto& part : parts_) {
    if (const auto s = state_.parameters_damaged(part)) return Damage{"the working parameters", *s};
    worked();
  }
  return std::nullopt;
}

std::optional<Damage> WorkerMemory::begin_gather(Version version) {
  if (version == kNoVersion || std::exchange(gathering_, version) != version) return std::nullopt;
  for (const auto& part : parts_) {
    std::vector<SegmentId> here;
    std::ranges::copy_if(part, std::back_inserter(here),
                         [&](SegmentId s) { return arrivals_.has(s, version); });
    if (const auto s = state_.parameters_damaged(here)) return Damage{"the working parameters", *s};
    worked();
  }
  return std::nullopt;
}

std::optional<Damage> WorkerMemory::check_state(std::span<const SegmentId> segments) const {
  if (const auto s = state_.damaged(segments)) return Damage{"the state", *s};
  return std::nullopt;
}

CompleteLanes WorkerMemory::complete_lanes(Version version) const {
  const Job& job = setup_->job;
  return {job.seed, version, job.micro_batches, layout_.uses_max()};
}

bool WorkerMemory::added(SegmentRange segments) const {
  for (const SegmentId s : segments)
    if (!accumulators_.complete(layout_.part_of(s))) return false;
  return true;
}

std::optional<Damage> WorkerMemory::check_sums(SegmentRange segments, Version version,
                                               bool on_device) {
  if (segments.first == 0) sabotage::flip_sums(accumulators_, version, worker_);
  if (const auto s = accumulators_.damaged(kernels::segment_ids(segments)))
    return Damage{"the sums", *s};
  if (!on_device) accumulators_.mirror(segments);
  worked();
  return std::nullopt;
}

collectives::Sums WorkerMemory::begin_reduce(std::uint32_t micro_batches) {
  accumulators_.expect(micro_batches);
  totals_.clear();
  side_received_.clear();
  collectives::Sums sums;
  sums.layout = &layout_;
  sums.accumulators = accumulators_.sums();
  sums.accumulator_lanes = accumulators_.lanes();
  sums.totals = totals_.sums();
  sums.total_lanes = totals_.lanes();
  sums.received = &side_received_;
  sums.grid_bits = setup_->job.numbers.grid_bits;
  return sums;
}

Result<> WorkerMemory::take_side_entries() {
  for (const SideEntry& entry : side_received_) {
    STARLING_TRY(totals_.add_side(entry));
  }
  return ok();
}

Measured WorkerMemory::measure(std::span<const SegmentId> owned, Version version, bool digest) {
  sabotage::flip_state(state_, owned, version, worker_);
  sabotage::corrupt_replicas(state_, owned, version, worker_);
  sabotage::double_totals(totals_, version, worker_);
  Measured measured;
  // A vote that has left cannot be taken back, so compare state here and not only before apply.
  if (digest) {
    measured.damage = check_state(owned);
    measured.digest = state_.digest_part(owned);
  } else if (const auto s = state_.exponents_differ(owned)) {
    measured.damage = Damage{"the exponents", *s};
  }
  worked();
  clock_.mark(StepMark::kDigested);
  std::vector<SegmentId> arrived, copies;
  for (SegmentId s = 0; s < layout_.segments(); ++s)
    if (totals_.has(s)) arrived.push_back(s);
  totals_.take(arrived);
  std::ranges::set_difference(arrived, owned, std::back_inserter(copies));
  const auto norm = state_.partial_norm(totals_, owned);
  measured.norm = norm.squares.words();
  measured.wrong_total = wrong_total(norm.damaged ? norm.damaged : totals_.damaged(copies));
  worked();
  clock_.mark(StepMark::kNormed);
  return measured;
}

std::optional<SegmentId> WorkerMemory::wrong_total(std::optional<SegmentId> found) const {
  return sabotage::accepts_any_total(worker_) ? std::nullopt : found;
}

std::optional<Damage> WorkerMemory::apply(const StepRecord& record, double peak_rate) {
  totals_.set_pending(record.version);
  std::vector<SegmentId> segments;
  for (SegmentId s = 0; s < layout_.segments(); ++s)
    if (state_.holds(s) && state_.label(s) == record.version) segments.push_back(s);
  sabotage::flip_total(totals_, layout_, segments, record.version, worker_);
  const bool many = totals_.side_entries() > kManyEntries;
  const std::size_t at_once = many ? std::min(at_once_, kWithManyEntries) : at_once_;
  for (std::size_t i = 0; i < segments.size(); i += at_once) {
    const auto part = std::span(segments).subspan(i, std::min(at_once, segments.size() - i));
    const auto begun = clock_.now();
    if (const auto s = state_.damaged(part)) return Damage{"the state", *s};
    const auto between = clock_.now();
    if (const auto s = wrong_total(totals_.damaged(part))) return Damage{"the total", *s};
    clock_.checked(begun, between);
    state_.apply(totals_, record, part, peak_rate);
    publish(part, record.version + 1);
    worked();
  }
  totals_.clear();
  return std::nullopt;
}

// ---- Copies -----------------------------------------------------------------------------------

std::optional<Damage> WorkerMemory::stage(std::span<const SegmentId> segments, Version version) {
  if (!staged_)
    staged_ =
        std::make_shared<SegmentStates>(layout_, kernels::moments(setup_->job.optimizer) == 2);
  staged_->clear();
  Bytes scratch;
  for (const SegmentId s : segments) {
    STARLING_CHECK(state_.label(s) == version);
    if (!state_.intact(s)) return Damage{"the state", s};
    staged_->add(state_.values(s, scratch));
    worked();
  }
  return std::nullopt;
}

// ---- Gather -----------------------------------------------------------------------------------

void WorkerMemory::publish(Version version, SegmentRange segments) {
  for (const SegmentId s : segments) {
    STARLING_CHECK_MSG(state_.label(s) == version,
                       "segment " << s << " at " << state_.label(s) << ", to be at " << version);
    if (arrivals_.has(s, version)) continue;
    publish({&s, 1}, version);
    worked();
  }
}

void WorkerMemory::publish(std::span<const SegmentId> segments, Version version) {
  state_.publish(segments);
  sabotage::flip_published(state_, segments, version, worker_);
  for (const SegmentId s : segments) arrivals_.note(s, version);
}

std::vector<std::uint64_t> WorkerMemory::checksums(SegmentRange segments) {
  return state_.published(segments);
}

Bytes WorkerMemory::params(SegmentRange segments) {
  worked();
  return state_.params_bytes(std::span<const SegmentRange>(&segments, 1));
}

Result<> WorkerMemory::set_params(Version version, SegmentRange segments, ByteView bytes) {
  worked();
  if (!sabotage::keeps_stale_parameters(version, worker_)) {
    const auto lacks = [&](SegmentId s) { return !arrivals_.has(s, version); };
    STARLING_TRY(ranges, state_.set_params(bytes, lacks));
    if (ranges.size() != 1 || !(ranges.front() == segments))
      return Error(Code::kCorrupt, "parameters of other segments than the frame's");
  }
  for (const SegmentId s : segments) arrivals_.note(s, version);
  return ok();
}

// ---- From device to device --------------------------------------------------------------------

namespace {

// DeviceMemory hands out writable addresses, also of memory that a transport only reads.
template <class T>
std::byte* bytes_at(const T* values) {
  return reinterpret_cast<std::byte*>(const_cast<T*>(values));
}

template <class T>
const T* values_at(const std::byte* bytes) {
  return reinterpret_cast<const T*>(bytes);
}

}  // namespace

std::byte* WorkerMemory::sums(SegmentRange segments) {
  return bytes_at(accumulators_.address(segments));
}

std::byte* WorkerMemory::totals(SegmentRange segments) {
  return bytes_at(totals_.address(segments));
}

void WorkerMemory::add(SegmentRange segments, std::span<const std::byte* const> received) {
  std::vector<const std::int32_t*> from;
  for (const std::byte* bytes : received) from.push_back(values_at<std::int32_t>(bytes));
  totals_.add(segments, accumulators_.address(segments), from);
  worked();
}

void WorkerMemory::take_totals(SegmentRange segments, const std::byte* staged) {
  totals_.copy(segments, values_at<std::int32_t>(staged));
  worked();
}

std::size_t WorkerMemory::parameter_bytes(SegmentRange segments) const {
  return layout_.bytes_of(segments, What::kParameters);
}

std::byte* WorkerMemory::parameters(SegmentRange segments) {
  return bytes_at(state_.parameters(segments));
}

Bytes WorkerMemory::proofs(SegmentRange segments) {
  return state_.proofs(segments);
}

Result<> WorkerMemory::take_parameters(Version version, SegmentRange segments,
                                       const std::byte* staged, ByteView proofs) {
  worked();
  if (!sabotage::keeps_stale_parameters(version, worker_)) {
    const auto lacks = [&](SegmentId s) { return !arrivals_.has(s, version); };
    STARLING_TRY(state_.take_parameters(segments, values_at<float>(staged), proofs, lacks));
  }
  for (const SegmentId s : segments) arrivals_.note(s, version);
  return ok();
}

}  // namespace starling::actors
