#pragma once
// Says where two fingerprints differ, for people. Pure.

#include <string>

namespace starling::elastic {

// Compares two fingerprints' texts (actors/worker/setup.h), "data 12ab here, 34cd there: other
// data": the parts that are not equal, and what the first of them means.
std::string fingerprint_differences(const std::string& here, const std::string& there);

// Whether both have a script and its text, or that of a module beside it, is another one.
bool other_script(const std::string& here, const std::string& there);

// Whether both have a script with the same text, and a module beside it is another one.
bool other_modules_alone(const std::string& here, const std::string& there);

// Whether they differ in the script alone: data, first parameters, first gradient and the probe of
// steps, all other parts of a fingerprint, are there and equal.
bool other_script_alone(const std::string& here, const std::string& there);

}  // namespace starling::elastic
