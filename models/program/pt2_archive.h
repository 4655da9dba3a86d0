// An archive of torch.export.save (".pt2"): a program and its weights. None of its code is run, and no pickle is read.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/files/tensor_file.h"
#include "models/program/graph.h"

namespace shardline {

// What a module of a C++ program declares about its division (include/shardline/nn.h).
struct SplitMark {
  std::string module;     // its path
  std::string kind;       // "ColumnLinear"
  std::string parts;      // what the ranks divide: "columns"
  std::string parameter;  // the one that has these parts; empty: they are the classes of the loss
  int dimension = 0;      // the parameter's dimension
  bool gathers = false;   // every rank gets all columns of the product
};

struct Pt2Archive {
  std::string path;                                       // the file; for a module of a C++ program, "model NAME"
  bool is_traced = false;                                 // the program is such a module
  Graph graph;                                            // inputs for the same parameter have one name
  std::shared_ptr<const TensorFile> weights;              // by name; a tied parameter has its first name in the graph
  std::map<std::string, bool> trainable;                  // by name in `weights`
  std::map<std::string, std::vector<std::string>> names;  // by name in `weights` or `buffers`: its other names
  std::map<std::string, at::Tensor> constants;            // buffers and constants by name, views of the file
  std::vector<std::string> buffers;                 // buffers of the module's state_dict(), under their first names
  std::shared_ptr<const TensorFile> constant_file;  // the file that holds them; null: no file does
  std::vector<SplitMark> marks;                     // the marks of a traced program; parameters are names in the graph

  // The beginning of messages: the config key that names the program, and the path.
  std::string place() const { return (is_traced ? "/model/config/model_type: " : "/model/path: ") + path; }
  // The verb for messages that suggest making another archive.
  const char* verb() const { return is_traced ? "write" : "export"; }
};

// Throws a DataError that names file, place and rule if the file contradicts itself or cannot be used here. In the
// result, every tensor is inside its bytes, and every input of the graph that is not an argument of the program has its
// tensor, with the dtype and sizes that the graph states.
Pt2Archive read_pt2(const std::string& path);

}  // namespace shardline
