// A request and its answer, as the service sees them.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"

namespace shardline {

struct HttpRequest {
  std::string method, path;  // without the query
  std::string content_type;  // "application/json", in lower case and without parameters; empty: not given
  std::string accept;
  std::string content_encoding = {};  // as it was sent
  std::string body;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers = {};
};

// A client's mistake, or the reason why the server cannot answer now.
struct HttpError : Error {
  HttpError(int with_status, const std::string& what, int retry_after = 0)
      : Error(what), status(with_status), retry_after_seconds(retry_after) {}
  int status;
  int retry_after_seconds;  // 0: not stated
};

// {"code": 400, "type": "Bad Request", "message": ...}
HttpResponse error_response(int status, const std::string& message, int retry_after_seconds = 0);

// "application/json" of "Application/JSON; charset=utf-8".
std::string media_type(std::string_view header);

}  // namespace shardline
