#include "actors/base_weights.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "actors/pretrained.h"
#include "core/base/check.h"
#include "core/base/hash.h"
#include "core/base/mutex.h"
#include "core/formats/mapped_file.h"
#include "core/formats/pretrained.h"

namespace starling::actors {
namespace {

// Matrices lie in mapped files, and those of 16 bits become floats when they are read; vectors, which are small, lie in
// memory as floats.
class MappedBase : public kernels::FrozenTensors {
 public:
  static Result<std::shared_ptr<const MappedBase>> make(FittedWeights fitted) {
    auto base = std::make_shared<MappedBase>();
    for (const auto& [spec, tensor] : fitted.tensors) {
      STARLING_TRY(place, base->place_of(fitted.weights, *spec, *tensor));
      base->places_.push_back(std::move(place));
    }
    for (auto& [path, file] : base->files_) {
      STARLING_TRY(stamp, file.mapped->stamp());
      file.stamp = stamp;
      file.values = base->values_of(file);
    }
    // The files that were mapped are those that the digest was made of.
    STARLING_TRY(fitted.weights.unchanged());
    return std::shared_ptr<const MappedBase>(std::move(base));
  }

  const float* read(std::size_t tensor, std::uint64_t from, std::size_t count,
                    float* room) const override {
    const Place& place = places_[tensor];
    STARLING_CHECK(from + count <= place.elements);
    if (!place.vector.empty()) return place.vector.data() + from;
    const std::uint8_t* const at = place.bytes + from * dtype_size(place.dtype);
    if (place.dtype == Dtype::kF32) {
      if (reinterpret_cast<std::uintptr_t>(at) % alignof(float) == 0)
        return reinterpret_cast<const float*>(at);
      std::memcpy(room, at, count * sizeof(float));
      return room;
    }
    widen(at, place.dtype, {room, count});
    return room;
  }
  Result<> intact() const override {
    const MutexLock lock(looking_);
    for (const auto& [path, file] : files_) {
      STARLING_TRY(now, file.mapped->stamp());
      if (now == file.stamp) continue;
      // A new name, mode or owner moves the stamp as a write does, and leaves the values.
      const bool same = now.same_but_changed(file.stamp) && values_of(file) == file.values;
      STARLING_TRY(then, file.mapped->stamp());
      if (!same || !(then == now))
        return bad_input("was changed while it was in use; reading weights " + path);
      file.stamp = now;
    }
    return ok();
  }

 private:
  struct Place {
    std::uint64_t elements = 0;
    Dtype dtype = Dtype::kF32;
    const std::uint8_t* bytes = nullptr;
    std::vector<float> vector;  // of one dimension
  };
  struct File {
    std::unique_ptr<const MappedFile> mapped;
    mutable MappedFile::Stamp stamp{};  // guarded by looking_
    Digest values{};
  };

  // A hash of the matrices that lie in a file, as they lie there.
  Digest values_of(const File& file) const {
    const ByteView all = file.mapped->bytes();
    Digest digest{};
    for (const Place& place : places_) {
      const bool here = place.bytes != nullptr && place.bytes >= all.data() &&
                        place.bytes < all.data() + all.size();
      if (here)
        digest = hash128(ByteView(place.bytes, place.elements * dtype_size(place.dtype)),
                         mix64(digest[0], digest[1]));
    }
    return digest;
  }

  Result<Place> place_of(const PretrainedWeights& weights, const TensorSpec& spec,
                         const PretrainedWeights::Tensor& tensor) {
    Place place{.elements = spec.elements(), .dtype = tensor.entry->dtype};
    if (spec.shape.size() == 1) {
      place.vector.resize(place.elements);
      STARLING_TRY(weights.read(tensor, 0, place.vector));
      return place;
    }
    auto& mapped = files_[tensor.file->path()].mapped;
    if (mapped == nullptr) {
      STARLING_TRY(opened, MappedFile::open(tensor.file->path()));
      mapped = std::make_unique<const MappedFile>(std::move(opened));
    }
    const std::uint64_t at = tensor.file->place(*tensor.entry);
    const std::uint64_t bytes = place.elements * dtype_size(place.dtype);
    if (at + bytes > mapped->bytes().size())
      return bad_input("was cut while it was read; weights " + tensor.file->path());
    place.bytes = mapped->bytes().data() + at;
    return place;
  }

  std::map<std::string, File> files_;
  std::vector<Place> places_;
  mutable Mutex looking_;
};

}  // namespace

Result<> open_base(const Job& job, kernels::Model& model) {
  const LoraSpec lora = lora_of(job.model);
  if (!lora.on()) return ok();
  if (lora.base.empty())
    return bad_input("the job does not say which weights it adapts, as load_job() has it say");
  STARLING_TRY(fitted, fitted_weights(job.model, model.frozen()));
  STARLING_TRY(digest, digest_of(fitted.weights, job.model));
  if (to_string(digest) != lora.base)
    return bad_input("the weights " + fitted.weights.path() +
                     " are not those that the job adapts: their digest is " + to_string(digest) +
                     ", the job's " + lora.base);
  STARLING_TRY(base, MappedBase::make(std::move(fitted)));
  model.set_frozen(std::move(base));
  return ok();
}

}  // namespace starling::actors
