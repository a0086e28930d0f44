#include <doctest/doctest.h>

#include <random>

#include "core/formats/s3/answer_xml.h"
#include "core/formats/s3/credentials.h"

namespace starling::s3 {
namespace {

const std::string kList =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult "
    "xmlns=\"http://s3\"><Prefix>p/</Prefix>"
    "<IsTruncated>false</IsTruncated><CommonPrefixes><Prefix>p/a%2Bb/</Prefix></CommonPrefixes>"
    "<CommonPrefixes><Prefix>p/x&amp;&#x41;&#233;</Prefix></CommonPrefixes></ListBucketResult>";

TEST_CASE("s3 answers: the texts of an element, with entities") {
  CHECK(texts_of(kList, "Prefix").value() ==
        std::vector<std::string>{"p/", "p/a%2Bb/", "p/x&A\xc3\xa9"});
  CHECK(text_of(kList, "IsTruncated") == "false");
  CHECK_FALSE(text_of(kList, "Key"));
  CHECK(texts_of(kList, "CommonPrefixes").value().empty());
  CHECK(texts_of("", "Key").value().empty());
}

TEST_CASE("s3 answers: what declares, ends early or means nothing is refused") {
  CHECK_FALSE(texts_of("<!DOCTYPE x [<!ENTITY a \"b\">]><Key>&a;</Key>", "Key"));
  for (const char* text :
       {"<Key>a", "<Key>&a;</Key>", "<Key>&amp</Key>", "<Key>&#0;</Key>", "<Key>&#xd800;</Key>",
        "<Key>&#x110000;</Key>", "<Key>&#;</Key>", "<Key>&#12a;</Key>"})
    CHECK_MESSAGE(!texts_of(text, "Key"), text);
}

TEST_CASE("s3 answers: percent-encoding and back") {
  CHECK(decoded("a%2Bb+c%20") == "a+b c ");
  for (const char* text : {"%", "a%2", "%zz", "%+1"}) CHECK_MESSAGE(!decoded(text), text);
}

TEST_CASE("s3 answers: bytes changed anywhere give texts or errors") {
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    std::string text = kList;
    for (int n = 0; n < 3; ++n) text[random() % text.size()] = static_cast<char>(random());
    text.resize(random() % (text.size() + 1));
    for (const char* name : {"Prefix", "IsTruncated", "Key"}) {
      const auto found = texts_of(text, name);
      if (!found) continue;
      for (const std::string& each : found.value()) {
        CHECK(each.size() <= text.size());
        (void)decoded(each);
      }
    }
    (void)parse_temporary_key(text);
    (void)section_of(text, "default");
  }
}

TEST_CASE("s3 credentials: one section of a file, without what is nested") {
  const std::string text =
      "[default]\naws_access_key_id = A=1 \n# x = y\ns3 =\n  endpoint_url = nested\n\n[profile "
      "b]\r\nregion=eu\r\n";
  const auto values = section_of(text, "default");
  CHECK(values.at("aws_access_key_id") == "A=1");
  CHECK(values.at("s3").empty());
  CHECK(values.size() == 2);
  CHECK(section_of(text, "profile b") == std::map<std::string, std::string>{{"region", "eu"}});
  CHECK(section_of(text, "c").empty());
}

TEST_CASE("s3 credentials: the key of a metadata service, and its end") {
  const auto found = parse_temporary_key(
      "{\"Code\":\"Success\",\"AccessKeyId\":\"a\",\"SecretAccessKey\":\"b\",\"Token\":\"c\","
      "\"Expiration\":\"2013-05-24T00:00:00Z\"}");
  CHECK(found.value().key.token == "c");
  CHECK(found.value().ends == 1369353600);
  for (const char* text : {"", "[]", "{}", "{\"AccessKeyId\":1,\"SecretAccessKey\":\"b\"}"})
    CHECK_MESSAGE(!parse_temporary_key(text), text);
  CHECK(parse_time("2013-05-24T00:00:00.25Z") == 1369353600);
  for (const char* text : {"", "2013", "2013-05-24T00:00:00", "2013-05-24T00:00:00+02:00"})
    CHECK_MESSAGE(!parse_time(text), text);
}

}  // namespace
}  // namespace starling::s3
