// What a peer can reach before anybody trusts it: the decoders of envelopes, log entries and
// the group's state, and the key file's parser; of the small frames of a step; of what metadata
// services answer; of the manifest of a checkpoint; of a line of events; and of what others wrote of a model: its
// tokenizer, its config.json, token files and the index of shards, weights of torch; of packed sums; of identity tokens,
// their claims and their provider's answers. First byte of the input: which one, and
// whether the rest is sealed first (so that a fuzzer gets past the checksum). An accepted message
// must be one that we could have sent: encoding it again checks all limits, and decoding that must
// give the same bytes once more.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "actors/notices/answers.h"
#include "collectives/pack.h"
#include "core/base/check.h"
#include "core/base/keys.h"
#include "core/data/shard_index.h"
#include "core/data/token_file.h"
#include "core/formats/checkpoint.h"
#include "core/formats/oidc/provider.h"
#include "core/formats/torch_file.h"
#include "core/job/models/published_model.h"
#include "core/observe/event_line.h"
#include "core/observe/event_reader.h"
#include "core/text/tokenizer.h"
#include "core/wire/codec.h"
#include "core/wire/seal.h"
#include "core/wire/step_codec.h"
#include "tests/fuzz/ways.h"

using namespace starling;

namespace {

void check_envelope(ByteView bytes) {
  const auto first = decode(bytes);
  const auto enrol = decode_enrol(bytes);
  STARLING_CHECK(enrol.has_value() == (first && std::holds_alternative<Enrol>(first.value().body)));
  if (!first) return;
  const Bytes again = encode(first.value());
  const auto second = decode(again);
  STARLING_CHECK(second.has_value());
  STARLING_CHECK(encode(second.value()) == again);
}

void check_entry(ByteView bytes) {
  const auto first = decode_entry(bytes);
  if (!first) return;
  const Bytes again = encode_entry(first.value());
  const auto second = decode_entry(again);
  STARLING_CHECK(second.has_value());
  STARLING_CHECK(encode_entry(second.value()) == again);
}

void check_group(ByteView bytes) {
  const auto first = decode_group(bytes);
  if (!first) return;
  const Bytes again = encode_group(first.value());
  const auto second = decode_group(again);
  STARLING_CHECK(second.has_value());
  STARLING_CHECK(encode_group(second.value()) == again);
}

void check_keys(ByteView bytes) {
  const auto ring = KeyRing::parse({bytes.begin(), bytes.end()});
  if (!ring) return;
  const auto again = KeyRing::parse(ring.value().format());
  STARLING_CHECK(again.has_value());
  STARLING_CHECK(again.value().pairs() == ring.value().pairs());
  STARLING_CHECK(again.value().founders() == ring.value().founders());
}

// The byte of a flag is taken as it comes and written as 0 or 1, so it is the second round that
// must give the same bytes.
template <class Decode, class Encode>
void check_step(ByteView bytes, Decode decode, Encode encode) {
  const auto first = decode(bytes);
  if (!first) return;
  const Bytes again = encode(first.value());
  const auto second = decode(again);
  STARLING_CHECK(second.has_value());
  STARLING_CHECK(encode(second.value()) == again);
}

void check_notice(const Notice& notice) {
  STARLING_CHECK(notice.text.size() <= actors::kNoticeTextMax);
  const std::chrono::milliseconds time(notice.notice_ms);
  STARLING_CHECK(time <= actors::kNoticeMax);
  if (notice.leave) STARLING_CHECK(time >= std::chrono::seconds(1));
}

void check_answer(ByteView bytes) {
  const std::string text(bytes.begin(), bytes.end());
  const std::chrono::sys_seconds now(std::chrono::seconds(1767342000));
  if (const auto notice = actors::parse_aws_action(text, now)) check_notice(notice.value());
  if (const auto hint = actors::parse_aws_rebalance(text)) check_notice(hint.value());
  if (const auto events = actors::parse_azure_events(text, "vm_3", now))
    for (const auto& event : events.value().events) check_notice(event.notice);
  if (const auto token = actors::parse_aws_token(text))
    STARLING_CHECK(token.value().find_first_of("\r\n ") == std::string::npos);
  if (const auto name = actors::parse_azure_name(text))
    STARLING_CHECK(name.value().find_first_of("\r\n ") == std::string::npos);
  (void)actors::parse_gcp_preempted(text);
}

// Taken only as it is written.
void check_manifest(ByteView bytes) {
  const std::string text(bytes.begin(), bytes.end());
  const auto manifest = parse_manifest(text);
  if (manifest) STARLING_CHECK(format_manifest(manifest.value()) == text);
}

// Whatever is taken is written as an index that is the same, and each of its chunks lies within its shard.
void check_shard_index(ByteView bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto index = ShardIndex::parse(text, "index.json");
  if (!index) return;
  const ShardIndex& read = index.value();
  STARLING_CHECK(ShardIndex::parse(read.format(), "index.json").value() == read);
  for (std::uint64_t i = 0; i < read.chunks(); ++i) {
    const ChunkPlace place = read.place(i);
    STARLING_CHECK(place.begin + place.size <= read.shard_bytes(read.shards[place.shard]));
  }
}

// What was read is written as a line that says the same. It may be a little other than the one that
// was read: 1 for 1.0, "01.2" for "1.2".
void check_event(ByteView bytes) {
  const auto first = read_event({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!first || !first.value().event) return;
  const std::string line = event_line(*first.value().event, /*began_ns=*/0);
  const auto second = read_event(line);
  STARLING_CHECK(second.has_value());
  STARLING_CHECK(second.value().event.has_value());
  STARLING_CHECK(event_text(*second.value().event) == event_text(*first.value().event));
}

// What is taken encodes any text to tokens that are that text.
void check_tokenizer(ByteView bytes) {
  auto file = parse_tokenizer({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!file) return;
  const Tokenizer tokenizer(std::move(file).value());
  const std::string text = "It's  12 \u00fcber <|endoftext|>\n\n{}";
  for (const Marks marks : {Marks::kText, Marks::kTokens}) {
    std::vector<std::uint32_t> tokens;
    Encoder encoder(tokenizer, marks);
    if (!encoder.encode(text, tokens)) continue;  // an expression that takes too long
    for (const std::uint32_t token : tokens) STARLING_CHECK(token < tokenizer.vocabulary());
    if (!tokenizer.composes()) STARLING_CHECK(tokenizer.decode(tokens) == text);
  }
}

void check_config(ByteView bytes) {
  const auto config =
      PublishedConfig::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!config) return;
  const auto model = published_model(config.value(), "/fuzz");
  if (!model) return;
  const auto input = input_of(model.value());
  STARLING_CHECK(input && input->positions >= 1 && input->positions <= 65536);
  STARLING_CHECK(input->vocabulary >= 1 && input->vocabulary <= 1 << 20);
}

void check_tokens(ByteView bytes) {
  const auto file = parse_token_file(bytes, "fuzz");
  if (!file) return;
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < file.value().size(); ++i) sum += file.value()[i];
  STARLING_CHECK(file.value().size() * bytes_of(file.value().width) <= bytes.size());
  STARLING_CHECK(sum <= file.value().size() * 0xffffffffull);
}

class Held : public StoredObject {
 public:
  explicit Held(ByteView bytes) : bytes_(bytes) {}
  std::uint64_t size() const override { return bytes_.size(); }
  Result<> read(std::uint64_t from, std::span<std::uint8_t> out) const override {
    STARLING_CHECK(from <= bytes_.size() && out.size() <= bytes_.size() - from);
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(from), out.size(), out.begin());
    return ok();
  }
  const std::string& place() const override { return place_; }

 private:
  const ByteView bytes_;
  const std::string place_ = "fuzz";
};

// Each tensor lies within the file.
void check_torch(ByteView bytes) {
  const auto file = open_torch_file(std::make_unique<const Held>(bytes));
  if (!file) return;
  for (const auto& tensor : file.value().tensors()) {
    Bytes data(tensor.bytes);
    STARLING_CHECK(file.value().read(tensor, 0, data).has_value());
  }
}

// What packed sums say is what they are packed from, if they are as narrow as can be.
void check_packed(ByteView bytes) {
  if (bytes.size() < 2) return;
  std::vector<std::int32_t> sums(std::size_t{bytes[0]} % 5 * kBlock);
  ByteView from = bytes.subspan(2);
  if (!collectives::unpack(from, bytes[1] % 33, sums)) return;
  Bytes again;
  collectives::pack(sums, again);
  STARLING_CHECK(again.size() <= bytes.size() - 2 - from.size());
  std::vector<std::int32_t> back(sums.size());
  ByteView all = again;
  STARLING_CHECK(collectives::unpack(all, 32, back) && all.empty() && back == sums);
}

bool is_one_line(const std::string& text) {
  for (const char c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return false;
  return text.size() < 2048;
}

// Whatever a stranger shows, people read one line about it.
void check_identity_token(ByteView bytes) {
  const std::string text(bytes.begin(), bytes.end());
  const auto token = oidc::parse_token(text);
  if (!token) STARLING_CHECK(is_one_line(token.error().text()));
  IdentitySpec rules;
  rules.issuer = "https://id.example";
  rules.audience = "starling";
  rules.claims = {{{"kubernetes.io", "namespace"}, {"train"}}};
  const std::chrono::system_clock::time_point now(std::chrono::seconds(1'800'000'000));
  const auto holder = oidc::check_claims(
      token ? std::string_view(reinterpret_cast<const char*>(token.value().payload.data()),
                               token.value().payload.size())
            : text,
      rules, now);
  if (!holder) STARLING_CHECK(is_one_line(holder.error().text()));
}

void check_identity_provider(ByteView bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto keys = oidc::parse_key_set(text);
  if (keys)
    STARLING_CHECK(!keys.value().keys.empty() && keys.value().keys.size() <= oidc::kKeysMax);
  const auto address = oidc::parse_discovery(text, "https://id.example");
  if (address) STARLING_CHECK(is_provider_address(address.value()));
  for (const auto* why : {keys ? nullptr : &keys.error(), address ? nullptr : &address.error()})
    if (why != nullptr) STARLING_CHECK(is_one_line(why->text()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const ByteView rest(data + 1, size - 1);
  switch (data[0] % kWays) {
    case 0:
      check_envelope(rest);
      break;
    case 1:
      check_entry(rest);
      break;
    case 2:
      check_envelope(seal(SealKind::kEnvelope, rest));
      break;
    case 3:
      check_entry(seal(SealKind::kEntry, rest));
      break;
    case 4:
      check_keys(rest);
      break;
    case 5:
      check_step(rest, decode_record, encode_record);
      break;
    case 6:
      check_step(rest, decode_vote, encode_vote);
      break;
    case 7:
      check_step(rest, decode_ledger, encode_ledger);
      break;
    case 8:
      check_answer(rest);
      break;
    case 9:
      check_group(rest);
      break;
    case 10:
      check_group(seal(SealKind::kGroup, rest));
      break;
    case 11:
      check_manifest(rest);
      break;
    case 12:
      check_event(rest);
      break;
    case 13:
      check_tokenizer(rest);
      break;
    case 14:
      check_config(rest);
      break;
    case 15:
      check_tokens(rest);
      break;
    case 16:
      check_torch(rest);
      break;
    case 17:
      check_shard_index(rest);
      break;
    case 18:
      check_packed(rest);
      break;
    case 19:
      check_identity_token(rest);
      break;
    default:
      check_identity_provider(rest);
      break;
  }
  return 0;
}
