#include "core/data/token_source.h"

#include <utility>

#include "core/base/data_files.h"

namespace starling {
namespace {

std::string bits_text(TokenWidth width) {
  return std::to_string(8 * bytes_of(width)) + " bits" +
         (width == TokenWidth::kMasked32 ? " with a loss mask" : "");
}

}  // namespace

std::string sequences_text(std::uint32_t sequence) {
  return sequence == 0 ? "tokens without sequences"
                       : "sequences of " + std::to_string(sequence) + " tokens";
}

Result<TokenSource> TokenSource::open(const std::string& path,
                                      const std::vector<std::string>& extensions,
                                      const Check& check) {
  TokenSource source;
  std::string first;
  const auto payload = [&](ByteView file, const std::string& of) -> Result<ByteView> {
    STARLING_TRY(found, parse_token_file(file, of));
    STARLING_TRY(check(found, of));
    if (first.empty()) {
      first = of;
      source.width = found.width;
      source.sequence = found.sequence;
    }
    if (found.width != source.width)
      return bad_data("has tokens of " + bits_text(found.width) + ", expected " +
                          bits_text(source.width) + " as in " + first,
                      of);
    if (found.sequence != source.sequence)
      return bad_data("has " + sequences_text(found.sequence) + ", expected " +
                          sequences_text(source.sequence) + " as in " + first,
                      of);
    return found.tokens;
  };
  // A folder's files count only if they say that they are tokens: any file could be raw ones.
  STARLING_TRY(bytes, BytesSource::open(
                          path, extensions.empty() ? std::vector<std::string>{".bin"} : extensions,
                          payload));
  source.bytes = std::move(bytes);
  return source;
}

}  // namespace starling
