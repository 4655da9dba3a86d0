// A diagnosis for people, and for programs.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/observe/doctor/diagnosis.h"

namespace shardline {

// The cause: "rank 5 (host b, stage 1) is 2 collectives behind on 'dp': it has not begun ...". One line, except that
// the message of a rank that failed may have more, which are indented.
std::string verdict(const Diagnosis& diagnosis);

// Returns an indented line for each rank that describes what it was doing: at most `most` lines, with the ranks first
// to which the verdict applies and those that wait longest; the last of these lines counts the ranks that are left out.
// Further lines of a rank's message follow it. Then come the hosts without records, clocks that differ, and
// left_out_text.
std::string situations_text(const Diagnosis& diagnosis, int most);

// "  left out: 2 files of other jobs" and a line for each damaged file; "" for none.
std::string left_out_text(int of_other_jobs, const std::vector<std::string>& damaged);

// cause, verdict, culprits, operation, hosts without records, clocks that differ, files that were left out, and every
// rank.
nlohmann::json diagnosis_json(const Diagnosis& diagnosis);

}  // namespace shardline
