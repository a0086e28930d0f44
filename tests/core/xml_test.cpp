#include "core/base/xml.h"

#include <doctest/doctest.h>

namespace starling {

TEST_CASE("text that XML cannot hold is replaced") {
  CHECK(xml_text("a\x01\xff\n\"<&>") == "a ? &quot;&lt;&amp;&gt;");
}

}  // namespace starling
