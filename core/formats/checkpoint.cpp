#include "core/formats/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/base/hash.h"
#include "core/base/text.h"
#include "core/wire/limits.h"
#include "core/wire/step_codec.h"

namespace starling {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr const char* kManifestFormat = "starling-checkpoint";
// 2: segments are cut at parts, and steps compute other bits than those of 1.
// 3: a matrix above Layout::kPartBytesMax is cut at other rows. The fingerprint says where parts begin, so
// one of version 2 goes on where that is the same.
constexpr unsigned kSecondFormat = 2, kFormatVersion = 3;
// As 3, with changes of the rate: a build that does not know them would go on with another rate.
constexpr unsigned kFormatWithRates = 4;
constexpr const char* kManifest = "manifest.json";
constexpr std::string_view kFolder = "step-";

std::optional<Bytes> unhex(const std::string& text) {
  if (text.size() % 2 != 0) return std::nullopt;
  Bytes bytes(text.size() / 2);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const char* at = text.data() + 2 * i;
    const auto read = std::from_chars(at, at + 2, bytes[i], 16);
    if (read.ec != std::errc() || read.ptr != at + 2) return std::nullopt;
  }
  return bytes;
}

// ManifestReading collects what is wrong with the fields; the first fault stays.
class ManifestReading {
 public:
  void wrong(const char* what) {
    if (fault_.empty()) fault_ = what;
  }
  const std::string& fault() const { return fault_; }

  std::uint64_t whole(const OrderedJson& value, std::uint64_t max, const char* what) {
    if (value.is_number_unsigned() && value.get<std::uint64_t>() <= max)
      return value.get<std::uint64_t>();
    wrong(what);
    return 0;
  }
  std::uint64_t hex_number(const std::string& text, const char* what) {
    std::uint64_t value = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), value, 16);
    if (text.size() != 16 || read.ec != std::errc() || read.ptr != text.data() + 16) wrong(what);
    return value;
  }
  Digest digest(const std::string& text, const char* what) {
    if (text.size() == 32)
      return {hex_number(text.substr(16), what), hex_number(text.substr(0, 16), what)};
    wrong(what);
    return {};
  }

 private:
  std::string fault_;
};

// Whether the name is one component, so that nothing outside the checkpoint's folder is read.
bool plain_name(const std::string& name) {
  return !name.empty() && name.size() <= limits::kNameBytes && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  c == '-' || c == '_' || c == '.';
         });
}

OrderedJson json_of(const Shard& shard) {
  OrderedJson segments = OrderedJson::array();
  for (const SegmentDigest& s : shard.segments)
    segments.push_back({s.segment, to_string(s.digest)});
  return {{"file", shard.file}, {"bytes", shard.bytes}, {"segments", std::move(segments)}};
}

Shard shard_of(ManifestReading& r, const OrderedJson& json) {
  Shard shard;
  shard.file = json.at("file").get<std::string>();
  if (!plain_name(shard.file)) r.wrong("a shard's file");
  shard.bytes = r.whole(json.at("bytes"), std::uint64_t{1} << 60, "a shard's bytes");
  for (const OrderedJson& s : json.at("segments")) {
    const auto segment = r.whole(s.at(0), limits::kSegments - 1, "a segment");
    shard.segments.push_back({static_cast<SegmentId>(segment),
                              r.digest(s.at(1).get<std::string>(), "a segment's digest")});
  }
  return shard;
}

std::vector<RateChange> rates_of(ManifestReading& r, const OrderedJson& json) {
  std::vector<RateChange> rates;
  if (!json.is_array() || json.size() > limits::kRateChanges) r.wrong("rates");
  if (!r.fault().empty()) return rates;
  for (const OrderedJson& change : json) {
    rates.push_back({Version(r.whole(change.at(0), ~std::uint64_t{0} - 1, "a change of the rate")),
                     change.at(1).get<double>()});
    const bool in_order = rates.size() == 1 || rates[rates.size() - 2].from <= rates.back().from;
    if (!in_order || !is_peak_rate(rates.back().peak_rate)) r.wrong("a change of the rate");
  }
  return rates;
}

unsigned format_version_of(const Manifest& m) {
  if (!m.checkpoint.rates.empty()) return kFormatWithRates;
  return m.is_second_format ? kSecondFormat : kFormatVersion;
}

// The JSON of everything but the checksum.
OrderedJson json_of(const Manifest& m) {
  OrderedJson shards = OrderedJson::array();
  for (const Shard& shard : m.shards) shards.push_back(json_of(shard));
  OrderedJson json = {{"format", kManifestFormat},
                      {"version", format_version_of(m)},
                      {"step", m.checkpoint.version},
                      {"digest", to_string(m.checkpoint.digest)},
                      {"fingerprint", to_string(m.checkpoint.fingerprint)},
                      {"fingerprint_text", m.checkpoint.fingerprint_text},
                      {"state_hash", hex(m.state_hash)},
                      {"loss", m.record.loss},
                      {"record", hex(encode_record(m.record))},
                      {"job", m.job},
                      {"segments", m.segments},
                      {"segment_blocks", m.segment_blocks},
                      {"shards", std::move(shards)}};
  if (m.checkpoint.data != Digest{}) json["data"] = to_string(m.checkpoint.data);
  if (m.checkpoint.doubted_from != kNoVersion) json["doubted_from"] = m.checkpoint.doubted_from;
  for (const RateChange& change : m.checkpoint.rates)
    json["rates"].push_back({change.from, change.peak_rate});
  return json;
}

// Names and texts that are not UTF-8 are replaced, and then differ from what was meant: the texts
// are for people, the names are our own.
std::string dump(const OrderedJson& json) {
  return json.dump(1, ' ', false, OrderedJson::error_handler_t::replace);
}

Manifest manifest_of(ManifestReading& r, const OrderedJson& json) {
  Manifest m;
  m.checkpoint.version = Version(r.whole(json.at("step"), ~std::uint64_t{0} - 1, "step"));
  m.checkpoint.digest = r.digest(json.at("digest").get<std::string>(), "digest");
  m.checkpoint.fingerprint = r.digest(json.at("fingerprint").get<std::string>(), "fingerprint");
  m.checkpoint.fingerprint_text = json.at("fingerprint_text").get<std::string>();
  if (json.contains("data"))
    m.checkpoint.data = r.digest(json.at("data").get<std::string>(), "data");
  if (json.contains("doubted_from"))
    m.checkpoint.doubted_from =
        Version(r.whole(json.at("doubted_from"), m.checkpoint.version, "doubted_from"));
  if (json.contains("rates")) m.checkpoint.rates = rates_of(r, json.at("rates"));
  m.state_hash = r.hex_number(json.at("state_hash").get<std::string>(), "state_hash");
  m.job = json.at("job").get<std::string>();
  const auto bytes = unhex(json.at("record").get<std::string>());
  auto record = bytes ? decode_record(*bytes) : Result<StepRecord>(Error(Code::kCorrupt, ""));
  if (record && record.value().version + 1 == m.checkpoint.version)
    m.record = record.value();
  else
    r.wrong("record");
  m.segments =
      static_cast<std::uint32_t>(r.whole(json.at("segments"), limits::kSegments, "segments"));
  m.segment_blocks =
      static_cast<std::uint32_t>(r.whole(json.at("segment_blocks"), 0xffff'ffff, "segment_blocks"));
  const OrderedJson& shards = json.at("shards");
  if (!shards.is_array() || shards.size() > limits::kSegments) {
    r.wrong("shards");
    return m;
  }
  for (const OrderedJson& shard : shards) m.shards.push_back(shard_of(r, shard));
  return m;
}

// A rule that does not hold between its parts; empty if all do.
std::string fault_of(const Manifest& m) {
  std::vector<bool> seen(m.segments);
  std::size_t count = 0;
  Digest sum{};
  for (const Shard& shard : m.shards)
    for (const SegmentDigest& s : shard.segments) {
      const std::string segment = "segment " + std::to_string(s.segment);
      if (s.segment >= m.segments) return segment + " does not exist";
      if (seen[s.segment]) return segment + " stands there twice";
      seen[s.segment] = true;
      ++count;
      sum = sum + s.digest;
    }
  if (count != m.segments)
    return "only " + std::to_string(count) + " of " + std::to_string(m.segments) +
           " segments stand there";
  if (sum != m.checkpoint.digest) return "the digests of its segments do not add up to its digest";
  return {};
}

std::string manifest_in(const std::string& folder) {
  return folder + "/" + kManifest;
}

Result<> put_manifest(Storage& storage, const Manifest& manifest) {
  const std::string text = format_manifest(manifest);
  const ByteView bytes = as_bytes(std::span<const char>(text));
  return storage.put(manifest_in(checkpoint_folder(manifest.checkpoint.version)),
                     std::span<const ByteView>(&bytes, 1));
}

Result<> remove(Storage& storage, const std::string& folder) {
  STARLING_TRY(storage.remove(manifest_in(folder)));  // first, so that the rest is no checkpoint
  return storage.remove_folder(folder);
}

// A version's manifest, if it is one of these jobs'. Errors: it cannot be told.
Result<std::optional<Manifest>> read_mine(const Storage& storage, Version version,
                                          const std::vector<std::uint64_t>& mine) {
  auto manifest = read_manifest(storage, version);
  if (!manifest && is_damage(manifest.error())) return std::optional<Manifest>();
  if (!manifest) return std::move(manifest).error();
  if (std::find(mine.begin(), mine.end(), manifest.value().state_hash) == mine.end())
    return std::optional<Manifest>();
  return std::optional(std::move(manifest).value());
}

}  // namespace

std::string format_manifest(const Manifest& manifest) {
  OrderedJson json = json_of(manifest);
  const std::string text = dump(json);
  json["checksum"] = to_string(hash128(as_bytes(std::span<const char>(text))));
  return dump(json) + "\n";
}

Result<Manifest> parse_manifest(std::string_view text) {
  const auto corrupt = [](const std::string& what) {
    return Error(Code::kCorrupt, "manifest is damaged: " + what);
  };
  if (text.size() > kManifestBytesMax) return corrupt("it is longer than 64 MiB");
  const OrderedJson json = OrderedJson::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return corrupt("it is no JSON object");
  try {  // at() and get() throw where something is missing or of another kind
    if (json.at("format") != kManifestFormat) return corrupt("its format is another one");
    ManifestReading r;
    const std::uint64_t version = r.whole(json.at("version"), ~std::uint64_t{0}, "version");
    if (version < kSecondFormat || version > kFormatWithRates)
      return Error(Code::kStale, "manifest has format version " + json.at("version").dump() +
                                     ", this build reads " + std::to_string(kSecondFormat) +
                                     " to " + std::to_string(kFormatWithRates));
    Manifest manifest = manifest_of(r, json);
    manifest.is_second_format = version == kSecondFormat;
    if (!r.fault().empty()) return corrupt("wrong " + r.fault());
    if (const std::string fault = fault_of(manifest); !fault.empty()) return corrupt(fault);
    // A text that differs from its own formatted manifest is not what was written.
    if (format_manifest(manifest) != text) return corrupt("its checksum does not hold");
    return manifest;
  } catch (const OrderedJson::exception& error) {
    return corrupt(std::string(error.what()).substr(0, 120));
  }
}

std::string checkpoint_folder(Version version) {
  char name[32];
  std::snprintf(name, sizeof name, "step-%09llu", static_cast<unsigned long long>(version));
  return name;
}

std::optional<Version> checkpoint_version(const std::string& folder) {
  std::uint64_t version = 0;
  if (!folder.starts_with(kFolder)) return std::nullopt;
  const char* begin = folder.data() + kFolder.size();
  const char* end = folder.data() + folder.size();
  const auto read = std::from_chars(begin, end, version);
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  // "step-4" is not ours.
  return checkpoint_folder(Version(version)) == folder ? std::optional(Version(version))
                                                       : std::nullopt;
}

std::string checkpoint_folder(const std::string& dir, Version version) {
  return (std::filesystem::path(dir) / checkpoint_folder(version)).string();
}

bool is_damage(const Error& error) {
  return error.code() == Code::kCorrupt || error.code() == Code::kStale;
}

Result<std::vector<Version>> list_checkpoints(const Storage& storage) {
  STARLING_TRY(folders, storage.folders());
  std::vector<Version> versions;
  for (const std::string& folder : folders) {
    const auto version = checkpoint_version(folder);
    if (!version) continue;
    STARLING_TRY(manifest, storage.size(manifest_in(folder)));
    if (manifest) versions.push_back(*version);
  }
  std::sort(versions.begin(), versions.end());
  return versions;
}

Result<Manifest> read_manifest(const Storage& storage, Version version) {
  const std::string name = manifest_in(checkpoint_folder(version));
  const std::string place = storage.place(name);
  STARLING_TRY(text, storage.get(name, kManifestBytesMax));
  if (!text) return Error(Code::kBadInput, "there is no " + place);
  auto manifest = parse_manifest(*text);
  if (!manifest) return std::move(manifest).error().in(place);
  if (manifest.value().checkpoint.version != version)
    return Error(Code::kCorrupt, "manifest is of step " +
                                     std::to_string(manifest.value().checkpoint.version) + "; " +
                                     place);
  return manifest;
}

Result<> publish_checkpoint(Storage& storage, const Manifest& manifest) {
  const std::string folder = checkpoint_folder(manifest.checkpoint.version);
  const auto there = read_manifest(storage, manifest.checkpoint.version);
  if (there && there.value().state_hash != manifest.state_hash)
    return Error(Code::kBadInput,
                 "expected no checkpoint of another job; " + storage.place(folder));
  for (const Shard& shard : manifest.shards) {
    const std::string name = folder + "/" + shard.file;
    STARLING_TRY(size, storage.size(name));
    if (!size) return Error(Code::kBadInput, "cannot find " + storage.place(name));
    if (*size != shard.bytes)
      return Error(Code::kBadInput, storage.place(name) + " has " + std::to_string(*size) +
                                        " bytes, expected " + std::to_string(shard.bytes));
  }
  return put_manifest(storage, manifest);
}

Result<> doubt_checkpoints(Storage& storage, Version from, const std::vector<std::uint64_t>& mine) {
  STARLING_TRY(there, list_checkpoints(storage));
  // The newest first: a run goes on from that one.
  std::sort(there.begin(), there.end(), std::greater<>());
  for (const Version version : there) {
    if (version <= from) continue;
    STARLING_TRY(manifest, read_mine(storage, version, mine));
    if (!manifest || manifest->checkpoint.doubted_from <= from) continue;
    manifest->checkpoint.doubted_from = from;
    auto marked = put_manifest(storage, *manifest);
    if (marked) continue;
    if (marked.error().code() == Code::kUnavailable) return marked;  // it may be marked later
    // On a full disk there is room to remove, and a checkpoint that hides its doubt must not stay.
    STARLING_TRY(storage.remove(manifest_in(checkpoint_folder(version))));
  }
  return ok();
}

void remove_checkpoints(Storage& storage, Version below, const std::vector<Version>& kept,
                        const std::vector<std::uint64_t>& mine) {
  const auto in = [](const auto& values, auto value) {
    return std::find(values.begin(), values.end(), value) != values.end();
  };
  const auto away = [](const auto& answer) {
    return !answer && answer.error().code() == Code::kUnavailable;
  };
  const auto folders = storage.folders();
  if (!folders) return;
  std::vector<std::string> old;
  for (const std::string& folder : folders.value()) {
    const auto version = checkpoint_version(folder);
    if (!version || *version >= below || in(kept, *version)) continue;
    const auto complete = storage.size(manifest_in(folder));
    if (away(complete)) return;
    if (!complete || complete.value()) {
      const bool newer_kept =
          std::any_of(kept.begin(), kept.end(), [&](Version k) { return k > *version; });
      if (!newer_kept) continue;
      const auto manifest = read_manifest(storage, *version);
      if (away(manifest)) return;
      if (!manifest || !in(mine, manifest.value().state_hash)) continue;
    }
    old.push_back(folder);
  }
  for (const std::string& folder : old)
    if (away(remove(storage, folder))) return;
}

Result<> withdraw_checkpoints(Storage& storage, Version above,
                              const std::vector<std::uint64_t>& mine) {
  STARLING_TRY(there, list_checkpoints(storage));
  for (const Version version : there) {
    if (version <= above) continue;
    STARLING_TRY(manifest, read_mine(storage, version, mine));
    if (!manifest) continue;
    // Shards that the job has written there since, coming there again, stay.
    STARLING_TRY(storage.remove(manifest_in(checkpoint_folder(version))));
  }
  return ok();
}

}  // namespace starling
