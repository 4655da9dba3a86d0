#include "engine/data/arrow/json_values.h"

#include <arrow/array/array_run_end.h>
#include <arrow/extension_type.h>
#include <arrow/scalar.h>
#include <arrow/util/float16.h>
#include <arrow/util/ree_util.h>

#include <cmath>
#include <stdexcept>

namespace shardline {
namespace {

using arrow::Type;
using nlohmann::json;

json number(double value) {
  return std::isfinite(value) ? json(value) : json();
}

template <class Integer>
json integer(Integer value, const Feature& feature) {
  return !feature.names.empty() && std::cmp_equal(value, -1) ? json() : json(value);
}

json text(std::string_view value) {
  return value;
}

json bytes(std::string_view value) {
  return json::binary({value.begin(), value.end()});
}

// The value of a list; its elements are a part of another array.
template <class List>
json list(const List& array, int64_t i, const Feature& feature) {
  json values = json::array();
  const int64_t begin = array.value_offset(i), end = begin + array.value_length(i);
  for (int64_t element = begin; element < end; ++element)
    values.push_back(json_value(*array.values(), element, feature.of_item()));
  return values;
}

json fields(const arrow::StructArray& array, int64_t i, const Feature& feature) {
  json object = json::object();
  for (int field = 0; field < array.num_fields(); ++field) {
    const std::string& name = array.struct_type()->field(field)->name();
    object[name] = json_value(*array.field(field), i, feature.of_field(name));
  }
  return object;
}

template <class Array>
const Array& as(const arrow::Array& array) {
  return dynamic_cast<const Array&>(array);
}

}  // namespace

json json_value(const arrow::Array& array, int64_t i, const Feature& feature) {
  if (array.IsNull(i)) return {};
  switch (array.type_id()) {
    case Type::BOOL:
      return as<arrow::BooleanArray>(array).Value(i);
    case Type::INT8:
      return integer(as<arrow::Int8Array>(array).Value(i), feature);
    case Type::INT16:
      return integer(as<arrow::Int16Array>(array).Value(i), feature);
    case Type::INT32:
      return integer(as<arrow::Int32Array>(array).Value(i), feature);
    case Type::INT64:
      return integer(as<arrow::Int64Array>(array).Value(i), feature);
    case Type::UINT8:
      return integer(as<arrow::UInt8Array>(array).Value(i), feature);
    case Type::UINT16:
      return integer(as<arrow::UInt16Array>(array).Value(i), feature);
    case Type::UINT32:
      return integer(as<arrow::UInt32Array>(array).Value(i), feature);
    case Type::UINT64:
      return integer(as<arrow::UInt64Array>(array).Value(i), feature);
    case Type::HALF_FLOAT:
      return number(arrow::util::Float16::FromBits(as<arrow::HalfFloatArray>(array).Value(i)).ToDouble());
    case Type::FLOAT:
      return number(as<arrow::FloatArray>(array).Value(i));
    case Type::DOUBLE:
      return number(as<arrow::DoubleArray>(array).Value(i));
    case Type::STRING:
      return text(as<arrow::StringArray>(array).GetView(i));
    case Type::LARGE_STRING:
      return text(as<arrow::LargeStringArray>(array).GetView(i));
    case Type::STRING_VIEW:
      return text(as<arrow::StringViewArray>(array).GetView(i));
    case Type::BINARY:
      return bytes(as<arrow::BinaryArray>(array).GetView(i));
    case Type::LARGE_BINARY:
      return bytes(as<arrow::LargeBinaryArray>(array).GetView(i));
    case Type::BINARY_VIEW:
      return bytes(as<arrow::BinaryViewArray>(array).GetView(i));
    case Type::FIXED_SIZE_BINARY:
      return bytes(as<arrow::FixedSizeBinaryArray>(array).GetView(i));
    case Type::LIST:
    case Type::MAP:
      return list(as<arrow::ListArray>(array), i, feature);
    case Type::LARGE_LIST:
      return list(as<arrow::LargeListArray>(array), i, feature);
    case Type::LIST_VIEW:
      return list(as<arrow::ListViewArray>(array), i, feature);
    case Type::LARGE_LIST_VIEW:
      return list(as<arrow::LargeListViewArray>(array), i, feature);
    case Type::FIXED_SIZE_LIST:
      return list(as<arrow::FixedSizeListArray>(array), i, feature);
    case Type::STRUCT:
      return fields(as<arrow::StructArray>(array), i, feature);
    case Type::DICTIONARY: {
      const auto& coded = as<arrow::DictionaryArray>(array);
      return json_value(*coded.dictionary(), coded.GetValueIndex(i), feature);
    }
    case Type::RUN_END_ENCODED: {
      const auto& runs = as<arrow::RunEndEncodedArray>(array);
      const int64_t run = arrow::ree_util::FindPhysicalIndex(arrow::ArraySpan(*runs.data()), i, runs.offset());
      return json_value(*runs.values(), run, feature);
    }
    case Type::EXTENSION:
      return json_value(*as<arrow::ExtensionArray>(array).storage(), i, feature);
    case Type::DATE32:
    case Type::DATE64:
    case Type::TIME32:
    case Type::TIME64:
    case Type::TIMESTAMP:
    case Type::DURATION:
    case Type::DECIMAL32:
    case Type::DECIMAL64:
    case Type::DECIMAL128:
    case Type::DECIMAL256:
      return text(array.GetScalar(i).ValueOrDie()->ToString());
    default:
      throw std::runtime_error("has values of the type " + array.type()->ToString() +
                               ", which cannot be read; remove this column");
  }
}

}  // namespace shardline
