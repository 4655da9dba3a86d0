// What a head predicts, in terms of programs.
#pragma once
#include "models/families/head_choice.h"
#include "models/program/program.h"

namespace shardline {

ProgramUse::Predicts predicts_of(HeadChoice::Kind kind);

}  // namespace shardline
