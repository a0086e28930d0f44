#include "core/wire/codec.h"

#include <capnp/message.h>
#include <capnp/serialize.h>

#include <cstring>
#include <exception>

#include "core/base/check.h"
#include "core/wire/convert.h"
#include "core/wire/limits.h"
#include "core/wire/seal.h"

namespace starling {
namespace {

using wire::Reading;

Bytes flatten(SealKind kind, capnp::MessageBuilder& message) {
  const kj::Array<capnp::word> words = capnp::messageToFlatArray(message);
  const auto bytes = words.asBytes();
  Bytes sealed = seal(kind, {bytes.begin(), bytes.size()});
  STARLING_CHECK_MSG(sealed.size() <= limits::kMessageBytes, "bytes=" << sealed.size());
  return sealed;
}

// Cap'n Proto's texts go on with addresses of the stack; one line is enough.
std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

// Calls read_root(root, Reading) on the payload's root struct, and gives back what was wrong, if
// anything. The only place where Cap'n Proto's exceptions can occur and where they end.
template <class Root, class F>
Result<> with_root(SealKind kind, ByteView message, F read_root) {
  STARLING_TRY(payload, unseal(kind, message));
  if (payload.empty() || payload.size() % sizeof(capnp::word) != 0)
    return Error(Code::kCorrupt, "payload is not made of whole words");
  // Readers need alignment, which ZeroMQ's small frames do not have.
  kj::Array<capnp::word> copy;
  const auto* words = reinterpret_cast<const capnp::word*>(payload.data());
  const std::size_t count = payload.size() / sizeof(capnp::word);
  static_assert(alignof(capnp::word) == 8);
  if (reinterpret_cast<std::uintptr_t>(payload.data()) % alignof(capnp::word) != 0) {
    copy = kj::heapArray<capnp::word>(count);
    std::memcpy(copy.begin(), payload.data(), payload.size());
    words = copy.begin();
  }
  // Every field is read once; shared or zero-sized targets that would multiply the work are cut
  // off.
  capnp::ReaderOptions options;
  options.traversalLimitInWords = 4 * count + 1024;
  options.nestingLimit = 16;
  Reading r;
  try {
    capnp::FlatArrayMessageReader reader(kj::arrayPtr(words, count), options);
    // A damaged segment table can say "no segments", which reads as a message of defaults; the
    // `unset` members of our unions refuse it.
    read_root(reader.getRoot<Root>(), r);
  } catch (const std::exception& e) {
    return Error(Code::kCorrupt, first_line(e.what()));
  }
  if (r.fault().empty()) return ok();
  return Error(r.is_unknown() ? Code::kStale : Code::kCorrupt, r.fault());
}

void read_head(schema::Envelope::Reader in, Reading& r, EnvelopeHead& out) {
  wire::read_fixed(r, in.getJob(), out.job, "job id does not have 16 bytes");
  out.from = wire::read(in.getFrom());
  out.to = wire::read(in.getTo());
  r.need(out.from.nonce != 0, "envelope names no sender");
}

}  // namespace

Bytes encode(const JobId& job, const Incarnation& from, const Incarnation& to,
             const Message& body) {
  capnp::MallocMessageBuilder message;
  auto root = message.initRoot<schema::Envelope>();
  root.setJob(wire::data(job));
  wire::write(from, root.initFrom());
  wire::write(to, root.initTo());
  wire::write(body, root.initBody());
  return flatten(SealKind::kEnvelope, message);
}

Bytes encode(const Envelope& envelope) {
  return encode(envelope.job, envelope.from, envelope.to, envelope.body);
}

Result<Envelope> decode(ByteView message) {
  Envelope out;
  EnvelopeHead head;
  const auto fill = [&](schema::Envelope::Reader root, Reading& r) {
    read_head(root, r, head);
    wire::read(r, root.getBody(), out.body);
  };
  STARLING_TRY(with_root<schema::Envelope>(SealKind::kEnvelope, message, fill));
  out.job = head.job;
  out.from = head.from;
  out.to = head.to;
  return out;
}

Result<Envelope> decode_enrol(ByteView message) {
  Envelope out;
  EnvelopeHead head;
  const auto fill = [&](schema::Envelope::Reader root, Reading& r) {
    read_head(root, r, head);
    if (root.getBody().which() != schema::Envelope::Body::ENROL)
      return r.unknown("a key that is not known may only enrol");
    out.body = wire::read(r, root.getBody().getEnrol());
  };
  STARLING_TRY(with_root<schema::Envelope>(SealKind::kEnvelope, message, fill));
  out.job = head.job;
  out.from = head.from;
  out.to = head.to;
  return out;
}

Result<EnvelopeHead> decode_head(ByteView message) {
  EnvelopeHead head;
  const auto fill = [&](schema::Envelope::Reader root, Reading& r) { read_head(root, r, head); };
  STARLING_TRY(with_root<schema::Envelope>(SealKind::kEnvelope, message, fill));
  return head;
}

Bytes encode_entry(const Entry& entry) {
  capnp::MallocMessageBuilder message;
  wire::write(entry, message.initRoot<schema::Entry>());
  return flatten(SealKind::kEntry, message);
}

Result<Entry> decode_entry(ByteView bytes) {
  Entry out;
  const auto fill = [&](schema::Entry::Reader root, Reading& r) { wire::read(r, root, out); };
  STARLING_TRY(with_root<schema::Entry>(SealKind::kEntry, bytes, fill));
  return out;
}

Bytes encode_group(const GroupState& state) {
  capnp::MallocMessageBuilder message;
  wire::write(state, message.initRoot<schema::GroupState>());
  return flatten(SealKind::kGroup, message);
}

Result<GroupState> decode_group(ByteView bytes) {
  GroupState out;
  const auto fill = [&](schema::GroupState::Reader root, Reading& r) { wire::read(r, root, out); };
  STARLING_TRY(with_root<schema::GroupState>(SealKind::kGroup, bytes, fill));
  return out;
}

}  // namespace starling
