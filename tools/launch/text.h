#pragma once
// Texts of launch files: templates that are filled, and words of users that are put into them.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/result.h"

namespace starling::tools {

using Fields = std::vector<std::pair<std::string_view, std::string>>;

// Replaces each {{field}}; what is put in is not looked at again. A template names no field that
// is not there (checked).
std::string fill(std::string_view text, const Fields& fields);

// Lines as a code block of Markdown.
std::string code_block(const std::vector<std::string>& lines);

// Whether a text is one line of printable characters. Errors: kBadInput  `what` it is, and the text.
Result<> check_line(const std::string& what, const std::string& text);
// Whether a text is a name of letters, digits and these further characters, and neither empty nor
// longer than 63. Errors: as above.
Result<> check_name(const std::string& what, const std::string& text, std::string_view further);

// A word of a shell's command line that means this text (check_line() holds).
std::string shell_word(const std::string& text);
// A scalar of YAML that means this text, likewise.
std::string yaml_word(const std::string& text);
// A word of a command line of a unit of systemd that means this text, likewise.
std::string systemd_word(const std::string& text);

}  // namespace starling::tools
