#pragma once
// A Storage in a bucket: S3 and what has its interface.

#include <memory>

#include "core/base/s3_place.h"
#include "core/formats/storage.h"

namespace starling::s3 {

// Opening touches nothing. Objects above 64 MiB are put in parts; an upload whose process was killed stays
// until a rule of the bucket ends it, and is no object.
std::unique_ptr<Storage> open_store(Place place);

}  // namespace starling::s3
