// Drives decode_fuzz.cpp without libFuzzer: fuzz_decoders [SECONDS [SEED]]. Mutates random valid
// messages for that long (default 10 s); prints the seed first, so that a crash can be repeated.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "collectives/pack.h"
#include "core/base/keys.h"
#include "core/data/shard_index.h"
#include "core/formats/checkpoint.h"
#include "core/observe/event_line.h"
#include "core/wire/codec.h"
#include "core/wire/seal.h"
#include "core/wire/step_codec.h"
#include "tests/core/event_samples.h"
#include "tests/core/wire_samples.h"
#include "tests/fuzz/ways.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using namespace starling;

// A file of the sources, in whose root the program is to run; empty elsewhere.
std::string whole(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return std::string{std::istreambuf_iterator<char>(file), {}};
}

// A valid input for each of the harness's ways in.
Bytes valid_input(samples::Maker& random) {
  const auto way = static_cast<std::uint8_t>(random.below(kWays));
  Bytes message;
  static const std::string answers[] = {
      R"({"action":"terminate","time":"2026-01-02T08:22:00.5+01:00"})",
      R"({"noticeTime":"2026-01-02T08:10:00Z"})",
      R"({"Events":[{"EventId":"e","EventType":"Preempt","Resources":["vm_3"],)"
      R"("NotBefore":"Fri, 02 Jan 2026 08:21:00 GMT"}]})"};
  if (way == 8) {
    const std::string& text = answers[random.below(std::size(answers))];
    message.assign(text.begin(), text.end());
  } else if (way == 4) {
    const std::string text = KeyRing::generate(1, 1, random.below(2)).format();
    message.assign(text.begin(), text.end());
  } else if (way == 5) {
    message = encode_record(random.progress().record);
  } else if (way == 6) {
    message = encode_vote(random.vote());
  } else if (way == 7) {
    message = encode_ledger(random.progress().ledger);
  } else if (way == 9 || way == 10) {
    message = encode_group(random.group());
  } else if (way == 11) {
    Manifest manifest;
    manifest.checkpoint.version = Version(1 + random.below(1000));
    manifest.record = random.progress().record;
    manifest.record.version = manifest.checkpoint.version - 1;
    manifest.segments = 2;
    manifest.shards = {{"a", 1, {{1, {random.bits(), 0}}}}, {"b", 2, {{0, {0, 0}}}}};
    manifest.checkpoint.digest = manifest.shards[0].segments[0].digest;
    const std::string text = format_manifest(manifest);
    message.assign(text.begin(), text.end());
  } else if (way == 12) {
    static const std::vector<Event> events = samples::events();
    const std::string text = event_line(events[random.below(events.size())], /*began_ns=*/0);
    message.assign(text.begin(), text.end());
  } else if (way == 13 || way == 16) {
    static const std::string tokenizer = whole("tests/fixtures/bpe/qwen2.json");
    static const std::string weights = whole("tests/fixtures/torch/state_dict.bin");
    const std::string& text = way == 13 ? tokenizer : weights;
    message.assign(text.begin(), text.end());
  } else if (way == 14) {
    const std::string text =
        R"({"model_type":"gpt2","n_layer":2,"n_head":4,"n_embd":64,"n_positions":128,)"
        R"("vocab_size":999,"activation_function":"gelu_new","n_inner":256})";
    message.assign(text.begin(), text.end());
  } else if (way == 15) {
    const bool wide = random.below(2) == 0;
    const std::uint32_t count = 1 + random.below(50);
    const std::uint32_t header[] = {wide ? 20240801u : 20240520u, wide ? 7u : 1u, count};
    message.resize(1024 + std::size_t{count} * (wide ? 4 : 2));
    std::memcpy(message.data(), header, sizeof header);
  } else if (way == 17) {
    ShardIndex index;
    index.vocabulary = 300;
    index.chunk_tokens = static_cast<std::uint32_t>(1 + random.below(100));
    for (std::uint64_t i = 0; i <= random.below(3); ++i)
      index.add("shard-" + std::to_string(i), {{random.bits(), random.bits()}, {i, 2}});
    const std::string text = index.format();
    message.assign(text.begin(), text.end());
  } else if (way == 18) {
    std::vector<std::int32_t> sums(std::size_t{random.below(5)} * kBlock);
    for (std::int32_t& sum : sums)
      sum = static_cast<std::int32_t>(random.bits()) >> random.below(32);
    message = {static_cast<std::uint8_t>(sums.size() / kBlock), 32};
    collectives::pack(sums, message);
  } else if (way == 19) {
    static const std::string claims =
        R"({"iss":"https://id.example","aud":["starling"],"exp":1800003600,"nbf":1800000000.5,)"
        R"("kubernetes.io":{"namespace":["train"]},"sub":"system:serviceaccount:a:b"})";
    // {"alg":"RS256","kid":"k"} {} and a signature
    static const std::string token = "eyJhbGciOiJSUzI1NiIsImtpZCI6ImsifQ.e30.AAAA";
    const std::string& text = random.below(2) == 0 ? claims : token;
    message.assign(text.begin(), text.end());
  } else if (way == 20) {
    static const std::string discovery =
        R"({"issuer":"https://id.example","jwks_uri":"https://id.example/keys"})";
    // The key of RFC 7515, A.3.
    static const std::string keys =
        R"({"keys":[{"kty":"EC","crv":"P-256","use":"sig","kid":"k","alg":"ES256",)"
        R"("x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",)"
        R"("y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]})";
    const std::string& text = random.below(2) == 0 ? discovery : keys;
    message.assign(text.begin(), text.end());
  } else if (way % 2 == 0) {
    message = encode(random.envelope(random.below(std::variant_size_v<Message>)));
  } else {
    message = encode_entry(random.make<Entry>(random.below(std::variant_size_v<Entry>)));
  }
  if (way == 2 || way == 3 || way == 10)
    message.erase(message.begin(), message.begin() + kSealBytes);
  message.insert(message.begin(), way);
  return message;
}

void mutate(Bytes& input, samples::Maker& random) {
  for (auto n = random.below(6); n > 0 && input.size() > 1; --n) {
    const auto at = 1 + random.below(input.size() - 1);
    switch (random.below(5)) {
      case 0:
        input[at] ^= static_cast<std::uint8_t>(1u << random.below(8));
        break;
      case 1:
        input[at] = static_cast<std::uint8_t>(random.bits());
        break;
      case 2:
        input[at] = random.below(2) == 0 ? 0 : 0xff;
        break;
      case 3:
        input.resize(at);
        break;
      default:
        input.insert(input.begin() + static_cast<std::ptrdiff_t>(at), 8,
                     static_cast<std::uint8_t>(random.bits()));
        break;
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const long seconds = argc > 1 ? std::strtol(argv[1], nullptr, 10) : 10;
  const std::uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 0) : std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  samples::Maker random(seed);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  unsigned long long inputs = 0;
  for (; std::chrono::steady_clock::now() < end; ++inputs) {
    Bytes input = valid_input(random);
    mutate(input, random);
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  std::printf("%llu inputs, no fault\n", inputs);
  return 0;
}
