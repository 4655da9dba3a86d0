#include "models/program/ops/number_functions.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "core/error.h"

namespace shardline {
namespace {

using c10::IValue;
using Arguments = std::vector<IValue>;

// A bool is an int, as in Python.
int64_t whole(const IValue& value) {
  return value.isBool() ? value.toBool() : value.toInt();
}

double real(const IValue& value) {
  return value.isDouble() ? value.toDouble() : double(whole(value));
}

bool truth(const IValue& value) {
  return value.isDouble() ? value.toDouble() != 0 : whole(value) != 0;
}

bool has_double(const Arguments& arguments) {
  return std::ranges::any_of(arguments, [](const IValue& value) { return value.isDouble(); });
}

[[noreturn]] void overflow() {
  throw RunError("a size overflows 64 bits");
}

template <class Whole, class Real>
std::function<IValue(const Arguments&)> arithmetic(Whole of_whole, Real of_real) {
  return [of_whole, of_real](const Arguments& a) -> IValue {
    if (has_double(a)) return of_real(real(a[0]), real(a[1]));
    int64_t result = 0;
    if (of_whole(whole(a[0]), whole(a[1]), &result)) overflow();
    return result;
  };
}

template <class Compare>
std::function<IValue(const Arguments&)> comparison(Compare compare) {
  return [compare](const Arguments& a) -> IValue {
    return has_double(a) ? compare(real(a[0]), real(a[1])) : compare(whole(a[0]), whole(a[1]));
  };
}

// Computes the quotient, rounded down; returns whether it overflows.
bool divide(int64_t a, int64_t b, int64_t* quotient) {
  if (b == 0) throw RunError("a size is divided by zero");
  if (b == -1) return __builtin_sub_overflow(int64_t{0}, a, quotient);
  *quotient = a / b - (a % b != 0 && (a < 0) != (b < 0));
  return false;
}

bool remainder(int64_t a, int64_t b, int64_t* rest) {
  int64_t quotient = 0;
  const bool overflows = divide(a, b, &quotient);  // overflows only by -1, which leaves no remainder
  *rest = overflows ? 0 : a - quotient * b;
  return false;
}

IValue rounded(double value) {
  constexpr double kMost = 9e18;
  if (!(std::abs(value) < kMost)) overflow();
  return int64_t(value);
}

struct Function {
  size_t arguments;
  std::function<IValue(const Arguments&)> compute;
};

const std::map<std::string, Function>& functions() {
  static const std::map<std::string, Function> all = [] {
    const auto add = [](int64_t a, int64_t b, int64_t* c) { return __builtin_add_overflow(a, b, c); };
    const auto sub = [](int64_t a, int64_t b, int64_t* c) { return __builtin_sub_overflow(a, b, c); };
    const auto mul = [](int64_t a, int64_t b, int64_t* c) { return __builtin_mul_overflow(a, b, c); };
    const auto to_whole = [](const Arguments& a) -> IValue {
      return a[0].isDouble() ? rounded(std::trunc(a[0].toDouble())) : IValue(whole(a[0]));
    };
    const auto choose = [](bool first_if_less) {
      return [first_if_less](const Arguments& a) -> IValue {
        return (real(a[0]) < real(a[1])) == first_if_less ? a[0] : a[1];
      };
    };
    return std::map<std::string, Function>{
        {"_operator.add", {2, arithmetic(add, std::plus<double>())}},
        {"_operator.sub", {2, arithmetic(sub, std::minus<double>())}},
        {"_operator.mul", {2, arithmetic(mul, std::multiplies<double>())}},
        {"_operator.floordiv", {2, arithmetic(divide, [](double a, double b) { return std::floor(a / b); })}},
        {"_operator.mod", {2, arithmetic(remainder, [](double a, double b) { return a - b * std::floor(a / b); })}},
        {"_operator.truediv",
         {2,
          [](const Arguments& a) -> IValue {
            if (real(a[1]) == 0) throw RunError("a size is divided by zero");
            return real(a[0]) / real(a[1]);
          }}},
        {"_operator.neg",
         {1,
          [](const Arguments& a) -> IValue {
            int64_t result = 0;
            if (a[0].isDouble()) return -a[0].toDouble();
            if (__builtin_sub_overflow(int64_t{0}, whole(a[0]), &result)) overflow();
            return result;
          }}},
        {"_operator.pos", {1, [](const Arguments& a) { return a[0]; }}},
        {"_operator.eq", {2, comparison(std::equal_to<>())}},
        {"_operator.ne", {2, comparison(std::not_equal_to<>())}},
        {"_operator.lt", {2, comparison(std::less<>())}},
        {"_operator.le", {2, comparison(std::less_equal<>())}},
        {"_operator.gt", {2, comparison(std::greater<>())}},
        {"_operator.ge", {2, comparison(std::greater_equal<>())}},
        {"_operator.and_", {2, [](const Arguments& a) -> IValue { return truth(a[0]) && truth(a[1]); }}},
        {"_operator.or_", {2, [](const Arguments& a) -> IValue { return truth(a[0]) || truth(a[1]); }}},
        {"torch.sym_max", {2, choose(false)}},
        {"torch.sym_min", {2, choose(true)}},
        {"torch.sym_int", {1, to_whole}},
        {"math.trunc", {1, to_whole}},
        {"torch.sym_float", {1, [](const Arguments& a) -> IValue { return real(a[0]); }}},
        {"torch.sym_not", {1, [](const Arguments& a) -> IValue { return !truth(a[0]); }}},
        {"torch.sym_ite", {3, [](const Arguments& a) { return truth(a[0]) ? a[1] : a[2]; }}}};
  }();
  return all;
}

}  // namespace

bool is_number_function(const std::string& name) {
  return functions().contains(name);
}

NumberFunction number_function(const std::string& name) {
  return [&function = functions().at(name)](const Arguments& arguments) {
    if (arguments.size() != function.arguments)
      throw RunError(cat("takes ", function.arguments, " arguments, not ", arguments.size()));
    for (const auto& argument : arguments)
      if (!argument.isInt() && !argument.isDouble() && !argument.isBool())
        throw RunError(cat("takes numbers, not a ", argument.tagKind()));
    return function.compute(arguments);
  };
}

}  // namespace shardline
