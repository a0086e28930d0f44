#include "actors/script/likeness.h"

#include <algorithm>
#include <utility>

#include "actors/script/requests.h"

namespace starling::actors::script {

Result<> Likeness::check(PythonChild& child, std::chrono::milliseconds patience) {
  STARLING_TRY(greet(child, patience));
  return prove(child, patience);
}

Identity Likeness::identity() const {
  const MutexLock lock(mutex_);
  return identity_;
}

std::string Likeness::versions() const {
  const MutexLock lock(mutex_);
  return versions_;
}

Bytes Likeness::hello() const {
  return hello_request(spec_, first_, local_steps_);
}

Result<> Likeness::greet(PythonChild& child, std::chrono::milliseconds patience) {
  STARLING_TRY(reply, ask(child, hello(), {}, patience));
  ByteReader reader(reply);
  const auto samples = reader.get<std::uint64_t>();
  const auto data = reader.get<Digest>();
  std::string versions = reader.get_text();
  const auto count = reader.get<std::uint32_t>();
  std::vector<std::string> tensors;
  for (std::uint32_t i = 0; i < count && reader.good(); ++i) tensors.push_back(reader.get_text());
  if (!reader.good())
    return Error(Code::kUnavailable, "the script's process said what is no greeting");
  const auto differs = [&](const std::string& what, const std::string& here,
                           const std::string& there) {
    return Error(Code::kBadInput, "the script's model is not the job's: " + what + " is " + here +
                                      " here and " + there + " in the job; " + spec_.script);
  };
  std::vector<std::string> wanted;
  for (const TensorSpec& tensor : tensors_) wanted.push_back(tensor_text(tensor));
  if (tensors != wanted && std::ranges::is_permutation(tensors, wanted))
    return Error(Code::kBadInput,
                 "the script's parameters have another order in each process: modules that are "
                 "registered from a set have none, use a list; " +
                     spec_.script);
  for (std::size_t i = 0; i < std::max(tensors.size(), wanted.size()); ++i) {
    const std::string here = i < tensors.size() ? tensors[i] : "not there";
    const std::string there = i < wanted.size() ? wanted[i] : "not there";
    if (here != there) return differs("parameter " + std::to_string(i), here, there);
  }
  if (samples != spec_.samples)
    return differs("the number of samples", std::to_string(samples), std::to_string(spec_.samples));
  const MutexLock lock(mutex_);
  if (versions_.empty()) {
    versions_ = versions;
    identity_.data = data;
  }
  if (versions_ != versions)
    return Error(Code::kBadInput,
                 "the script's process was " + versions_ + " before and is " + versions + " now");
  if (identity_.data != data)
    return unlike("other data, or other values of what is not trained,", identity_.data, data,
                  "what the script reads, and what it draws before build(), has to be the same in "
                  "every process");
  return ok();
}

// Compares the first gradient, and the modules that computed it, with the first child's.
Result<> Likeness::prove(PythonChild& child, std::chrono::milliseconds patience) {
  if (first_.sequences == 0) return ok();
  STARLING_TRY(reply, ask(child, batch_request(Ask::kProve, first_), {}, patience));
  ByteReader reader(reply);
  const auto gradient = reader.get<Digest>();
  const auto text = reader.get<Digest>();
  if (!reader.good())
    return Error(Code::kUnavailable, "the script's process said what is no proof");
  const MutexLock lock(mutex_);
  if (!proof_) {
    proof_ = gradient;
    identity_.text = text;
  }
  if (identity_.text != text)
    return unlike("other modules, or other texts of them", identity_.text, text,
                  "every process has to run the script as it was when the job began");
  if (*proof_ != gradient)
    return unlike("another first gradient", *proof_, gradient,
                  "what the script reads and draws has to be the same in every process");
  return ok();
}

Error Likeness::unlike(const std::string& what, const Digest& before, const Digest& now,
                       const std::string& rule) const {
  const auto brief = [](const Digest& digest) { return to_string(digest).substr(0, 8); };
  return Error(Code::kBadInput, "a process of the script has " + what +
                                    " than the one before it (" + brief(now) + " and " +
                                    brief(before) + "): " + rule + "; " + spec_.script);
}

}  // namespace starling::actors::script
