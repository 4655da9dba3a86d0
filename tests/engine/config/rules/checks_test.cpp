#include "engine/config/rules/checks.h"

#include "core/error.h"

#include "tests/catch.h"

namespace shardline::checks_test {
namespace {

std::pair<std::string, std::string> reported(const std::string& mistake) {
  std::pair<std::string, std::string> report{"not reported", "not reported"};
  report_mistakes([&] { throw ConfigError(mistake); },
                  [&](const std::string& rule, const std::string& advice) { report = {rule, advice}; });
  return report;
}

}  // namespace

TEST_CASE("a mistake is reported as a rule and advice, or as a rule alone", "[config]") {
  CHECK(reported("must be even; use 2; or 4") == std::pair<std::string, std::string>("must be even", "use 2; or 4"));
  CHECK(reported("must be even") == std::pair<std::string, std::string>("must be even", ""));
  CHECK(reported("must be even; ") == std::pair<std::string, std::string>("must be even", ""));
  CHECK(reported("") == std::pair<std::string, std::string>());
}

}  // namespace shardline::checks_test
