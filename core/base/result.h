#pragma once
// Result is what a function returns that can fail for a reason outside the program.
//
// Only these Boost headers: <boost/outcome.hpp> costs a second more in every file.

#include <boost/outcome/basic_result.hpp>
#include <boost/outcome/policy/terminate.hpp>
#include <boost/outcome/try.hpp>
#include <memory>
#include <string>
#include <utility>

namespace starling {

enum class Code : unsigned char {
  kBadInput = 1,  // arguments, job file, data, key, version                    exit 2
  kUnavailable,   // no quorum, coordinator or peer within the stated time      exit 3
  kStateLost,     // a segment has no living holder                             exit 4
  kInternal,      // a bug found by a check that must not crash                 exit 5
  kPeerLost,      // a connection of this epoch broke; answer: stop, report
  kStale,         // from another epoch, term or incarnation; answer: drop it
  kCorrupt,       // checksum, digest or frame does not hold; answer: repair or refuse
};

// An Error tells a program (code) and a person (text) what went wrong. One pointer; move-only.
class Error {
 public:
  Error() = default;  // only because Boost 1.74's Outcome asks for it; holds nothing
  Error(Code code, std::string text) : rep_(new Rep{code, std::move(text)}) {}
  Code code() const { return rep_->code; }
  const std::string& text() const { return rep_->text; }
  // Adds where we were: Error(kBadInput, "workers is 0").in("reading job.toml").
  Error&& in(const std::string& where) && {
    rep_->text += "; " + where;
    return std::move(*this);
  }

 private:
  struct Rep {
    Code code;
    std::string text;
  };
  std::unique_ptr<Rep> rep_;
};

inline Error bad_input(std::string text) {
  return Error(Code::kBadInput, std::move(text));
}

template <class T = void>
using Result = boost::outcome_v2::basic_result<T, Error, boost::outcome_v2::policy::terminate>;
inline auto ok() {
  return boost::outcome_v2::success();
}

}  // namespace starling

#define STARLING_TRY(...) BOOST_OUTCOME_TRY(__VA_ARGS__)
