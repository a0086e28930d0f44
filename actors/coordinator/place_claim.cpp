#include "actors/coordinator/place_claim.h"

#include <array>
#include <charconv>
#include <fstream>
#include <utility>

#include "core/base/mac.h"
#include "core/formats/synced_file.h"

namespace starling::actors {

namespace {

constexpr const char* kAsked = "asked";
constexpr const char* kBegun = "begun";

}  // namespace

// One line: the life in decimal, and how far it has got.
Result<PlaceClaim> PlaceClaim::open(const std::string& dir, std::uint32_t place, bool log_lost) {
  PlaceClaim claim;
  claim.path_ = dir + "/life";
  claim.place_ = place;
  std::ifstream file(claim.path_);
  if (file) {
    std::uint64_t life = 0;
    std::string state;
    file >> life >> state;
    if (!file || life == 0 || (state != kAsked && state != kBegun))
      return Error(Code::kBadInput, "expected a number, and `asked` or `begun`, in " + claim.path_);
    claim.life_ = Nonce(life);
    claim.begun_ = state == kBegun;
    if (claim.begun_ && log_lost)
      return Error(Code::kBadInput, "the log of a coordinator that took part is gone from " + dir +
                                        ": nobody can say what it has promised; start one in "
                                        "another place, with another folder");
  } else {
    if (!log_lost)
      return Error(Code::kBadInput, "a log without the life that it was begun with is in " + dir);
    claim.life_ = fresh_nonce();
    if (auto saved = claim.save(); !saved) return std::move(saved).error();
  }
  if (!log_lost) {
    if (auto begun = claim.begin(); !begun) return std::move(begun).error();
  }
  return claim;
}

ChangeAsked PlaceClaim::question(const std::string& address, std::optional<std::uint32_t> replaces,
                                 std::uint64_t job_hash) const {
  ChangeAsked asked;
  asked.add = place_;
  asked.address = address;
  asked.life = life_;
  asked.remove = replaces;
  asked.job_hash = job_hash;
  return asked;
}

Result<> PlaceClaim::begin() {
  if (std::exchange(begun_, true)) return ok();
  return save();
}

Result<> PlaceClaim::save() const {
  const std::string line = std::to_string(life_) + " " + (begun_ ? kBegun : kAsked) + "\n";
  const std::array<ByteView, 1> pieces{
      ByteView(reinterpret_cast<const std::uint8_t*>(line.data()), line.size())};
  return write_synced_file(path_, pieces);
}

}  // namespace starling::actors
