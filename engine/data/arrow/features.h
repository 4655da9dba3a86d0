// The features that Hugging Face `datasets` notes in the schema of its Arrow and Parquet files.
#pragma once
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace shardline {

// The known properties of a column, or of the values inside it.
struct Feature {
  std::vector<std::string> names;         // a ClassLabel's names; empty: it is not one
  std::map<std::string, Feature> fields;  // a struct's fields
  std::shared_ptr<const Feature> item;    // a list's elements; null: this object also describes the elements

  // The properties of a list's elements, and of a field. A Sequence of a struct is stored as a struct of lists.
  const Feature& of_item() const { return item ? *item : *this; }
  const Feature& of_field(const std::string& field) const;
  // The names of the column's ClassLabel, or of the ClassLabel in its lists; empty: there is none.
  const std::vector<std::string>& label_names() const;
};

// The columns that the text of the metadata "huggingface" describes. Anything that is not understood is left out.
Feature read_features(const std::string& metadata);

}  // namespace shardline
