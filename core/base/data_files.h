#pragma once
// Which files have the data that a path names.

#include <string>
#include <vector>

#include "core/base/result.h"

namespace starling {

// Whether the last part of a path has one of *?[ : a pattern of file names.
bool is_pattern(const std::string& path);

// The path itself if it is a regular file. Of a folder: all regular files below it, no symbolic
// link followed, so that nothing comes twice and nothing from outside. Of a pattern ("train_*.bin",
// as glob(7) reads the last part; not names that begin with a dot): the files and links to files of
// that folder. Several come in the order of their paths' bytes. `extensions`: of a folder, only
// these (".h"; "" = files without one); empty = all. Errors (kBadInput): nothing there, neither a
// regular file nor a folder, unreadable, no file matches the pattern, more than 2^20 files.
struct DataFiles {
  std::vector<std::string> files;
  std::vector<std::string> links;  // of a folder: symbolic links that are left out
};
// kBadInput: "WHAT; reading data PATH".
Error bad_data(const std::string& what, const std::string& path);

Result<DataFiles> data_files(const std::string& path, const std::vector<std::string>& extensions);

}  // namespace starling
