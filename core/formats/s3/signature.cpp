#include "core/formats/s3/signature.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <array>
#include <memory>

#include "core/base/check.h"
#include "core/base/text.h"

namespace starling::s3 {
namespace {

using Hash = std::array<std::uint8_t, 32>;

constexpr const char* kAlgorithm = "AWS4-HMAC-SHA256";

Hash hmac(std::string_view key, std::string_view text) {
  Hash out;
  unsigned size = 0;
  const auto* const done =
      HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), out.data(), &size);
  STARLING_CHECK(done != nullptr && size == out.size());
  return out;
}
Hash hmac(const Hash& key, std::string_view text) {
  return hmac(std::string_view(reinterpret_cast<const char*>(key.data()), key.size()), text);
}

}  // namespace

std::string encoded(std::string_view text, bool keep_slash) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_' || c == '~' || (c == '/' && keep_slash);
    if (plain)
      out += c;
    else
      out += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return out;
}

std::string query_text(const std::map<std::string, std::string>& query) {
  std::map<std::string, std::string> all;  // the order is that of the encoded names
  for (const auto& [name, value] : query) all[encoded(name, false)] = encoded(value, false);
  std::string text;
  for (const auto& [name, value] : all) text += (text.empty() ? "" : "&") + name + "=" + value;
  return text;
}

std::string sha256_hex(std::span<const ByteView> pieces) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                        &EVP_MD_CTX_free);
  STARLING_CHECK(context && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1);
  for (const ByteView piece : pieces)
    STARLING_CHECK(EVP_DigestUpdate(context.get(), piece.data(), piece.size()) == 1);
  Hash hash;
  STARLING_CHECK(EVP_DigestFinal_ex(context.get(), hash.data(), nullptr) == 1);
  return hex(hash);
}

std::string sha256_hex(std::string_view text) {
  const ByteView bytes = as_bytes(std::span<const char>(text));
  return sha256_hex(std::span<const ByteView>(&bytes, 1));
}

std::string time_text(std::time_t time) {
  std::tm utc{};
  ::gmtime_r(&time, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%dT%H%M%SZ", &utc);
  return text;
}

std::string authorization(const Signed& request, const AccessKey& key, const std::string& region,
                          const std::string& time) {
  std::string headers, names;
  for (const auto& [name, value] : request.headers) {
    headers += name + ":" + value + "\n";
    names += (names.empty() ? "" : ";") + name;
  }
  const std::string canonical = request.method + "\n" + request.path + "\n" +
                                query_text(request.query) + "\n" + headers + "\n" + names + "\n" +
                                request.body_hash;
  const std::string day = time.substr(0, 8);
  const std::string scope = day + "/" + region + "/s3/aws4_request";
  const std::string to_sign =
      std::string(kAlgorithm) + "\n" + time + "\n" + scope + "\n" + sha256_hex(canonical);
  const Hash signing =
      hmac(hmac(hmac(hmac("AWS4" + key.secret, day), region), "s3"), "aws4_request");
  return std::string(kAlgorithm) + " Credential=" + key.id + "/" + scope +
         ", SignedHeaders=" + names + ", Signature=" + hex(hmac(signing, to_sign));
}

}  // namespace starling::s3
