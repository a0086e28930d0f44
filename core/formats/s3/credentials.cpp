#include "core/formats/s3/credentials.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/environment.h"
#include "core/base/text.h"
#include "core/formats/s3/answer_xml.h"
#include "core/formats/s3/http.h"

namespace starling::s3 {
namespace {

using Json = nlohmann::json;
using Found = Result<std::optional<TemporaryKey>>;

constexpr std::time_t kBeforeEnd = 300;
constexpr std::size_t kFileBytesMax = std::size_t{1} << 20;
constexpr const char* kMetadata = "http://169.254.169.254";
constexpr const char* kContainers = "http://169.254.170.2";

// Without spaces and line ends around it, which files and Secrets often have.
std::string trimmed_value(EnvVar variable) {
  return std::string(trimmed(environment().value(variable)));
}

// Empty: it cannot be read, or is no file.
std::string read(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return {};
  std::ifstream file(path, std::ios::binary);
  std::string text;
  for (char c; text.size() < kFileBytesMax && file.get(c);) text += c;
  return text;
}

std::string file_of(EnvVar variable, const char* in_home) {
  const std::string named = trimmed_value(variable), home = trimmed_value(EnvVar::kHome);
  return !named.empty() ? named : home.empty() ? "" : home + "/.aws/" + in_home;
}

// The profile's values, of both files; those of ~/.aws/credentials go before, and a key is of one file.
std::map<std::string, std::string> profile() {
  std::string name = trimmed_value(EnvVar::kAwsProfile);
  if (name.empty()) name = "default";
  auto values = section_of(read(file_of(EnvVar::kAwsCredentialsFile, "credentials")), name);
  auto others = section_of(read(file_of(EnvVar::kAwsConfigFile, "config")),
                           name == "default" ? name : "profile " + name);
  if (values.contains("aws_access_key_id"))
    std::erase_if(others, [](const auto& each) { return each.first.starts_with("aws_"); });
  values.merge(others);
  return values;
}

std::string of_profile(const char* name) {
  const auto values = profile();
  const auto at = values.find(name);
  return at == values.end() ? "" : at->second;
}

Error unexpected_answer(const std::string& what, const HttpReply& reply) {
  return Error(Code::kUnavailable,
               without_secrets(what) + " answers " + std::to_string(reply.status));
}

// A service that is overloaded, or away for a moment.
bool is_away_for_a_moment(const HttpReply& reply) {
  return reply.status == 429 || reply.status >= 500;
}

Found of_environment() {
  const AccessKey key{trimmed_value(EnvVar::kAwsKeyId), trimmed_value(EnvVar::kAwsSecret),
                      trimmed_value(EnvVar::kAwsSessionToken)};
  if (key.id.empty() && key.secret.empty()) return std::optional<TemporaryKey>();
  if (key.id.empty() || key.secret.empty())
    return Error(Code::kBadInput,
                 "expected AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, only one is set");
  return std::optional(TemporaryKey{key, {}});
}

// Others may write a new key into the file at any time, so it is read again now and then.
Found of_files() {
  const auto values = profile();
  const auto value = [&](const char* name) {
    const auto at = values.find(name);
    return at == values.end() ? std::string() : at->second;
  };
  const AccessKey key{value("aws_access_key_id"), value("aws_secret_access_key"),
                      value("aws_session_token")};
  if (!key.id.empty() && !key.secret.empty())
    return std::optional(TemporaryKey{key, std::time(nullptr) + 2 * kBeforeEnd});
  if (const std::string name = trimmed_value(EnvVar::kAwsProfile); !name.empty() && values.empty())
    return Error(Code::kBadInput, "there is no profile " + name + ", which AWS_PROFILE names");
  return std::optional<TemporaryKey>();
}

Found of_web_identity(Http& http) {
  const std::string file = trimmed_value(EnvVar::kAwsWebIdentityTokenFile);
  const std::string role = trimmed_value(EnvVar::kAwsRole);
  if (file.empty() || role.empty()) return std::optional<TemporaryKey>();
  const std::string token(trimmed(read(file)));
  if (token.empty())
    return Error(Code::kBadInput, "cannot read AWS_WEB_IDENTITY_TOKEN_FILE; " + file);
  std::string at = trimmed_value(EnvVar::kAwsEndpointSts);
  if (at.empty()) at = "https://sts." + region() + ".amazonaws.com";
  const std::string session = trimmed_value(EnvVar::kAwsRoleSession);
  const auto query = query_text({{"Action", "AssumeRoleWithWebIdentity"},
                                 {"Version", "2011-06-15"},
                                 {"RoleArn", role},
                                 {"RoleSessionName", session.empty() ? "starling" : session},
                                 {"WebIdentityToken", token}});
  const ByteView body = as_bytes(std::span<const char>(query));
  STARLING_TRY(reply, http.send({"POST",
                                 at + "/",
                                 {{"content-type", "application/x-www-form-urlencoded"}},
                                 std::span<const ByteView>(&body, 1)}));
  const auto text = [&](const char* name) { return text_of(reply.body, name).value_or(""); };
  if (is_away_for_a_moment(reply)) return unexpected_answer(at, reply);
  if (!reply.good())
    return Error(Code::kBadInput, without_secrets(at) + " gives no key for AWS_ROLE_ARN " + role +
                                      ": " + std::to_string(reply.status) + " " + text("Code"));
  TemporaryKey found{{text("AccessKeyId"), text("SecretAccessKey"), text("SessionToken")},
                     parse_time(text("Expiration"))};
  if (found.key.id.empty() || found.key.secret.empty())
    return Error(Code::kUnavailable, without_secrets(at) + " answers without a key");
  return std::optional(std::move(found));
}

Found of_container(Http& http) {
  const std::string relative = trimmed_value(EnvVar::kAwsContainerRelative);
  const std::string url =
      relative.empty() ? trimmed_value(EnvVar::kAwsContainerFull) : kContainers + relative;
  if (url.empty()) return std::optional<TemporaryKey>();
  std::string token = trimmed_value(EnvVar::kAwsContainerToken);
  if (const std::string file = trimmed_value(EnvVar::kAwsContainerTokenFile); !file.empty())
    token = trimmed(read(file));
  HttpCall call{"GET", url, {}};
  if (!token.empty()) call.headers["authorization"] = token;
  call.metadata = true;
  STARLING_TRY(reply, http.send(call));
  if (!reply.good()) return unexpected_answer(url, reply);
  STARLING_TRY(found, parse_temporary_key(reply.body));
  return std::optional(std::move(found));
}

// None: this is no such machine, or one without a role.
Found of_machine(Http& http) {
  if (trimmed_value(EnvVar::kAwsMetadataDisabled) == "true") return std::optional<TemporaryKey>();
  std::string at = trimmed_value(EnvVar::kAwsMetadata);
  while (at.ends_with('/')) at.pop_back();
  if (at.empty()) at = kMetadata;
  HttpCall call{"PUT", at + "/latest/api/token", {{"x-aws-ec2-metadata-token-ttl-seconds", "300"}}};
  call.metadata = true;
  auto token = http.send(call);
  if (token && is_away_for_a_moment(token.value()))
    return unexpected_answer(call.url, token.value());
  if (!token || !token.value().good()) return std::optional<TemporaryKey>();
  call.method = "GET";
  call.headers = {{"x-aws-ec2-metadata-token", token.value().body}};
  call.url = at + "/latest/meta-data/iam/security-credentials/";
  STARLING_TRY(role, http.send(call));
  if (role.status == 404) return std::optional<TemporaryKey>();
  if (!role.good()) return unexpected_answer(call.url, role);
  call.url += encoded(trimmed(role.body.substr(0, role.body.find('\n'))), false);
  STARLING_TRY(reply, http.send(call));
  if (!reply.good()) return unexpected_answer(call.url, reply);
  STARLING_TRY(found, parse_temporary_key(reply.body));
  return std::optional(std::move(found));
}

// Errors: kBadInput  a part of the key would be another header.
Result<TemporaryKey> checked(TemporaryKey found) {
  for (const std::string& part : {found.key.id, found.key.secret, found.key.token})
    if (std::any_of(part.begin(), part.end(),
                    [](unsigned char c) { return c < 0x20 || c == 0x7f; }))
      return Error(Code::kBadInput,
                   "the access key for s3:// has line ends or other control characters in it");
  return found;
}

Result<TemporaryKey> look() {
  for (const auto source : {&of_environment, &of_files}) {
    STARLING_TRY(found, source());
    if (found) return checked(std::move(*found));
  }
  STARLING_TRY(http, Http::open());
  for (const auto source : {&of_web_identity, &of_container, &of_machine}) {
    STARLING_TRY(found, source(*http));
    if (found) return checked(std::move(*found));
  }
  return Error(Code::kBadInput,
               "there is no access key for s3://, expected AWS_ACCESS_KEY_ID and "
               "AWS_SECRET_ACCESS_KEY, a profile in ~/.aws/credentials, or a machine with a role");
}

}  // namespace

std::map<std::string, std::string> section_of(std::string_view text, const std::string& section) {
  std::map<std::string, std::string> values;
  bool inside = false;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.starts_with('[')) {
      const auto close = std::min(line.find(']'), line.size());
      inside = trimmed(line.substr(1, close - 1)) == section;
      continue;
    }
    const auto equals = line.find('=');
    // A line that begins with a space belongs to a nested value.
    if (!inside || equals == line.npos || line.front() == ' ' || line.front() == '\t') continue;
    if (line.front() == '#' || line.front() == ';') continue;
    values[std::string(trimmed(line.substr(0, equals)))] = trimmed(line.substr(equals + 1));
  }
  return values;
}

Result<TemporaryKey> parse_temporary_key(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto value = [&](const char* name) {
    const bool there = json.is_object() && json.contains(name) && json[name].is_string();
    return there ? json[name].get<std::string>() : std::string();
  };
  TemporaryKey found{{value("AccessKeyId"), value("SecretAccessKey"), value("Token")},
                     parse_time(value("Expiration"))};
  if (found.key.id.empty() || found.key.secret.empty())
    return Error(Code::kUnavailable, "a metadata service answers without an access key");
  return found;
}

std::optional<std::time_t> parse_time(std::string_view text) {
  std::tm utc{};
  char rest[8] = "";
  const std::string copy(text.substr(0, 40));
  const int fields =
      std::sscanf(copy.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d%7[Z.]", &utc.tm_year, &utc.tm_mon,
                  &utc.tm_mday, &utc.tm_hour, &utc.tm_min, &utc.tm_sec, rest);
  if (fields != 7 || !copy.ends_with('Z')) return std::nullopt;
  utc.tm_year -= 1900;
  utc.tm_mon -= 1;
  return ::timegm(&utc);
}

namespace {

std::string find_region() {
  for (const EnvVar variable : {EnvVar::kAwsRegion, EnvVar::kAwsDefaultRegion})
    if (std::string value = trimmed_value(variable); !value.empty()) return value;
  std::string value = of_profile("region");
  return value.empty() ? "us-east-1" : value;
}

Result<Endpoint> find_endpoint() {
  std::string url, from;
  for (const EnvVar variable : {EnvVar::kAwsEndpointS3, EnvVar::kAwsEndpoint})
    if (url.empty()) url = trimmed_value(variable), from = name_of(variable);
  if (url.empty()) url = of_profile("endpoint_url"), from = "the profile's endpoint_url";
  if (url.empty())
    return Endpoint{"https://s3." + region() + ".amazonaws.com",
                    "AWS, as AWS_ENDPOINT_URL_S3 names no other"};
  const std::string said = without_secrets(url);
  while (url.ends_with('/')) url.pop_back();
  const auto scheme = url.find("://");
  const std::string host = scheme == url.npos ? "" : url.substr(scheme + 3);
  const auto colon = host.ends_with(']') ? host.npos : host.rfind(':');
  const std::string port = colon == host.npos ? "1" : host.substr(colon + 1);
  std::uint16_t value = 0;
  const auto number = std::from_chars(port.data(), port.data() + port.size(), value);
  const bool good_port = number.ec == std::errc() && number.ptr == port.data() + port.size();
  const bool known = url.starts_with("http://") || url.starts_with("https://");
  if (known && good_port && !host.empty() && host.find_first_of("/?#@ \t\r\n") == host.npos)
    return Endpoint{url, from};
  return Error(
      Code::kBadInput,
      "expected the store's address as http://HOST:PORT or https://HOST, is " + said + "; " + from);
}

}  // namespace

// Once for each process: a file that is written anew does not send requests to another store.
std::string region() {
  static const std::string found = find_region();
  return found;
}

Result<Endpoint> endpoint() {
  static const Result<Endpoint> found = find_endpoint();
  if (found) return found.value();
  return Error(found.error().code(), found.error().text());
}

Credentials& Credentials::here() {
  static Credentials credentials;
  return credentials;
}

Result<AccessKey> Credentials::get() {
  const MutexLock lock(mutex_);
  if (key_ && (!key_->ends || std::time(nullptr) < *key_->ends - kBeforeEnd)) return key_->key;
  auto found = look();
  if (found) {
    key_ = std::move(found).value();
    return key_->key;
  }
  // A service that is away for a moment takes nothing from a key that still holds.
  if (key_ && key_->ends && std::time(nullptr) < *key_->ends) return key_->key;
  return std::move(found).error();
}

void Credentials::forget() {
  const MutexLock lock(mutex_);
  key_.reset();
}

}  // namespace starling::s3
