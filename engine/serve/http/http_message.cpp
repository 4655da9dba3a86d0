#include "engine/serve/http/http_message.h"

#include <nlohmann/json.hpp>

namespace shardline {
namespace {

const char* name_of_status(int status) {
  switch (status) {
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 406:
      return "Not Acceptable";
    case 408:
      return "Request Timeout";
    case 413:
      return "Payload Too Large";
    case 415:
      return "Unsupported Media Type";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
  }
  return "Internal Server Error";
}

}  // namespace

HttpResponse error_response(int status, const std::string& message, int retry_after_seconds) {
  const nlohmann::json body = {{"code", status}, {"type", name_of_status(status)}, {"message", message}};
  HttpResponse response{.status = status,
                        .body = body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"};
  if (retry_after_seconds > 0) response.headers.emplace_back("Retry-After", std::to_string(retry_after_seconds));
  return response;
}

std::string media_type(std::string_view header) {
  std::string type(header.substr(0, header.find(';')));
  std::erase_if(type, [](char c) { return c == ' ' || c == '\t'; });
  for (char& c : type)
    if (c >= 'A' && c <= 'Z') c += 'a' - 'A';
  return type;
}

}  // namespace shardline
