#include "tools/starling/completion_request.h"

#include <cmath>
#include <cstdint>
#include <utility>

#include "core/base/json.h"

namespace starling::tools {
namespace {

using Json = nlohmann::json;

constexpr std::uint32_t kTokensUsual = 16, kTokensMax = 1u << 20;
constexpr std::size_t kStopsMax = 16, kStopBytesMax = 1024;

std::string shown(const Json& value) {
  return value.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 64);
}

Error wrong(const std::string& key, const Json& value, const std::string& expected) {
  return bad_input(key + " is " + shown(value) + ", expected " + expected);
}

Result<> number(const std::string& key, const Json& value, double& out, double most) {
  if (!value.is_number() || !(value.get<double>() >= 0) || !(value.get<double>() <= most))
    return wrong(key, value, "a number from 0 to " + std::to_string(static_cast<int>(most)));
  out = value.get<double>();
  return ok();
}

template <class T>
Result<> whole(const std::string& key, const Json& value, T& out, std::uint64_t least,
               std::uint64_t most) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() < least ||
      value.get<std::uint64_t>() > most)
    return wrong(key, value,
                 "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  out = value.get<T>();
  return ok();
}

Result<> flag(const std::string& key, const Json& value, bool& out) {
  if (!value.is_boolean()) return wrong(key, value, "true or false");
  out = value.get<bool>();
  return ok();
}

Result<> stops(const Json& value, std::vector<std::string>& out) {
  const Json list = value.is_array() ? value : Json::array({value});
  for (const Json& stop : list) {
    if (!stop.is_string() || stop.get_ref<const std::string&>().empty() ||
        stop.get_ref<const std::string&>().size() > kStopBytesMax || list.size() > kStopsMax)
      return wrong("stop", value, "a text or up to 16, of 1 to 1024 bytes each");
    out.push_back(stop.get<std::string>());
  }
  return ok();
}

// A member that asks for nothing where it has this value.
Result<> only(const std::string& key, const Json& value, const Json& idle) {
  if (value == idle) return ok();
  return wrong(key, value, shown(idle) + ", as nothing else is done here");
}

// Makes one text of a content that is a list of texts; any other content stays, and is refused later.
void join_texts(Json& message) {
  if (!message.is_object() || !message.contains("content") || !message["content"].is_array())
    return;
  std::string text;
  for (const Json& part : message["content"]) {
    const bool is_text = part.is_object() && part.size() == 2 &&
                         part.value("type", Json()) == "text" && part.contains("text") &&
                         part["text"].is_string();
    if (!is_text) return;
    text += part["text"].get_ref<const std::string&>();
  }
  message["content"] = text;
}

Result<> take(Completions kind, const std::string& key, const Json& value, const std::string& name,
              CompletionRequest& request) {
  SamplingRule& rule = request.writing.rule;
  const bool chat = kind == Completions::kChat;
  if (key == "messages" && chat) {
    request.messages = value;
    if (value.is_array())
      for (Json& message : request.messages) join_texts(message);
    return ok();
  }
  if (key == "max_completion_tokens" && chat)
    return whole(key, value, request.writing.tokens, 1, kTokensMax);
  if (key == "response_format" && chat) return only(key, value, {{"type", "text"}});
  if ((key == "tools" || key == "functions") && chat) return only(key, value, Json::array());
  if (key == "logprobs" && chat) return only(key, value, false);
  if (key == "prompt" && !chat) {
    const Json& text = value.is_array() && value.size() == 1 ? value[0] : value;
    if (!text.is_string()) return wrong(key, value, "one text");
    request.prompt = text.get<std::string>();
    return ok();
  }
  if (key == "model") {
    return value == name
               ? ok()
               : Result<>(wrong(key, value, Json(name).dump() + ", the model that is served"));
  }
  if (key == "max_tokens") return whole(key, value, request.writing.tokens, 1, kTokensMax);
  if (key == "temperature") return number(key, value, rule.temperature, 100);
  if (key == "top_p") return number(key, value, rule.top_p, 1);
  if (key == "top_k") return whole(key, value, rule.top_k, 0, 0xffffffff);
  if (key == "seed") return whole(key, value, rule.seed, 0, INT64_MAX);
  if (key == "stop") return stops(value, request.writing.stop);
  if (key == "stream") return flag(key, value, request.stream);
  if (key == "echo" && !chat) return flag(key, value, request.echo);
  if (key == "n" || (key == "best_of" && !chat)) return only(key, value, 1);
  if (key == "presence_penalty" || key == "frequency_penalty") return only(key, value, 0);
  if (key == "logit_bias") return only(key, value, Json::object());
  if (key == "user") return ok();
  if (key == "stream_options") {
    if (!value.is_object() || value.size() > 1 ||
        (value.size() == 1 && !value.contains("include_usage")))
      return wrong(key, value, "an object with include_usage");
    if (value.empty()) return ok();
    return flag("include_usage", value["include_usage"], request.usage_at_end);
  }
  return bad_input("nothing is done here for the member " + shown(key));
}

}  // namespace

Result<CompletionRequest> parse_completion(Completions kind, std::string_view text,
                                           const std::string& name, const SamplingRule& rule) {
  STARLING_TRY(json, parse_json(text));
  if (!json.is_object()) return bad_input("the request is no JSON object");
  CompletionRequest request;
  request.writing.tokens = kind == Completions::kChat ? 0 : kTokensUsual;
  request.writing.rule = rule;
  for (const auto& [key, value] : json.items()) {
    if (value.is_null()) continue;
    STARLING_TRY(take(kind, key, value, name, request));
  }
  const auto number_of = [&](const char* key) { return json.contains(key) ? json[key] : Json(); };
  const Json most = number_of("max_tokens"), newer = number_of("max_completion_tokens");
  if (!most.is_null() && !newer.is_null() && most != newer)
    return bad_input("max_tokens and max_completion_tokens are two numbers, expected one of them");
  if (kind == Completions::kChat && request.messages.is_null())
    return bad_input(
        "messages is missing, expected [{\"role\": \"user\", \"content\": \"..\"}, ..]");
  return request;
}

}  // namespace starling::tools
