#pragma once
// This writes report.html: one file that needs neither server nor script to be read. Pure.

#include <string>

#include "tools/chaos/report.h"

namespace starling::chaos {

std::string report_html(const Report& report);

// These are parts of it.
std::string verdict_table(const Report& report);
std::string pause_table(const Report& report);
std::string fault_table(const Report& report);

// Writes the frame of a page; `body` is HTML. `again_s`: a browser asks for it again after so many seconds; 0: never.
std::string html_page(const std::string& title, const std::string& body, int again_s = 0);

}  // namespace starling::chaos
