// A diagnosis for people, and for programs.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/observe/doctor/diagnosis.h"

namespace shardline {

// The cause in one line: "rank 5 (host b, stage 1) is 2 collectives behind on 'dp': it has not begun ...".
std::string verdict(const Diagnosis& diagnosis);

// Returns an indented line for each rank that says what it was doing: at most `most` lines, with the ranks first to
// which the verdict applies and those that wait longest; the last of these lines counts the ranks that are left out.
// Another line names the hosts without records, if there are any.
std::string situations_text(const Diagnosis& diagnosis, int most);

// cause, verdict, culprits, operation, hosts without records, and every rank.
nlohmann::json diagnosis_json(const Diagnosis& diagnosis);

}  // namespace shardline
