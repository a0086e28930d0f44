#include "tools/chaos/plan.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/philox.h"

namespace starling::chaos {
namespace {

constexpr std::array<const char*, kFaultKinds> kWords = {
    "kill", "stop",      "join",    "leave",     "coordinator-kill", "guard-kill",
    "slow", "partition", "corrupt", "slow-link", "disk-full",        "checkpoint-full"};

// Random numbers of one fault: a function of (seed, number of the fault).
class Numbers {
 public:
  Numbers(std::uint64_t seed, std::uint64_t fault) : seed_(seed), fault_(fault) {}
  double uniform() { return starling::uniform(next()); }
  std::uint32_t below(std::size_t n) {
    return static_cast<std::uint32_t>(std::min<double>(uniform() * double(n), double(n) - 1));
  }
  // Uniform on a logarithmic scale, to milliseconds.
  double seconds(double low, double high) { return round(low * std::pow(high / low, uniform())); }
  static double round(double seconds) { return std::round(seconds * 1000) / 1000; }

 private:
  std::uint32_t next() {
    const auto index = static_cast<std::uint32_t>(drawn_ / 4);
    const auto block =
        philox4x32({index, static_cast<std::uint32_t>(fault_),
                    static_cast<std::uint32_t>(fault_ >> 32), 0x6368616f},
                   {static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32)});
    return block[drawn_++ % 4];
  }
  const std::uint64_t seed_, fault_;
  std::size_t drawn_ = 0;
};

Fault draw_one(const Draw& draw, std::uint64_t number) {
  Numbers numbers(draw.seed, number);
  Fault fault;
  fault.at_s = Numbers::round((double(number) + numbers.uniform()) / draw.rate);
  fault.kind = draw.kinds[numbers.below(draw.kinds.size())];
  fault.target = std::floor(numbers.uniform() * 1000) / 1000;
  switch (fault.kind) {
    case FaultKind::kKill:
      fault.back_s = numbers.seconds(0.3, 3);
      break;
    case FaultKind::kLeave:
      fault.back_s = numbers.seconds(0.3, 3);
      break;
    case FaultKind::kStop:  // from a hiccup to an eviction
      fault.for_s = numbers.seconds(0.05 * draw.lease_s, 3 * draw.lease_s);
      break;
    case FaultKind::kSlow:
      fault.for_s = numbers.seconds(0.5, 4);
      fault.share = Numbers::round(0.2 + 0.7 * numbers.uniform());
      break;
    case FaultKind::kPartition:  // most are left out, some are back in time
      fault.for_s = numbers.seconds(0.5 * draw.lease_s, 4 * draw.lease_s);
      break;
    case FaultKind::kSlowLink:
      fault.for_s = numbers.seconds(0.5, 4);
      fault.delay_s = numbers.seconds(0.001, 0.05);
      break;
    case FaultKind::kDiskFull:
    case FaultKind::kCheckpointFull:
      fault.for_s = numbers.seconds(0.5, 3);
      break;
    case FaultKind::kJoin:
    case FaultKind::kCoordinatorKill:
    case FaultKind::kGuardKill:
    case FaultKind::kCorrupt:
      break;
  }
  return fault;
}

}  // namespace

const char* to_string(FaultKind kind) {
  const auto index = static_cast<std::size_t>(kind) - 1;
  return index < kWords.size() ? kWords[index] : "unknown";
}

std::string known_kinds() {
  std::string known;
  for (const char* word : kWords) known += (known.empty() ? "" : ", ") + std::string(word);
  return known;
}

Result<std::vector<FaultKind>> parse_kinds(const std::string& words) {
  std::vector<FaultKind> kinds;
  std::size_t at = 0;
  while (at <= words.size()) {
    const auto comma = std::min(words.find(',', at), words.size());
    const std::string word = words.substr(at, comma - at);
    at = comma + 1;
    const auto found = std::find(kWords.begin(), kWords.end(), word);
    if (found == kWords.end())
      return Error(Code::kBadInput, "unknown kind of fault \"" + word.substr(0, 64) +
                                        "\", known are " + known_kinds());
    const auto kind = static_cast<FaultKind>(found - kWords.begin() + 1);
    if (std::find(kinds.begin(), kinds.end(), kind) != kinds.end())
      return Error(Code::kBadInput, "kind of fault \"" + word + "\" is named twice");
    kinds.push_back(kind);
  }
  return kinds;
}

bool disturbs_links(const Plan& plan) {
  return std::any_of(plan.faults.begin(), plan.faults.end(), [](const Fault& fault) {
    return fault.kind == FaultKind::kPartition || fault.kind == FaultKind::kCorrupt ||
           fault.kind == FaultKind::kSlowLink;
  });
}

std::vector<Fault> draw_faults(const Draw& draw) {
  std::vector<Fault> faults;
  if (draw.kinds.empty() || !(draw.rate > 0)) return faults;
  const auto count = static_cast<std::uint64_t>(std::floor(draw.rate * draw.seconds + 1e-9));
  for (std::uint64_t i = 0; i < count; ++i) faults.push_back(draw_one(draw, i));
  return faults;
}

}  // namespace starling::chaos
