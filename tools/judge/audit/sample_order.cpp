#include "tools/judge/audit/sample_order.h"

#include "core/data/lanes.h"

namespace starling::audit {
namespace {

Lanes lanes_of(const StartFact& start) {
  return {start.seed, start.samples / start.chunk_samples, start.chunk_samples,
          start.micro_batches};
}

}  // namespace

SampleOrder::Sample SampleOrder::at(const Place& place) const {
  if (start_.chunk_samples != 0) {
    const LanePlace there = lanes_of(start_).place_of(
        place.micro_batch.value(), place.step * start_.sequences + place.sequence);
    return {there.pass, there.chunk * start_.chunk_samples + there.sample};
  }
  const std::uint64_t i =
      (place.step * start_.micro_batches + place.micro_batch.value()) * start_.sequences +
      place.sequence;
  const std::uint64_t pass = i / start_.samples;
  return {pass, Permutation(start_.seed, pass, start_.samples)(i % start_.samples)};
}

SampleOrder::Place SampleOrder::of(const Sample& sample) const {
  if (start_.chunk_samples != 0) {
    const auto [lane, position] = lanes_of(start_).position_of(
        {sample.pass, sample.number / start_.chunk_samples,
         static_cast<std::uint32_t>(sample.number % start_.chunk_samples)});
    return {position / start_.sequences, MicroBatch(lane),
            static_cast<std::uint32_t>(position % start_.sequences)};
  }
  const std::uint64_t i =
      sample.pass * start_.samples +
      Permutation(start_.seed, sample.pass, start_.samples).inverse(sample.number);
  const std::uint64_t micro_batch = i / start_.sequences;
  return {micro_batch / start_.micro_batches,
          static_cast<MicroBatch>(micro_batch % start_.micro_batches),
          static_cast<std::uint32_t>(i % start_.sequences)};
}

bool SampleOrder::begins_behind(std::uint64_t pass, std::uint64_t steps) const {
  if (start_.chunk_samples != 0)
    return lanes_of(start_).chunks_before(pass) * start_.chunk_samples >= steps * start_.sequences;
  return pass * start_.samples >= steps * start_.micro_batches * start_.sequences;
}

}  // namespace starling::audit
