#pragma once
// Where the tokenizer of token files or of weights lies: beside them.

#include <string>
#include <vector>

namespace starling {

// The folders in which the token files lie that `path` names as [data] does (core/base/data_files.h), each once, in the
// order of the files. A link whose own folder has no tokenizer counts for the folder to which it leads. Where there are
// no files: the folder of the path itself.
std::vector<std::string> places_of_tokens(const std::string& path);
// Those of weights, a file or a folder with files and links.
std::vector<std::string> places_of_weights(const std::string& path);
// The first of them that has a tokenizer; empty: none has.
std::string place_of_tokenizer(const std::string& tokens);

}  // namespace starling
