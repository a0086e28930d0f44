#pragma once
// Whether the tokens of a job are those of one tokenizer.

#include "core/base/result.h"
#include "core/job/job.h"

namespace starling::actors {

// The tokenizers beside the tokens of [data], in whichever folders they lie (tokenizer_place.h), beside those of
// [evaluate] and beside the weights of [model].from, as far as they are there: those of the tokens have to be the same,
// and to have all that the weights' has, with the same ids; further tokens are added ones. Each has to be the one that
// made the tokens, as their note says, and the model has to have room for its tokens.
// Errors: kBadInput  they are others, which nothing else would show.
Result<> check_tokenizers(const Job& job);

}  // namespace starling::actors
