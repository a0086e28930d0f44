#pragma once
// A CompletionServer has a model go on from the texts that clients of OpenAI's completions send, on this machine
// alone: for a look at the model, one request at a time.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/base/result.h"
#include "core/text/sampling.h"
#include "tools/starling/text_writer.h"

namespace starling::tools {

// It answers over plain HTTP, at 127.0.0.1:
//   POST /v1/completions   a JSON object with prompt, and what a request may have of max_tokens, temperature, top_p,
//                          top_k, seed, stop, stream and echo; a member that would ask for something else is an error
//   POST /v1/chat/completions  the same with messages, of a model whose form of chats is known
//   GET  /v1/models        the model's name
// An error is status 400 and more, with an object "error" as OpenAI has it. Requests that a page of a browser could send
// by itself (another Host, no JSON) are refused.
// One thread.
class CompletionServer {
 public:
  // `port`: 0: any. `rule`: of requests that say nothing. `writer` must outlive it.
  // Errors: kBadInput  the port cannot be listened at.
  static Result<std::unique_ptr<CompletionServer>> make(std::uint16_t port, std::string name,
                                                        const SamplingRule& rule,
                                                        TextWriter& writer);
  ~CompletionServer();

  // "http://127.0.0.1:8000/v1/completions".
  const std::string& url() const { return url_; }
  // Answers until `ended` gives another number than 0, which it returns; asked several times a second.
  int run(const std::function<int()>& ended);

 private:
  struct Impl;
  CompletionServer(std::unique_ptr<Impl> impl, std::string url);
  const std::unique_ptr<Impl> impl_;
  const std::string url_;
};

}  // namespace starling::tools
