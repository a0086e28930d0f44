#pragma once
// Data that an application brings for its own model, as a data set.

#include <memory>

#include "core/base/result.h"
#include "core/data/dataset.h"
#include "core/data/own_data.h"

namespace starling {

// Opens the data of the job's own model as its options and [data] path say; null: it is another kind
// of model, or the application brings no data for it. Where the application gives no
// identity, a digest of 256 samples is one, spread over all and each read twice, and content() reads
// the rest.
// Errors: kBadInput  the application's, also what it throws; there is no sample; a sample has not
//                    the size of sample 0, or is another one when it is read again.
Result<std::unique_ptr<Dataset>> open_own_data(const Job& job);

}  // namespace starling
