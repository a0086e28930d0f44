#include "core/data/token_file.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>
#include <utility>

#include "core/base/check.h"
#include "core/base/data_files.h"

namespace starling {
namespace {

struct Form {
  std::uint32_t magic, version;
};
// In the order of TokenWidth.
constexpr Form kForms[] = {{20240520, 1}, {20240801, 7}, {20261101, 1}};
constexpr std::uint32_t kEvaluationMagic = 20240522;

// Numbers of 32 or 64 bits, read as 16-bit tokens, have their upper halves at every second place: 0,
// or hardly more where the others are as large as tokens get.
Result<> check_width(const TokenFile& file, const std::string& path) {
  constexpr std::uint64_t kEnough = 16;  // of fewer nothing can be said
  constexpr std::uint32_t kUpper = 16, kLower = 4096;
  std::array<std::uint32_t, 2> largest{};
  for (std::uint64_t i = 0; i < file.size(); ++i)
    largest[i % 2] = std::max(largest[i % 2], file[i]);
  const auto [lower, upper] = std::minmax(largest[0], largest[1]);
  const bool wide = (lower == 0 && upper != 0) || (lower < kUpper && upper >= kLower);
  if (file.size() < kEnough || !wide) return ok();
  return bad_data("every second 16-bit number is " +
                      (lower == 0 ? std::string("0") : "below " + std::to_string(kUpper)) +
                      ", as in a file of 32-bit or 64-bit numbers; expected tokens of 16 bits "
                      "(numpy: tokens.astype(\"uint16\").tofile(..)), or a file with a header "
                      "(starling tokenize)",
                  path);
}

}  // namespace

std::array<std::uint32_t, kTokenHeader / 4> token_header(TokenWidth width, std::uint32_t count,
                                                         std::uint32_t sequence) {
  const Form& form = kForms[static_cast<std::size_t>(width)];
  return {form.magic, form.version, count, sequence};
}

bool has_token_header(std::uint32_t magic) {
  return std::ranges::find(kForms, magic, &Form::magic) != std::end(kForms);
}

Result<TokenFile> parse_token_file(ByteView file, const std::string& path) {
  std::array<std::uint32_t, 4> words{};
  std::memcpy(words.data(), file.data(), std::min(file.size(), sizeof words));
  const auto [magic, version, count, sequence] = words;
  if (magic == kEvaluationMagic)
    return bad_data("is an evaluation file (llm.c magic 20240522), expected tokens", path);
  const auto* const form = std::ranges::find(kForms, magic, &Form::magic);
  if (form == std::end(kForms)) {
    if (file.size() % 2 != 0)
      return bad_data(
          "must have an even number of bytes (uint16 tokens), has " + std::to_string(file.size()),
          path);
    for (const char* const of_text : {".jsonl", ".ndjson", ".json", ".txt", ".md"})
      if (path.ends_with(of_text))
        return bad_data("is a text, expected tokens, as starling tokenize makes them of texts",
                        path);
    const TokenFile raw{file};
    STARLING_TRY(check_width(raw, path));
    return raw;
  }
  const auto width = static_cast<TokenWidth>(form - kForms);
  if (version != form->version)
    return bad_data("token file's version must be " + std::to_string(form->version) + ", is " +
                        std::to_string(version) + " at byte 4",
                    path);
  const std::uint64_t wanted = kTokenHeader + std::uint64_t{count} * bytes_of(width);
  if (count == 0 || count > kTokensOfFileMax || file.size() != wanted)
    return bad_data("header says " + std::to_string(count) + " tokens at byte 8 (" +
                        std::to_string(wanted) + " bytes), file has " +
                        std::to_string(file.size()) + " bytes",
                    path);
  if (width != TokenWidth::kMasked32) return TokenFile{file.subspan(kTokenHeader), width};
  if (sequence != 0 && count % sequence != 0)
    return bad_data("has " + std::to_string(count) + " tokens, expected whole sequences of " +
                        std::to_string(sequence),
                    path);
  return TokenFile{file.subspan(kTokenHeader), width, sequence};
}

Result<> check_vocabulary(const TokenFile& file, std::int64_t vocabulary, const std::string& path) {
  for (std::uint64_t i = 0; i < file.size(); ++i)
    if (file[i] >= vocabulary)
      return bad_data("tokens must be below the vocabulary's " + std::to_string(vocabulary) +
                          ", token " + std::to_string(i) + " is " + std::to_string(file[i]),
                      path);
  return ok();
}

TokenFiles::TokenFiles(std::string folder, TokenWidth width, std::uint32_t tokens_of_file,
                       std::uint32_t sequence)
    : folder_(std::move(folder)), width_(width), of_file_(tokens_of_file), sequence_(sequence) {
  STARLING_CHECK(of_file_ >= 1 && of_file_ <= kTokensOfFileMax);
  STARLING_CHECK(sequence_ == 0 || width_ == TokenWidth::kMasked32);
  // Each file begins a sequence, so that any of them are data.
  if (sequence_ != 0) of_file_ = std::max(sequence_, of_file_ / sequence_ * sequence_);
}

TokenFiles::~TokenFiles() {
  if (file_) std::fclose(file_);
}

Error TokenFiles::cannot_write() const {
  return bad_input("cannot write " + path_ + ": " + std::strerror(errno));
}

Result<> TokenFiles::begin() {
  char name[32];
  std::snprintf(name, sizeof name, "/tokens-%06u.bin", files_);
  path_ = folder_ + name;
  file_ = std::fopen(path_.c_str(), "wbxe");
  const auto empty = token_header(width_, 0, sequence_);
  if (!file_ || std::fwrite(empty.data(), sizeof empty, 1, file_) != 1) return cannot_write();
  ++files_;
  here_ = 0;
  return ok();
}

Result<> TokenFiles::end() {
  const auto whole = token_header(width_, here_, sequence_);
  std::FILE* const file = std::exchange(file_, nullptr);
  const bool written = std::fseek(file, 0, SEEK_SET) == 0 &&
                       std::fwrite(whole.data(), sizeof whole, 1, file) == 1 &&
                       std::fflush(file) == 0 && ::fsync(::fileno(file)) == 0;
  const int error = errno;
  const bool closed = std::fclose(file) == 0;
  if (!written) errno = error;
  return written && closed ? Result<>(ok()) : cannot_write();
}

Result<> TokenFiles::append(std::span<const std::uint32_t> tokens) {
  while (!tokens.empty()) {
    if (!file_) {
      STARLING_TRY(begin());
    }
    const auto some = tokens.first(std::min<std::size_t>(tokens.size(), of_file_ - here_));
    buffer_.resize(some.size() * bytes_of(width_));
    for (std::size_t i = 0; i < some.size(); ++i)
      std::memcpy(buffer_.data() + i * bytes_of(width_), &some[i], bytes_of(width_));
    if (std::fwrite(buffer_.data(), 1, buffer_.size(), file_) != buffer_.size())
      return cannot_write();
    here_ += static_cast<std::uint32_t>(some.size());
    tokens_ += some.size();
    tokens = tokens.subspan(some.size());
    if (here_ == of_file_) {
      STARLING_TRY(end());
    }
  }
  return ok();
}

Result<> TokenFiles::finish() {
  return file_ ? end() : Result<>(ok());
}

}  // namespace starling
