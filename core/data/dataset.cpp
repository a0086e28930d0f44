#include "core/data/dataset.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/base/data_files.h"
#include "core/base/mutex.h"
#include "core/data/bytes_source.h"
#include "core/data/classified.h"
#include "core/data/lane_dataset.h"
#include "core/data/own_dataset.h"
#include "core/data/permutation.h"
#include "core/data/token_file.h"
#include "core/data/token_source.h"
#include "core/data/token_window.h"

namespace starling {
namespace {

// Sequences of `context` tokens and one more for the last target.
Result<std::uint64_t> sequences_in(std::uint64_t tokens, std::uint64_t context, const char* unit,
                                   const std::string& path) {
  if (tokens < context + 1)
    return bad_data(
        "must have at least " + std::to_string(context + 1) + " " + unit + " (context + 1), has " +
            std::to_string(tokens) +
            (tokens == 0 && std::string_view(unit) == "tokens"
                 ? "; of a folder its .bin files count, as starling tokenize writes them"
                 : ""),
        path);
  return (tokens - 1) / context;
}

// Data whose bytes stay where they are: samples are read as they are asked for.
class MappedDataset : public Dataset {
 protected:
  // `form`: what else than its bytes says which samples the source has.
  Result<> take(std::unique_ptr<BytesSource> source, std::uint64_t samples, const std::string& path,
                const Digest& form = {}) {
    source_ = std::move(source);
    path_ = path;
    samples_ = samples;
    form_ = form;
    STARLING_TRY(identity, identity_of(source_->size(), reader()));
    identity_ = identity + form_;
    STARLING_TRY(touched, source_->touched(0, source_->size()));
    if (touched) return changed(*touched, "");
    return ok();
  }

  // `take` copies these bytes into the batch, and again if their file was written to meanwhile.
  // Errors: kBadInput  they are not those that the identity is of, or may not be.
  template <class Take>
  Result<> copy(std::uint64_t at, std::size_t count, Batch& batch, const Take& take) const {
    const std::size_t tokens = batch.tokens.size(), targets = batch.targets.size();
    for (;;) {
      Bytes room;
      STARLING_TRY(bytes, source_->read(at, count, room));
      take(bytes);
      STARLING_TRY(touched, source_->touched(at, count));
      if (!touched) return ok();
      STARLING_TRY(look_again());
      batch.tokens.resize(tokens);
      batch.targets.resize(targets);
    }
  }
  Result<> unchanged_all() const override { return look_again(); }

 public:
  std::string remark() const override {
    const auto& links = source_->links();
    if (links.empty()) return {};
    return "symbolic links in the folder of data are not followed, " +
           std::to_string(links.size()) + " left out: " + links.front() +
           (links.size() > 1 ? ", .." : "") + " (a pattern such as \"" + path_ +
           "/*\" takes links to files)";
  }

 private:
  // Reads again what the identity covers, after a file may have been written to.
  Result<> look_again() const {
    const MutexLock lock(looking_);
    // The bytes that are read are those of the time between these two looks.
    STARLING_TRY(before, source_->touched(0, source_->size()));
    if (before) {
      if (!is_known_whole(source_->size())) return changed(*before, " (its times say so)");
      STARLING_TRY(source_->accept());
    }
    STARLING_TRY(identity, identity_of(source_->size(), reader()));
    STARLING_TRY(after, source_->touched(0, source_->size()));
    if (after) return changed(*after, "");
    if (identity + form_ != identity_) return changed(before.value_or(path_), "");
    return ok();
  }

  static Error changed(const std::string& path, const char* how) {
    return bad_data(std::string("a file was changed while it was in use") + how +
                        ", expected the bytes that the job began with",
                    path);
  }

  ReadAt reader() const {
    return [this, room = Bytes()](std::uint64_t at, std::size_t count) mutable {
      return source_->read(at, count, room);
    };
  }
  std::optional<Digest> content(const std::function<bool()>& go_on) const override {
    if (is_known_whole(source_->size())) return identity();
    const auto all = content_of(source_->size(), reader(), go_on);
    return all ? std::optional(*all + form_) : std::nullopt;
  }

  std::unique_ptr<BytesSource> source_;
  std::string path_;
  Digest form_{};
  mutable Mutex looking_;
};

class TextDataset : public MappedDataset {
 public:
  static Result<std::unique_ptr<Dataset>> open(const DataSpec& spec, const ModelInput& input) {
    std::unique_ptr<TextDataset> set(new TextDataset);
    STARLING_TRY(source, BytesSource::open(spec.path, spec.extensions));
    STARLING_TRY(samples, sequences_in(source->size(), input.positions, "bytes", spec.path));
    set->context_ = input.positions;
    STARLING_TRY(set->take(std::move(source), samples, spec.path));
    return std::unique_ptr<Dataset>(std::move(set));
  }

 private:
  Result<> append(std::uint64_t i, Batch& batch) const override {
    return copy(i * context_, context_ + 1, batch, [&](ByteView bytes) {
      batch.tokens.insert(batch.tokens.end(), bytes.begin(), bytes.end() - 1);
      batch.targets.insert(batch.targets.end(), bytes.begin() + 1, bytes.end());
    });
  }

  std::size_t context_ = 0;
};

class TokenDataset : public MappedDataset {
 public:
  static Result<std::unique_ptr<Dataset>> open(const DataSpec& spec, const ModelInput& input) {
    std::unique_ptr<TokenDataset> set(new TokenDataset);
    STARLING_TRY(source, TokenSource::open(spec.path, spec.extensions,
                                           [&](const TokenFile& file, const std::string& path) {
                                             return fits(file, input, path);
                                           }));
    set->width_ = source.width;
    set->sequence_ = source.sequence;
    set->context_ = input.positions;
    set->tokens_ = source.tokens();
    // Behind the last of them no token needs to be: none of another document is learned.
    const std::uint64_t there = set->tokens_ + (set->sequence_ != 0 ? 1 : 0);
    STARLING_TRY(samples, sequences_in(there, input.positions, "tokens", spec.path));
    STARLING_TRY(set->find_learned(*source.bytes, samples, spec.path));
    const std::uint64_t sequence[] = {set->sequence_};
    const Digest form = set->sequence_ != 0
                            ? identity_of(as_bytes(std::span<const std::uint64_t>(sequence)))
                            : Digest{};
    STARLING_TRY(set->take(std::move(source.bytes), samples - set->left_out_, spec.path, form));
    return std::unique_ptr<Dataset>(std::move(set));
  }

  std::string remark() const override {
    std::string text = MappedDataset::remark();
    if (left_out_ > 0)
      text += (text.empty() ? "" : "; ") + std::to_string(left_out_) + " of " +
              std::to_string(samples_ + left_out_) +
              " sequences have no token to learn and are left out";
    return text;
  }

 private:
  static Result<> fits(const TokenFile& file, const ModelInput& input, const std::string& path) {
    STARLING_TRY(check_vocabulary(file, input.vocabulary, path));
    if (file.sequence != 0 && file.sequence != input.positions)
      return bad_data("has " + sequences_text(file.sequence) +
                          ", as --pad-to or --pack has said; the context must be as long, is " +
                          std::to_string(input.positions),
                      path);
    return ok();
  }
  // The tokens of window i, and of the one after it the first, if there is one.
  std::pair<std::uint64_t, std::size_t> window(std::uint64_t i) const {
    const std::uint64_t first = i * context_;
    return {first,
            static_cast<std::size_t>(std::min<std::uint64_t>(context_ + 1, tokens_ - first))};
  }
  // Finds the windows that are samples, where some are not.
  Result<> find_learned(const BytesSource& source, std::uint64_t windows, const std::string& path) {
    if (width_ != TokenWidth::kMasked32) return ok();
    Bytes room;
    std::vector<std::uint64_t> learned;
    for (std::uint64_t i = 0; i < windows; ++i) {
      const auto [first, count] = window(i);
      STARLING_TRY(bytes, source.read(first * bytes_of(width_), count * bytes_of(width_), room));
      const TokenFile tokens{bytes, width_};
      std::uint64_t t = 1;
      while (t < count && !tokens.is_learned(t)) ++t;
      if (t < count) learned.push_back(i);
    }
    if (learned.empty()) return bad_data("no token of it is to be learned, by its loss mask", path);
    left_out_ = windows - learned.size();
    if (left_out_ > 0) learned_ = std::move(learned);
    return ok();
  }

  Result<> append(std::uint64_t i, Batch& batch) const override {
    const std::size_t bytes = bytes_of(width_);
    const auto [first, count] = window(learned_.empty() ? i : learned_[i]);
    return copy(first * bytes, count * bytes, batch, [&](ByteView tokens) {
      append_window({tokens, width_}, context_, batch);
    });
  }

  std::size_t context_ = 0;
  std::uint64_t tokens_ = 0;
  TokenWidth width_ = TokenWidth::k16;
  std::uint32_t sequence_ = 0;            // TokenFile::sequence
  std::vector<std::uint64_t> learned_{};  // the windows that are samples; empty: all
  std::uint64_t left_out_ = 0;
};

// x and y lie in memory, so a file that changes later changes nothing.
class ClassifiedDataset : public Dataset {
 public:
  static Result<std::unique_ptr<Dataset>> open(const DataSpec& spec, const ModelInput& input) {
    std::unique_ptr<ClassifiedDataset> set(new ClassifiedDataset);
    STARLING_TRY(rows, read_classified(spec.path, static_cast<std::uint32_t>(input.features),
                                       static_cast<std::uint32_t>(input.classes)));
    set->rows_ = std::move(rows);
    set->inputs_ = input.features;
    set->samples_ = set->rows_.y.size();
    set->identity_ = identity_of(as_bytes(std::span<const float>(set->rows_.x))) +
                     identity_of(as_bytes(std::span<const std::int32_t>(set->rows_.y)));
    return std::unique_ptr<Dataset>(std::move(set));
  }

 private:
  Result<> append(std::uint64_t i, Batch& batch) const override {
    const auto row = rows_.x.begin() + static_cast<std::ptrdiff_t>(i * inputs_);
    batch.x.insert(batch.x.end(), row, row + static_cast<std::ptrdiff_t>(inputs_));
    batch.targets.push_back(rows_.y[i]);
    return ok();
  }
  std::optional<Digest> content(const std::function<bool()>& go_on) const override {
    const ByteView arrays[] = {as_bytes(std::span<const float>(rows_.x)),
                               as_bytes(std::span<const std::int32_t>(rows_.y))};
    if (std::ranges::all_of(arrays, [](ByteView a) { return is_known_whole(a.size()); }))
      return identity();
    Digest all{};
    for (const ByteView array : arrays) {
      const auto one = content_of(
          array.size(),
          [array](std::uint64_t at, std::size_t count) -> Result<ByteView> {
            return array.subspan(at, count);
          },
          go_on);
      if (!one) return std::nullopt;
      all = all + *one;
    }
    return all;
  }

  ClassifiedRows rows_;
  std::size_t inputs_ = 0;
};

class EmptyDataset : public Dataset {
 public:
  static Result<std::unique_ptr<Dataset>> open() {
    std::unique_ptr<EmptyDataset> set(new EmptyDataset);
    set->samples_ = 1;
    return std::unique_ptr<Dataset>(std::move(set));
  }

 private:
  Result<> append(std::uint64_t, Batch&) const override { return ok(); }
  std::optional<Digest> content(const std::function<bool()>&) const override { return identity(); }
};

// Data that a script has: samples are numbers.
class NumberedDataset : public Dataset {
 public:
  static Result<std::unique_ptr<Dataset>> open(std::uint64_t samples) {
    std::unique_ptr<NumberedDataset> set(new NumberedDataset);
    set->samples_ = samples;
    return std::unique_ptr<Dataset>(std::move(set));
  }

 private:
  Result<> append(std::uint64_t i, Batch& batch) const override {
    batch.samples.push_back(i);
    return ok();
  }
  // The processes of a script read and compare its data (actors/script).
  std::optional<Digest> content(const std::function<bool()>&) const override { return identity(); }
};

Result<std::unique_ptr<Dataset>> open_files(const DataSpec& spec, const ModelInput& input) {
  // parse_job refuses what does not fit the model.
  STARLING_CHECK((spec.kind == DataKind::kClassified) == !input.tokens());
  if (spec.kind == DataKind::kClassified) return ClassifiedDataset::open(spec, input);
  if (spec.kind == DataKind::kTokens) return TokenDataset::open(spec, input);
  STARLING_CHECK(input.vocabulary == 256);
  return TextDataset::open(spec, input);
}

Result<std::unique_ptr<Dataset>> open_kind(const Job& job) {
  STARLING_TRY(own, open_own_data(job));
  if (own) return std::move(own);
  if (const auto input = input_of(job.model))
    return job.data.order == DataOrder::kLanes ? open_lanes(job, *input)
                                               : open_files(job.data, *input);
  return std::visit(
      [](const auto& spec) {
        if constexpr (requires { spec.samples; })
          return NumberedDataset::open(std::max<std::uint64_t>(1, spec.samples));
        else
          return EmptyDataset::open();
      },
      job.model);
}

}  // namespace

Result<std::unique_ptr<Dataset>> Dataset::open(const Job& job) {
  STARLING_TRY(set, open_kind(job));
  set->seed_ = job.seed;
  set->micro_batches_ = job.micro_batches;
  set->sequences_ = job.micro_batch_sequences;
  set->steps_ = job.steps;
  return std::move(set);
}

std::uint64_t Dataset::sample_of(std::uint64_t step, MicroBatch m, std::uint32_t sequence) const {
  STARLING_CHECK(m < micro_batches_);
  STARLING_CHECK(sequence < sequences_);
  // Below 2^60: steps < 2^32, M <= 2^12, B <= 2^16.
  const std::uint64_t place = (step * micro_batches_ + m) * sequences_ + sequence;
  return Permutation(seed_, place / samples_, samples_)(place % samples_);
}

Result<Batch> Dataset::micro_batch(std::uint64_t step, MicroBatch m) const {
  expect(step, m);
  std::vector<std::uint64_t> samples(sequences_);
  for (std::uint32_t b = 0; b < sequences_; ++b) samples[b] = sample_of(step, m, b);
  STARLING_TRY(batch, fill(samples));
  // Changes that left no trace, through a mapping or on a network file system, are seen before the
  // job is done.
  if (step + 1 == steps_ && !seen_at_end_.exchange(true)) {
    STARLING_TRY(unchanged_all());
  }
  batch.draw = {seed_, step, m};
  return std::move(batch);
}

Result<Batch> Dataset::fill(std::span<const std::uint64_t> samples) const {
  Batch batch;
  batch.sequences = static_cast<std::uint32_t>(samples.size());
  for (const auto i : samples) {
    STARLING_CHECK_MSG(i < samples_, "sample " << i << " of " << samples_);
    STARLING_TRY(append(i, batch));
  }
  return batch;
}

}  // namespace starling
