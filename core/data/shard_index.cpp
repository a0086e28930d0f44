#include "core/data/shard_index.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "core/base/check.h"
#include "core/base/data_files.h"
#include "core/base/hash.h"
#include "core/base/json.h"

namespace starling {
namespace {

using Json = nlohmann::json;

constexpr const char* kFormat = "starling shards";
constexpr std::uint64_t kVersion = 1;
constexpr std::size_t kNameMax = 200;

// Whether the name is one component, so that nothing beside the index's own folder is read.
bool is_plain(std::string_view name) {
  return !name.empty() && name.size() <= kNameMax && name.front() != '.' &&
         std::ranges::all_of(name, [](unsigned char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  c == '-' || c == '_' || c == '.';
         });
}

std::optional<Digest> digest_in(std::string_view text) {
  if (text.size() != 32) return std::nullopt;
  Digest digest{};
  for (std::size_t i = 0; i < 32; ++i) {
    const char c = text[i];
    const bool is_digit = c >= '0' && c <= '9';
    if (!is_digit && !(c >= 'a' && c <= 'f')) return std::nullopt;
    std::uint64_t& word = digest[i < 16 ? 1 : 0];
    word = word << 4 | static_cast<std::uint64_t>(is_digit ? c - '0' : c - 'a' + 10);
  }
  return digest;
}

// Reads an index; the first thing that is wrong is the fault.
class Reading {
 public:
  std::string fault;

  std::uint64_t whole(const Json& table, const char* key, std::uint64_t least, std::uint64_t most) {
    const auto it = table.find(key);
    if (it != table.end() && it->is_number_unsigned()) {
      const auto value = it->get<std::uint64_t>();
      if (value >= least && value <= most) return value;
    }
    wrong(std::string(key) + " must be an integer from " + std::to_string(least) + " to " +
          std::to_string(most));
    return least;
  }

  void shard(const Json& json, ShardIndex& index) {
    const std::string which = "shard " + std::to_string(index.shards.size());
    if (!json.is_object()) return wrong(which + " must be an object");
    const auto name = json.find("name");
    if (name == json.end() || !name->is_string() || !is_plain(name->get_ref<const std::string&>()))
      return wrong("the name of " + which + " must be that of a file beside the index");
    if (!names_.insert(name->get<std::string>()).second)
      return wrong("the name of " + which + " is there twice");
    const auto chunks = json.find("chunks");
    if (chunks == json.end() || !chunks->is_array() || chunks->empty() ||
        chunks->size() > ShardIndex::kChunksMax - index.chunks())
      return wrong("chunks of " + which + " must be a list, of all at most " +
                   std::to_string(ShardIndex::kChunksMax));
    std::vector<Digest> digests;
    for (const Json& chunk : *chunks) {
      const auto digest =
          chunk.is_string() ? digest_in(chunk.get_ref<const std::string&>()) : std::nullopt;
      if (!digest) return wrong("chunks of " + which + " must be texts of 32 hex digits");
      digests.push_back(*digest);
    }
    index.add(name->get<std::string>(), std::move(digests));
    const std::uint64_t bytes = index.shard_bytes(index.shards.back());
    if (fault.empty() && whole(json, "bytes", 0, ~std::uint64_t{0}) != bytes)
      wrong("bytes of " + which + " must be " + std::to_string(bytes) +
            ", as its chunks have them");
  }

  void wrong(std::string what) {
    if (fault.empty()) fault = std::move(what);
  }

 private:
  std::set<std::string> names_;
};

}  // namespace

void ShardIndex::add(std::string name, std::vector<Digest> of_chunks) {
  const std::uint64_t first = chunks();
  shards.push_back({std::move(name), std::move(of_chunks), first});
}

std::uint64_t ShardIndex::chunks() const {
  return shards.empty() ? 0 : shards.back().first + shards.back().chunks.size();
}

std::uint64_t ShardIndex::chunk_bytes() const {
  return (std::uint64_t{chunk_tokens} + (sequence == 0 ? 1 : 0)) * bytes_of(width);
}

std::uint64_t ShardIndex::shard_bytes(const Shard& shard) const {
  const std::uint64_t tokens = shard.chunks.size() * std::uint64_t{chunk_tokens};
  return kTokenHeader + (tokens + (sequence == 0 ? 1 : 0)) * bytes_of(width);
}

ChunkPlace ShardIndex::place(std::uint64_t i) const {
  STARLING_CHECK_MSG(i < chunks(), "chunk " << i << " of " << chunks());
  const auto behind = std::ranges::upper_bound(shards, i, {}, &Shard::first);
  const auto shard = std::prev(behind);
  const std::uint64_t within = i - shard->first;
  return {static_cast<std::size_t>(shard - shards.begin()),
          kTokenHeader + within * chunk_tokens * bytes_of(width), chunk_bytes(),
          shard->chunks[within]};
}

Digest ShardIndex::identity() const {
  ByteWriter all;
  for (const std::uint64_t number : {kVersion, static_cast<std::uint64_t>(width),
                                     std::uint64_t{sequence}, std::uint64_t{chunk_tokens}})
    all.put(number);
  for (const Shard& shard : shards) all.put_bytes(as_bytes(std::span<const Digest>(shard.chunks)));
  return hash128(std::move(all).take());
}

std::string ShardIndex::format() const {
  using Ordered = nlohmann::ordered_json;
  Ordered list = Ordered::array();
  for (const Shard& shard : shards) {
    Ordered digests = Ordered::array();
    for (const Digest& digest : shard.chunks) digests.push_back(to_string(digest));
    list.push_back(
        {{"name", shard.name}, {"bytes", shard_bytes(shard)}, {"chunks", std::move(digests)}});
  }
  const Ordered index{{"format", kFormat},
                      {"version", kVersion},
                      {"bits", 8 * bytes_of(width)},
                      {"loss_mask", width == TokenWidth::kMasked32},
                      {"sequence", sequence},
                      {"vocabulary", vocabulary},
                      {"chunk_tokens", chunk_tokens},
                      {"tokens", tokens()},
                      {"shards", std::move(list)}};
  return index.dump(1) + "\n";
}

Result<ShardIndex> ShardIndex::parse(std::string_view text, const std::string& where) {
  const auto wrong = [&](const std::string& what) {
    return bad_data("is no index of shards, as starling shard writes it: " + what, where);
  };
  if (text.size() > kBytesMax)
    return wrong("has more than " + std::to_string(kBytesMax) + " bytes");
  auto parsed = parse_json(text, 4);
  if (!parsed) return wrong(parsed.error().text());
  const Json& json = parsed.value();
  const auto format = json.is_object() ? json.find("format") : json.end();
  if (!json.is_object() || format == json.end() || *format != kFormat)
    return wrong("\"format\" must be \"" + std::string(kFormat) + "\"");
  Reading r;
  r.whole(json, "version", kVersion, kVersion);
  ShardIndex index;
  const std::uint64_t bits = r.whole(json, "bits", 16, 32);
  const auto mask = json.find("loss_mask");
  if (mask == json.end() || !mask->is_boolean()) r.wrong("loss_mask must be true or false");
  const bool masked = r.fault.empty() && mask->get<bool>();
  if (bits != 16 && bits != 32) r.wrong("bits must be 16 or 32");
  if (masked && bits != 32) r.wrong("bits must be 32 with a loss mask");
  index.width = masked ? TokenWidth::kMasked32 : bits == 16 ? TokenWidth::k16 : TokenWidth::k32;
  index.sequence = static_cast<std::uint32_t>(r.whole(json, "sequence", 0, kChunkTokensMax));
  index.vocabulary =
      static_cast<std::uint32_t>(r.whole(json, "vocabulary", 1, bits == 16 ? 1u << 16 : 1u << 31));
  index.chunk_tokens =
      static_cast<std::uint32_t>(r.whole(json, "chunk_tokens", 1, kChunkTokensMax));
  // Of tokens with a mask that lie anywhere, some windows would have nothing to learn, and be no samples.
  if (masked != (index.sequence != 0)) r.wrong("sequence must be there with a loss mask alone");
  if (index.sequence != 0 && index.chunk_tokens % index.sequence != 0)
    r.wrong("chunk_tokens must be a multiple of sequence");
  const auto shards = json.find("shards");
  if (shards == json.end() || !shards->is_array() || shards->empty())
    r.wrong("shards must be a list of at least one");
  if (r.fault.empty())
    for (const Json& shard : *shards) {
      r.shard(shard, index);
      if (!r.fault.empty()) break;
    }
  if (r.fault.empty() && r.whole(json, "tokens", 0, ~std::uint64_t{0}) != index.tokens())
    r.wrong("tokens must be " + std::to_string(index.tokens()) + ", as the chunks have them");
  if (!r.fault.empty()) return wrong(r.fault);
  return index;
}

}  // namespace starling
