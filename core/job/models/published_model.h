#pragma once
// The model that a config.json describes, of whichever family.

#include <string>

#include "core/base/result.h"
#include "core/job/models/published_config.h"
#include "core/job/models/table.h"

namespace starling {

// `from`: its weights. Errors: kBadInput  no family that is known here, or as its published() has them.
Result<ModelSpec> published_model(const PublishedConfig& config, const std::string& from);

}  // namespace starling
