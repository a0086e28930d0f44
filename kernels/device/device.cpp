#include "kernels/device/device.h"

#include <algorithm>

#include "core/base/check.h"
#include "kernels/device/emulated.h"
#include "kernels/device/lazy_pages.h"
#include "kernels/device/plugin.h"
#include "kernels/models/gradient_maker.h"

namespace starling::kernels {

Memory::~Memory() {
  if (at_ != nullptr && !shared_) device_->dismiss(at_, bytes_);
}

Memory& Memory::operator=(Memory&& o) noexcept {
  std::swap(device_, o.device_);
  std::swap(at_, o.at_);
  std::swap(bytes_, o.bytes_);
  std::swap(host_, o.host_);
  std::swap(shared_, o.shared_);
  return *this;
}

std::optional<SharedPlace> Memory::place() const {
  if (shared_) return shared_->place();
  return at_ != nullptr ? device_->place_of(at_) : std::nullopt;
}

// Large pages need private memory, so nothing is done for shared memory.
void Memory::expect(std::size_t offset, std::size_t count, bool used) {
  STARLING_CHECK(offset <= bytes_);
  STARLING_CHECK(count <= bytes_ - offset);
  if (at_ != nullptr && !shared_) device_->expect(at_, offset, count, used);
}

void Memory::prepare(std::size_t offset, std::size_t count, const std::stop_token& stop) const {
  STARLING_CHECK(offset <= bytes_);
  STARLING_CHECK(count <= bytes_ - offset);
  if (shared_) return prepare_pages(at_, offset, count, stop);
  if (at_ != nullptr) device_->prepare(at_, offset, count, stop);
}

void Memory::back(std::size_t offset, std::size_t count) {
  STARLING_CHECK(offset <= bytes_);
  STARLING_CHECK(count <= bytes_ - offset);
  if (at_ != nullptr && !shared_) device_->back(at_, offset, count);
}

void Memory::release(std::size_t offset, std::size_t count) {
  STARLING_CHECK(offset <= bytes_);
  STARLING_CHECK(count <= bytes_ - offset);
  if (shared_) return release_pages(at_, offset, count, Pages::kShared);
  if (at_ != nullptr) device_->release(at_, offset, count);
}

std::unique_ptr<GradientMaker> Device::make_maker(const MakerSpec&) {
  return nullptr;
}

Result<> Device::tune(const MakerSpec&, const std::string&) {
  return Error(Code::kBadInput, name() + " has nothing to tune");
}

Memory Device::allocate(std::size_t bytes) {
  return {this, bytes == 0 ? nullptr : take(bytes, /*pinned=*/false), bytes, host_memory()};
}

Memory Device::pinned(std::size_t bytes) {
  return {this, bytes == 0 ? nullptr : take(bytes, /*pinned=*/true), bytes, true};
}

Memory Device::sparse(std::size_t bytes) {
  return {this, bytes == 0 ? nullptr : take_sparse(bytes), bytes, host_memory()};
}

Memory Device::shared(std::size_t bytes) {
  if (bytes == 0 || !shares()) return pinned(bytes);
  return {this, std::make_unique<SharedPages>(bytes), bytes};
}

Memory Device::exported(std::size_t bytes) {
  if (host_memory()) return shared(bytes);
  return {this, bytes == 0 ? nullptr : take_exported(bytes), bytes, false};
}

std::shared_ptr<void> Device::keep_memory() {
  const MutexLock lock(keeping_);
  const std::uint64_t keeper = next_keeper_++;
  keepers_.insert(keeper);
  return {static_cast<void*>(this), [this, keeper](void*) { let_go(keeper); }};
}

bool Device::keeps_memory() const {
  const MutexLock lock(keeping_);
  return !keepers_.empty();
}

void Device::dismiss(std::byte* at, std::size_t bytes) {
  keep_or_free({.at = at, .bytes = bytes});
}

void Device::retire(std::byte* at, const Granules::Given& given) {
  for (const Granules::Run& run : given.unused)
    keep_or_free({.at = at, .granules = run, .give = given.number});
}

void Device::keep_or_free(Kept kept) {
  const MutexLock lock(keeping_);
  if (keepers_.empty()) return free(kept);
  kept.keepers = next_keeper_;
  kept_.push_back(kept);
}

void Device::free(const Kept& kept) {
  if (kept.granules.count > 0)
    unback(kept.at, kept.granules, kept.give);
  else
    give_back(kept.at, kept.bytes);
}

void Device::let_go(std::uint64_t keeper) {
  const MutexLock lock(keeping_);
  keepers_.erase(keeper);
  const bool any = !keepers_.empty();
  const std::uint64_t oldest = any ? *keepers_.begin() : 0;
  const auto end = std::find_if(kept_.begin(), kept_.end(),
                                [&](const Kept& kept) { return any && oldest < kept.keepers; });
  for (auto kept = kept_.begin(); kept != end; ++kept) free(*kept);
  kept_.erase(kept_.begin(), end);
}

Result<> check_device(const std::string& isa) {
  if (isa == kCuda) return check_plugin();
  return ok();
}

Result<std::shared_ptr<Device>> open_device(const std::string& isa, const DeviceChoice& choice) {
  if (isa == kCuda) return open_plugin(choice);
  if (isa == kEmulated)
    return std::shared_ptr<Device>(std::make_shared<EmulatedDevice>(choice.shares));
  if (choice.shares) return make_sharing_host();
  return std::shared_ptr<Device>(&host_device(), [](Device*) {});
}

}  // namespace starling::kernels
