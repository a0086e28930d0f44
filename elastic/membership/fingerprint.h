#pragma once
// Where two fingerprints differ, for people. Pure.

#include <string>

namespace starling::elastic {

// Of two fingerprints' texts (actors/worker/setup.h), "data 12ab here, 34cd there: other data": the
// parts that are not equal, and what the first of them means.
std::string fingerprint_differences(const std::string& here, const std::string& there);

}  // namespace starling::elastic
