#include "core/text/chat.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "tests/core/has.h"

namespace starling {
namespace {

using Json = nlohmann::json;

Json said(const char* role, const std::string& content) {
  return {{"role", role}, {"content", content}};
}

// Marks in <>, what is learned in [].
std::string written(const std::string& form, const Json& messages) {
  std::string all;
  const auto stretches = chat_stretches(messages, *find_chat_form(form)).value();
  for (const Stretch& stretch : stretches) {
    const std::string text =
        stretch.mark ? "<" + stretch.text.substr(2, stretch.text.size() - 4) + ">" : stretch.text;
    all += (all.empty() ? "" : "|") + (stretch.learned ? "[" + text + "]" : text);
  }
  return all;
}

std::string error_of_any(const Json& messages) {
  const auto stretches = chat_stretches(messages, *find_chat_form("chatml"));
  return stretches ? "no error" : stretches.error().text();
}
std::string error_of(const std::vector<Json>& messages) {
  return error_of_any(Json(messages));
}

}  // namespace

TEST_CASE("chat: answers are learned, and what they answer is read") {
  const Json chat{said("system", "be brief"), said("user", " hi "), said("assistant", " yes\n"),
                  said("user", "bye"), said("assistant", "")};
  CHECK(
      written("chatml", chat) ==
      "<im_start>|system\nbe brief|<im_end>|\n|<im_start>|user\n hi "
      "|<im_end>|\n|<im_start>|assistant\n|"
      "[ "
      "yes\n]|[<im_end>]|\n|<im_start>|user\nbye|<im_end>|\n|<im_start>|assistant\n|[<im_end>]|\n");
  CHECK(written("llama3", chat) ==
        "<begin_of_text>|<start_header_id>|system|<end_header_id>|\n\nbe "
        "brief|<eot_id>|<start_header_id>|user|"
        "<end_header_id>|\n\nhi|<eot_id>|<start_header_id>|assistant|<end_header_id>|\n\n|[yes]|[<"
        "eot_id>]|"
        "<start_header_id>|user|<end_header_id>|\n\nbye|<eot_id>|<start_header_id>|assistant|<end_"
        "header_id>|"
        "\n\n|[<eot_id>]");
  CHECK(
      written("llama3",
              Json::array({said("assistant", "\u00a0\x0b\u2003hi\u3000you\u0085\x1c \u3000")})) ==
      "<begin_of_text>|<start_header_id>|assistant|<end_header_id>|\n\n|[hi\u3000you]|[<eot_id>]");
  CHECK(find_chat_form("alpaca") == nullptr);
  CHECK(marks_of(*find_chat_form("chatml")) ==
        std::vector<std::string>{"<|im_start|>", "<|im_end|>"});
}

TEST_CASE("chat: an answer of weight 0 is read") {
  Json first = said("assistant", "no");
  first["weight"] = 0;
  Json second = said("assistant", "yes");
  second["weight"] = 1;
  second["refusal"] = nullptr;
  CHECK(written("chatml", {first, second}) ==
        "<im_start>|assistant\nno|<im_end>|\n|<im_start>|assistant\n|[yes]|[<im_end>]|\n");
}

TEST_CASE("chat: what would not be written is refused") {
  CHECK(error_of({said("user", "a")}) == "no error");
  for (const Json& none : {Json(), Json("hi"), Json::array(), said("user", "a")})
    CHECK(has(error_of_any(none), "has no messages, expected [{"));
  CHECK(has(error_of({said("user", "a"), "b"}), "is no object with role and content; message 2"));
  CHECK(has(error_of({said("tool", "a")}),
            "has the role \"tool\", expected system, user or assistant; message 1"));
  CHECK(has(error_of({Json{{"content", "a"}}}), "has the role \"\""));
  CHECK(has(error_of({Json{{"role", "user"}}}), "has no content"));
  CHECK(has(error_of({Json{{"role", "user"}, {"content", Json::array()}}}),
            "a content that is no text"));
  for (const char* const key : {"name", "tool_calls"}) {
    Json message = said("assistant", "a");
    message[key] = "x";
    CHECK(has(error_of({message}),
              std::string("has the member \"") + key + "\", which would not be written"));
  }
  Json message = said("assistant", "a");
  for (const Json& weight : {Json(2), Json(0.5), Json(true), Json("1")}) {
    message["weight"] = weight;
    CHECK(has(error_of({message}), "a weight that is neither 0 nor 1"));
  }
}

}  // namespace starling
