#include "core/text/chat.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

namespace starling {
namespace {

constexpr ChatForm kForms[] = {
    {.name = "chatml",
     .begin = "",
     .before = "<|im_start|>",
     .after = "",
     .end = "<|im_end|>",
     .gap = "\n",
     .next = "\n",
     .in_jinja = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] "
                 "}}<|im_end|>\n{% endfor %}"
                 "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"},
    {.name = "llama3",
     .begin = "<|begin_of_text|>",
     .before = "<|start_header_id|>",
     .after = "<|end_header_id|>",
     .end = "<|eot_id|>",
     .gap = "\n\n",
     .next = "",
     .trims = true,
     .in_jinja = "<|begin_of_text|>{% for m in messages %}<|start_header_id|>{{ m['role'] "
                 "}}<|end_header_id|>\n\n"
                 "{{ m['content'] | trim }}<|eot_id|>{% endfor %}"
                 "{% if add_generation_prompt "
                 "%}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"}};

// Appends a stretch; text that is not learned goes on with one before it.
void append(std::vector<Stretch>& stretches, std::string_view text, bool mark, bool learned) {
  if (text.empty()) return;
  const bool goes_on = !mark && !learned && !stretches.empty() && !stretches.back().mark &&
                       !stretches.back().learned;
  if (goes_on)
    stretches.back().text += text;
  else
    stretches.push_back({std::string(text), mark, learned});
}

void append_head(std::vector<Stretch>& stretches, std::string_view role, const ChatForm& form) {
  append(stretches, form.before, /*mark=*/true, /*learned=*/false);
  append(stretches, role, /*mark=*/false, /*learned=*/false);
  append(stretches, form.after, /*mark=*/true, /*learned=*/false);
  append(stretches, form.gap, /*mark=*/false, /*learned=*/false);
}

// Without white space at both ends, as a template's trim (Python's str.strip()) takes it.
std::string_view stripped(std::string_view text) {
  constexpr std::string_view kSpaces[] = {
      "\t",     "\n",     "\v",     "\f",     "\r",     "\x1c",   "\x1d",   "\x1e",
      "\x1f",   " ",      "\u0085", "\u00a0", "\u1680", "\u2000", "\u2001", "\u2002",
      "\u2003", "\u2004", "\u2005", "\u2006", "\u2007", "\u2008", "\u2009", "\u200a",
      "\u2028", "\u2029", "\u202f", "\u205f", "\u3000"};
  const auto drop = [&](auto is_there, auto remove) {
    for (bool found = true; found;) {
      found = false;
      for (const std::string_view space : kSpaces)
        if (is_there(space)) {
          remove(space.size());
          found = true;
        }
    }
  };
  drop([&](std::string_view space) { return text.starts_with(space); },
       [&](std::size_t size) { text.remove_prefix(size); });
  drop([&](std::string_view space) { return text.ends_with(space); },
       [&](std::size_t size) { text.remove_suffix(size); });
  return text;
}

std::string shown(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', true).substr(0, 64);
}

struct ChatMessage {
  std::string role, content;
  bool learned = false;
};

Result<ChatMessage> read_message(const nlohmann::json& json) {
  if (!json.is_object()) return bad_input("is no object with role and content");
  ChatMessage message;
  bool weighed = true;
  constexpr std::string_view kWritten[] = {"role", "content", "weight"};
  for (const auto& [key, value] : json.items())
    if (std::ranges::find(kWritten, key) == std::end(kWritten) && !value.is_null())
      return bad_input("has the member " + shown(key) +
                       ", which would not be written; expected role, content, weight");
  for (const auto& [key, value] : json.items()) {
    if (key == "role" && value.is_string()) {
      message.role = value.get<std::string>();
    } else if (key == "content" && value.is_string()) {
      message.content = value.get<std::string>();
    } else if (key == "weight" && (value == 0 || value == 1)) {
      weighed = value == 1;
    } else if (key == "role" || key == "content") {
      return bad_input("has a " + key + " that is no text");
    } else if (key == "weight") {
      return bad_input("has a weight that is neither 0 nor 1");
    }
  }
  if (!json.contains("content")) return bad_input("has no content");
  constexpr std::string_view kRoles[] = {"system", "user", "assistant"};
  if (std::ranges::find(kRoles, message.role) == std::end(kRoles))
    return bad_input("has the role " + shown(message.role) +
                     ", expected system, user or assistant");
  message.learned = message.role == "assistant" && weighed;
  return message;
}

}  // namespace

std::span<const ChatForm> chat_forms() {
  return kForms;
}

const ChatForm* find_chat_form(std::string_view name) {
  const auto* const form = std::ranges::find(kForms, name, &ChatForm::name);
  return form == std::end(kForms) ? nullptr : form;
}

const ChatForm* chat_form_of_template(std::string_view jinja) {
  const auto* const form = std::ranges::find(kForms, jinja, &ChatForm::in_jinja);
  return form == std::end(kForms) ? nullptr : form;
}

std::vector<std::string> marks_of(const ChatForm& form) {
  std::vector<std::string> marks;
  for (const std::string_view mark : {form.begin, form.before, form.after, form.end})
    if (!mark.empty()) marks.emplace_back(mark);
  return marks;
}

Result<std::vector<Stretch>> chat_stretches(const nlohmann::json& messages, const ChatForm& form) {
  if (!messages.is_array() || messages.empty())
    return bad_input("has no messages, expected [{\"role\": \"user\", \"content\": \"..\"}, ..]");
  std::vector<Stretch> stretches;
  append(stretches, form.begin, /*mark=*/true, /*learned=*/false);
  for (std::size_t i = 0; i < messages.size(); ++i) {
    auto read = read_message(messages[i]);
    if (!read) return std::move(read).error().in("message " + std::to_string(i + 1));
    const ChatMessage& message = read.value();
    append_head(stretches, message.role, form);
    append(stretches, form.trims ? stripped(message.content) : std::string_view(message.content),
           /*mark=*/false, message.learned);
    append(stretches, form.end, /*mark=*/true, message.learned);
    append(stretches, form.next, /*mark=*/false, /*learned=*/false);
  }
  return stretches;
}

Result<std::vector<Stretch>> chat_prompt(const nlohmann::json& messages, const ChatForm& form) {
  STARLING_TRY(stretches, chat_stretches(messages, form));
  append_head(stretches, "assistant", form);
  return std::move(stretches);
}

}  // namespace starling
