#include "actors/script/requests.h"

#include <string>
#include <utility>
#include <vector>

#include "core/job/layout.h"

namespace starling::actors::script {
namespace {

constexpr std::uint32_t kBridgeVersion = 6;

// Answer is the first byte of a reply.
enum class Answer : std::uint8_t { kDone = 0, kRaised = 1 };

void put_script(ByteWriter& writer, const PythonSpec& spec) {
  const auto put_texts = [&writer](const std::vector<std::string>& texts) {
    writer.put(static_cast<std::uint32_t>(texts.size()));
    for (const std::string& text : texts) writer.put_text(text);
  };
  writer.put_text(spec.module);
  put_texts(spec.arguments);
  put_texts(spec.text);
  writer.put(spec.call);
  writer.put_text(spec.at);
  put_texts(spec.earlier);
  writer.put_text(spec.started);
}

}  // namespace

Bytes hello_request(const PythonSpec& spec, const Batch& first, std::uint32_t local_steps) {
  ByteWriter hello;
  hello.put(Ask::kHello);
  hello.put(kBridgeVersion);
  hello.put(std::uint32_t{kBlock});
  hello.put(first.draw.seed);
  hello.put(first.sequences);
  hello.put(local_steps);
  put_script(hello, spec);
  return std::move(hello).take();
}

void put_place(ByteWriter& writer, const kernels::SharedPlace& place) {
  writer.put(std::uint8_t{place.gpu});
  writer.put(place.offset);
  writer.put(place.bytes);
}

Bytes try_request(const kernels::SharedPlace& place) {
  ByteWriter request;
  request.put(Ask::kTry);
  put_place(request, place);
  return std::move(request).take();
}

Bytes batch_request(Ask kind, const Batch& batch) {
  ByteWriter request;
  request.put(kind);
  request.put(batch.draw.seed);
  request.put(batch.draw.step);
  request.put(std::uint32_t{batch.draw.micro_batch});
  request.put(std::uint32_t{batch.sequences});
  for (const std::uint64_t sample : batch.samples) request.put(sample);
  return std::move(request).take();
}

Result<Bytes> ask(PythonChild& child, ByteView request, std::span<const int> files,
                  std::chrono::milliseconds patience) {
  STARLING_TRY(reply, child.ask(request, files, patience));
  ByteReader reader(reply);
  const auto answer = reader.get<Answer>();
  if (answer == Answer::kRaised) {
    std::string text = reader.get_text();
    if (reader.good()) return Error(Code::kBadInput, std::move(text));
  }
  if (!reader.good() || answer != Answer::kDone)
    return Error(Code::kUnavailable, "the script's process answered with what is no reply");
  reply.erase(reply.begin());
  return std::move(reply);
}

}  // namespace starling::actors::script
