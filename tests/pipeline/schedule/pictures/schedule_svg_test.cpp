#include "pipeline/schedule/pictures/schedule_svg.h"

#include "core/error.h"
#include "tests/pipeline/schedules.h"

#include "tests/catch.h"

namespace shardline::schedule_svg_test {
namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t number = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++number;
  return number;
}

}  // namespace

TEST_CASE("the picture has a box for every computation, a row for every stage, and a legend") {
  for (const auto& schedule : all_schedules(3, 4)) {
    CAPTURE(schedule.name);
    const auto svg = schedule_svg(schedule);
    CHECK(svg.starts_with("<svg "));
    CHECK(svg.ends_with("</svg>\n"));
    CHECK(count(svg, "<rect ") == size_t(1 + 3 * 4 * schedule.chunks() + 3));  // background, boxes, legend
    CHECK(count(svg, ">stage ") == 3);
    CHECK(count(svg, schedule.name + ": 3 stages, 4 microbatches, bubble ") == 1);
    CHECK(count(svg, "darker") == (schedule.chunks() > 3 ? 1 : 0));
    CHECK(count(svg, "http") == 1);  // the namespace; nothing is fetched
  }
}

TEST_CASE("labels are left out where there is no room, names are escaped") {
  CHECK(count(schedule_svg(one_forward_one_backward(2, 4, 0)), "text-anchor") == 2 * 3 * 4);
  CHECK(count(schedule_svg(one_forward_one_backward(2, 1000, 0)), "text-anchor") == 0);
  auto schedule = one_forward_one_backward(1, 1, 0);
  schedule.name = "a<b&c";
  CHECK(count(schedule_svg(schedule), "a&lt;b&amp;c") == 1);
}

TEST_CASE("costs set the widths") {
  const auto schedule = one_forward_one_backward(1, 1, 0);
  CHECK(count(schedule_svg(schedule, {1, 2, 1}), "width=\"600\"") == 1);  // half of the time
}

TEST_CASE("a schedule that cannot run is an error, not a picture") {
  auto schedule = one_forward_one_backward(2, 1, 0);
  schedule.instructions[0].clear();
  CHECK_THROWS_AS(schedule_svg(schedule), InvariantError);
}

}  // namespace shardline::schedule_svg_test
