#include "core/data/own_dataset.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "core/base/bytes.h"
#include "core/base/exception.h"
#include "core/base/hash.h"

namespace starling {
namespace {

class OwnDataset : public Dataset {
 public:
  static Result<std::unique_ptr<Dataset>> open(const OwnDataSource& source, const OwnSpec& spec,
                                               const std::string& path) try {
    std::unique_ptr<OwnDataset> set(new OwnDataset);
    STARLING_TRY(data, source.open(spec, path));
    if (data.samples == 0 || !data.append)
      return Error(Code::kBadInput,
                   "the data of \"" + spec.name + "\" have no samples; [model].name");
    set->samples_ = data.samples;
    set->identity_ = data.identity;
    set->append_ = std::move(data.append);
    Batch first;
    STARLING_TRY(set->append_(0, first));
    set->first_ = Size::of(first);
    if (data.identity != Digest{}) return std::unique_ptr<Dataset>(std::move(set));
    set->compares_ = true;
    STARLING_TRY(drawn, set->drawn());
    set->identity_ = drawn;
    return std::unique_ptr<Dataset>(std::move(set));
  } catch (...) {  // the application's
    return error_of_exception("opening the data of \"" + spec.name + "\"");
  }

 private:
  // The numbers of each kind. A model finds a sample in the batch by its place alone.
  struct Size {
    std::size_t tokens = 0, targets = 0, x = 0, samples = 0;
    static Size of(const Batch& batch) {
      return {batch.tokens.size(), batch.targets.size(), batch.x.size(), batch.samples.size()};
    }
    Size operator-(const Size& o) const {
      return {tokens - o.tokens, targets - o.targets, x - o.x, samples - o.samples};
    }
    bool operator==(const Size&) const = default;
    std::string text() const {
      return std::to_string(x) + " values, " + std::to_string(tokens) + " tokens and " +
             std::to_string(targets) + " targets";
    }
  };

  Result<> append(std::uint64_t i, Batch& batch) const override try {
    const Size before = Size::of(batch);
    STARLING_TRY(append_(i, batch));
    const Size added = Size::of(batch) - before;
    if (added == first_) return ok();
    return Error(Code::kBadInput, "sample " + std::to_string(i) + " has " + added.text() +
                                      ", expected as many as sample 0, " + first_.text());
  } catch (...) {
    return error_of_exception("reading sample " + std::to_string(i));
  }

  // Returns the digest of what is known and of sample i behind it.
  Result<Digest> with_sample(const Digest& known, std::uint64_t i) const {
    Batch sample;
    STARLING_TRY(append(i, sample));
    Digest digest = known;
    const auto add = [&](const auto& numbers) {
      digest = hash128(as_bytes(std::span(numbers)), mix64(mix64(digest[0], digest[1]), i));
    };
    add(sample.tokens);
    add(sample.targets);
    add(sample.x);
    add(sample.samples);
    return digest;
  }

  // Returns the digest of kDrawn samples, spread over all. Each is read twice.
  Result<Digest> drawn() const {
    Digest digest{samples_, 0};
    const std::uint64_t count = std::min(samples_, kDrawn);
    for (std::uint64_t k = 0; k < count; ++k) {
      const std::uint64_t i = k * (samples_ / count) + k * (samples_ % count) / count;
      STARLING_TRY(once, with_sample(digest, i));
      STARLING_TRY(again, with_sample(digest, i));
      if (once != again)
        return Error(Code::kBadInput,
                     "sample " + std::to_string(i) +
                         " is another one when it is read again, expected the same each time");
      digest = once;
    }
    return digest;
  }

  Result<> unchanged_all() const override {
    if (!compares_) return ok();
    STARLING_TRY(now, drawn());
    if (now == identity_) return ok();
    return Error(Code::kBadInput,
                 "the application's data were changed while they were in use, expected the samples "
                 "that the job began with");
  }

  // Without an identity of the application's all samples are read, in a fifth of the time.
  std::optional<Digest> content(const std::function<bool()>& go_on) const override {
    if (!compares_ || samples_ <= kDrawn) return identity();
    Digest digest = identity();
    auto begun = std::chrono::steady_clock::now();
    for (std::uint64_t i = 0; i < samples_; ++i) {
      if (!go_on()) return std::nullopt;
      const auto with = with_sample(digest, i);
      if (!with) return std::nullopt;
      digest = with.value();
      const auto took = std::chrono::steady_clock::now() - begun;
      if (took < std::chrono::milliseconds(1)) continue;
      std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(4 * took, kPauseMax));
      begun = std::chrono::steady_clock::now();
    }
    return digest;
  }

  static constexpr std::uint64_t kDrawn = 256;
  static constexpr std::chrono::seconds kPauseMax{1};

  std::function<Result<>(std::uint64_t, Batch&)> append_;
  Size first_;
  bool compares_ = false;  // identity_ is of samples, as the application has given none
};

}  // namespace

Result<std::unique_ptr<Dataset>> open_own_data(const Job& job) {
  const auto* spec = std::get_if<OwnSpec>(&job.model);
  const auto* source = spec ? Named<OwnDataSource>::find(spec->name) : nullptr;
  if (source == nullptr) return std::unique_ptr<Dataset>();
  return OwnDataset::open(*source, *spec, job.data.path);
}

}  // namespace starling
