// Numbers as text for people to read.
#pragma once
#include <string>

namespace shardline {

std::string format_bytes(double bytes);  // "512 B", "1.2 GiB"
std::string format_count(double count);  // "512", "39.8k", "1.2M", "6.7B"
std::string format_decimals(double value, int places);

}  // namespace shardline
