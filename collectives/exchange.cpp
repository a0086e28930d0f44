#include "collectives/exchange.h"

#include <utility>

#include "core/base/check.h"

namespace starling::collectives {

Exchange::Exchange(const ExchangeOptions& options)
    : options_(options), records_(options.world), missing_(options.world) {
  STARLING_CHECK(options.self < options.world);
}

void Exchange::start(Bytes record, Transport& transport) {
  STARLING_CHECK(!has(options_.self));
  STARLING_CHECK(record.size() <= options_.record_bytes_max);
  const SharedBytes bytes = share(std::move(record));
  records_[options_.self] = bytes;
  --missing_;
  FrameHeader header;
  header.kind = options_.kind;
  header.version = options_.version;
  transport.send_all(others(options_.self, options_.world), header, bytes);
}

Result<> Exchange::on_frame(Rank from, const Frame& frame) {
  STARLING_CHECK(from < options_.world && from != options_.self);
  const char* wrong = nullptr;
  if (frame.header.kind != options_.kind) wrong = "its kind is not this exchange's";
  if (frame.header.version != options_.version) wrong = "its version is not this exchange's";
  if (frame.payload->size() > options_.record_bytes_max) wrong = "it is too long";
  if (has(from)) wrong = "the rank's record is already there";
  if (wrong != nullptr)
    return Error(Code::kCorrupt, std::string(wrong) + "; record from rank " + std::to_string(from));
  records_[from] = frame.payload;
  --missing_;
  return ok();
}

const Bytes& Exchange::record(Rank rank) const {
  STARLING_CHECK(has(rank));
  return *records_[rank];
}

}  // namespace starling::collectives
