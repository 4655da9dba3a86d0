#include "engine/launch/rank_messages.h"

#include <sstream>

#include "core/error.h"

#include "tests/catch.h"

namespace shardline::rank_messages_test {

using Catch::Matchers::Contains;

TEST_CASE("Status messages of ranks are not shown, wherever they occur in other text", "[rank_messages]") {
  std::ostringstream log;
  RankMessages messages(log);
  messages.add("note: shardline-rank: started\nhost a has 2 GPUs\nshardline-ra");
  CHECK((messages.news() == std::set{News::started}));
  messages.add("nk: saved");
  CHECK((messages.news() == std::set{News::started}));
  messages.add("\nerror: rank 1: disk full\n  free some room\nshardline-rank: stops\n");
  CHECK((messages.news() == std::set{News::started, News::saved, News::stops}));
  CHECK(log.str() == "note: host a has 2 GPUs\n");
  CHECK(messages.failure(1, /*stopped=*/true) == "error: disk full\n  free some room\n");
}

TEST_CASE("Text that only resembles a status message is shown", "[rank_messages]") {
  std::ostringstream log;
  RankMessages messages(log);
  messages.add("shardline-rank: hello\nshardline-rank: finished\n");
  CHECK(log.str() == "shardline-rank: hello\n");
  CHECK((messages.news() == std::set{News::finished}));
}

TEST_CASE("An error of all ranks is reported once and names none of them", "[rank_messages]") {
  std::ostringstream log;
  RankMessages messages(log);
  for (int rank = 0; rank < 3; ++rank) messages.add(rank_error({}, "/training/optim: differs:\nadamw, sgd"));
  messages.add(rank_error(2, "disk full"));
  CHECK(log.str().empty());
  CHECK(messages.failure(2, /*stopped=*/false) ==
        "error: /training/optim: differs:\n  adamw, sgd\nerror: rank 2: disk full\n");
}

TEST_CASE("A message of any length is passed on", "[rank_messages]") {
  std::ostringstream log;
  RankMessages messages(log);
  const std::string frame(70, '-'), text(1 << 20, 'x');
  for (const std::string& line : {text, "[" + text, "mpirun: Forwarding signal " + text}) messages.add(line + "\n");
  messages.add(cat(frame, "\nprocess rank 3 with PID 712 on node ", text, '\n', frame, '\n'));
  messages.add("error: rank 99999999999: no rank\n");
  const std::string error = rank_error(1, "text.jsonl:1: " + text);
  messages.add(error);
  CHECK_FALSE(messages.killed_rank().has_value());
  const bool is_passed_on = log.str() == text + "\n[" + text + "\nerror: rank 99999999999: no rank\n" &&
                            messages.failure(1, /*stopped=*/false) == error;
  CHECK(is_passed_on);  // and does not print it
}

TEST_CASE("The message about a killed rank names the signal", "[rank_messages]") {
  std::ostringstream log;
  RankMessages messages(log);
  const std::string frame(70, '-');
  messages.add(frame + "\nmpirun noticed that process rank 3 with PID 712 on node a exited on signal 9 (Killed).\n" +
               frame + "\n");
  REQUIRE(messages.killed_rank());
  CHECK(messages.killed_rank()->signal == 9);
  CHECK_THAT(messages.failure(1, /*stopped=*/false), Contains("rank 3") && Contains("was killed by signal 9 (Killed)"));
}

}  // namespace shardline::rank_messages_test
