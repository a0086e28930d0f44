#pragma once
// Where a process finds its access key, its region and its store: as the tools of AWS do, in this order.
//
//   key       AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN; the profile AWS_PROFILE of
//             ~/.aws/credentials and ~/.aws/config (AWS_SHARED_CREDENTIALS_FILE, AWS_CONFIG_FILE); the token of
//             AWS_WEB_IDENTITY_TOKEN_FILE for AWS_ROLE_ARN; AWS_CONTAINER_CREDENTIALS_FULL_URI or .._RELATIVE_URI;
//             the role of an EC2 machine, from its metadata service
//   region    AWS_REGION, AWS_DEFAULT_REGION, the profile's region; else us-east-1
//   endpoint  AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the profile's endpoint_url; else AWS in that region

#include <ctime>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/mutex.h"
#include "core/base/result.h"
#include "core/formats/s3/signature.h"

namespace starling::s3 {

// Pure. The values of one section of an AWS configuration file, nested ones left out.
std::map<std::string, std::string> section_of(std::string_view text, const std::string& section);

struct TemporaryKey {
  AccessKey key;
  std::optional<std::time_t> ends;
};
// Pure. Of the JSON that metadata services answer. Errors: kUnavailable  the text has no key.
Result<TemporaryKey> parse_temporary_key(std::string_view json);
// Pure. "2026-11-28T19:09:56Z", also with a fraction. None: another text.
std::optional<std::time_t> parse_time(std::string_view text);

// region() and endpoint() are found once in a process.
std::string region();
struct Endpoint {
  std::string url;   // "https://HOST[:PORT]", without '/' at the end
  std::string from;  // what says so, for people: "AWS_ENDPOINT_URL_S3"
};
// Errors: kBadInput  the variable or the profile has another text than an address.
Result<Endpoint> endpoint();

// Threads: any.
class Credentials {
 public:
  // The one of this process.
  static Credentials& here();

  // Blocks for files and services where the key it has is older than 5 minutes before its end. Errors:
  // kBadInput  there is no key; kUnavailable  the service that has it does not answer.
  Result<AccessKey> get();
  // The next get() looks anew: the store did not take the key.
  void forget();

 private:
  Mutex mutex_;
  std::optional<TemporaryKey> key_ STARLING_GUARDED_BY(mutex_);
};

}  // namespace starling::s3
