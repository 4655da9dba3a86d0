// Progress that ranks report to the launcher that started them. mpirun returns only one exit code, and the launcher may
// not see the files of the run. Ranks therefore write marked lines to standard error, which the launcher removes from
// the output (engine/launch/rank_messages.h). Ranks without a launcher write nothing.
#pragma once
#include <optional>
#include <string>

namespace shardline {

enum class News {
  started,  // by each rank: its program runs
  trains,   // by rank 0, like those below: the first step begins
  saved,    // a checkpoint is complete
  stops,    // all ranks end because the run was asked to stop; also by a rank that a signal ends before its first step
  out_of_memory,  // by any rank: it has failed because memory was exhausted
  finished,       // the command has done its work; another attempt would add nothing
};

// Open MPI passes variables that begin with OMPI_ on to ranks on other hosts.
inline constexpr const char* kLifelineVariable = "OMPI_SHARDLINE_LIFELINE";
bool has_launcher();  // whether this process is a rank that a launcher started

// Async-signal-safe after the first call.
void tell_launcher(News news);

// For the launcher: takes the first complete line of news out of the text.
std::optional<News> take_news(std::string& text);

}  // namespace shardline
