#pragma once
// Chats as token streams: which marks and texts a message becomes, and what of them a model learns to say.

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace starling {

// A stretch of a document becomes tokens by itself: no token reaches from one into the next.
struct Stretch {
  std::string text;
  bool mark = false;    // the one token that is written so
  bool learned = true;  // else it is read, and no loss is computed of its tokens
};

// How a family of models writes a chat:
//   begin, and of each message: before, its role, after, gap, its content, end, next
struct ChatForm {
  std::string_view name;
  std::string_view begin;          // marks; empty: none
  std::string_view before, after;  // around the role
  std::string_view end;            // of a message
  std::string_view gap, next;      // texts
  bool trims = false;              // contents lose white space at both ends
  std::string_view in_jinja;       // the same as a template of transformers
};

// "chatml" (Qwen's and others') and "llama3" (of the templates of Llama 3, without the lines of dates and tools that
// later ones add).
std::span<const ChatForm> chat_forms();
// Null: none is called so.
const ChatForm* find_chat_form(std::string_view name);
// Null: none is written so as a template. Another template may mean the same form, or one that differs in a system's
// message of its own.
const ChatForm* chat_form_of_template(std::string_view jinja);
// The marks of a form, each once.
std::vector<std::string> marks_of(const ChatForm& form);

// The stretches of `messages`, an array of objects with role and content: as a model is asked, whose prompt ends before
// an answer. Learned are the contents of "assistant" and the marks behind them, but not those of a message with
// "weight": 0. Errors: kBadInput  no such array, an empty one, a role that is none of system, user and assistant, a
// content that is no text, or a member that would not be written.
Result<std::vector<Stretch>> chat_stretches(const nlohmann::json& messages, const ChatForm& form);
// The same, and the head of an answer behind them.
Result<std::vector<Stretch>> chat_prompt(const nlohmann::json& messages, const ChatForm& form);

}  // namespace starling
