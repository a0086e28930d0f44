#pragma once
// The small payloads of bulk frames: ledger rows, votes and records. Decoders are bounded and check
// everything: the bytes come from another process.

#include <vector>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "core/wire/messages.h"

namespace starling {

Bytes encode_record(const StepRecord& record);
Result<StepRecord> decode_record(ByteView bytes);

Bytes encode_ledger(const std::vector<LedgerRow>& rows);
Result<std::vector<LedgerRow>> decode_ledger(ByteView bytes);

Bytes encode_vote(const Vote& vote);
Result<Vote> decode_vote(ByteView bytes);

}  // namespace starling
