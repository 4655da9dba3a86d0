// A diagnosis for people, and for programs.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/observe/doctor/diagnosis.h"

namespace shardline {

// The cause in one line: "rank 5 (host b, stage 1) is 2 collectives behind on 'dp': it has not begun ...".
std::string verdict(const Diagnosis& diagnosis);

// Returns an indented line for each rank that says what it was doing. At most `most` lines: ranks to which the verdict
// applies and those that wait longest come first; a last line counts the others.
std::string situations_text(const Diagnosis& diagnosis, int most);

// cause, verdict, culprits, operation, hosts without records, and every rank.
nlohmann::json diagnosis_json(const Diagnosis& diagnosis);

}  // namespace shardline
